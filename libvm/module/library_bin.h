#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace outpost::vm {

/// One module embedded in a library.
struct EmbeddedModule {
  std::string_view kind;  ///< `_lib` is the library itself and has no bytes
  Bytes bytes;
  std::vector<std::uint64_t> imports;  ///< indices of modules
};

/// Reads `__tvm_ffi__library_bin` (module-format.md): module 0 is the root. The views look into
/// `bin`. Errors: anything that libtvm_ffi would have to trust, such as counts, indices outside
/// the list or imports in a circle.
Result<std::vector<EmbeddedModule>> read_library_bin(Bytes bin);

}  // namespace outpost::vm
