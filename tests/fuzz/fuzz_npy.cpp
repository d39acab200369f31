#include <cstdlib>

#include "outpost/npy.h"

// Whatever the bytes: an error, or a head whose elements are all there.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const outpost::Bytes file{reinterpret_cast<const std::byte*>(data), size};
  const auto head = outpost::app::parse_npy(file);
  if (head.has_error()) return 0;
  const auto bytes = head->dtype.bytes(outpost::client::element_count(head->shape));
  if (head->data_offset + bytes != size) std::abort();
  return 0;
}
