// The first bytes of a connection: any bytes as a hello, its key taken apart.
#include <cstdlib>

#include "wire/handshake.h"

using namespace outpost;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t need = 0;
  const auto hello = rpc::parse_hello({reinterpret_cast<const std::byte*>(data), size}, 1024, need);
  if (hello.has_error()) return 0;
  if (!*hello) {
    if (need <= size) std::abort();  // more bytes are asked for, so they must be missing
    return 0;
  }
  if ((*hello)->bytes > size) std::abort();
  const auto key = rpc::parse_key((*hello)->key);
  if (key && key->match_key.find_first_of(" \t\n\r\v\f") != std::string::npos) std::abort();
  return 0;
}
