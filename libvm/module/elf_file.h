#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace outpost::vm {

/// What kind of machine a file is for.
struct Architecture {
  std::uint16_t machine;  ///< e_machine
  int bits;               ///< 32 or 64
  bool little_endian;

  bool operator==(const Architecture&) const = default;
};
/// The machine that this program was built for.
Architecture own_architecture();
/// "x86-64 (64-bit)", "AArch64 (64-bit)", "machine 4711 (32-bit, big-endian)".
std::string describe(const Architecture& a);

/// What a shared library says about itself. The views look into the file's bytes.
struct LibraryFacts {
  std::vector<std::string_view> needed;     ///< other libraries (DT_NEEDED)
  std::vector<std::string_view> undefined;  ///< symbols that somebody else must have; not weak ones
  std::optional<Bytes> library_bin;         ///< from `__tvm_ffi__library_bin` to its end
};

/// Reads a shared library without loading it. Errors: not ELF, no shared library, for another
/// machine (found and expected), cut short, tables that point outside the file.
Result<LibraryFacts> inspect_library(Bytes file);

}  // namespace outpost::vm
