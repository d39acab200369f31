#include <cstddef>
#include <cstdint>

#include "module/loaders.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const outpost::Bytes bytes{reinterpret_cast<const std::byte*>(data), size};
  (void)outpost::vm::read_const_loader(bytes);
  (void)outpost::vm::read_static_library(bytes);
  return 0;
}
