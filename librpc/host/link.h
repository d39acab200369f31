#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace outpost::host {

struct LinkOptions {
  std::chrono::seconds timeout{60};
};

/// The board's compiler: $CXX, $CC, then g++, gcc, clang++, clang, c++, cc from PATH. not_found
/// when there is none.
Result<std::string> find_compiler();

/// Folders with the headers that generated C code includes (tvm-ffi's and ours): beside the
/// program, else of the build.
std::vector<std::string> default_include_dirs();

/// Links object and C files into the shared library `output`. The compiler runs as a process group
/// of its own with a time limit; its messages come back in the error, after "Compilation error:".
Result<> link_library(const std::vector<std::string>& inputs, const std::string& output,
                      const LinkOptions& options);

}  // namespace outpost::host
