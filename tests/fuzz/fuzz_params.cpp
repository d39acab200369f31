#include <cstddef>
#include <cstdint>

#include "builtin/params.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)outpost::vm::read_params({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
