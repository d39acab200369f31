#include <cstddef>
#include <cstdint>

#include "module/elf_file.h"
#include "module/library_bin.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const outpost::Bytes bytes{reinterpret_cast<const std::byte*>(data), size};
  if (const auto facts = outpost::vm::inspect_library(bytes); facts && facts->library_bin)
    (void)outpost::vm::read_library_bin(*facts->library_bin);
  (void)outpost::vm::read_library_bin(bytes);
  return 0;
}
