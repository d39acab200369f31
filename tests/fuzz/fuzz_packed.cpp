// One packed sequence; what is understood is written in a form that reads the same way again.
#include <cstdlib>

#include "wire/value.h"

using namespace outpost;

namespace {

std::vector<std::byte> written(const std::vector<rpc::Value>& values) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  rpc::PackedWriter writer{out};
  writer.count(static_cast<std::int32_t>(values.size()));
  for (const auto& value : values) writer.value(value);
  return raw;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes body{reinterpret_cast<const std::byte*>(data), size};
  std::vector<rpc::Value> values;
  if (rpc::decode_packed(body, {}, values)) {
    const auto once = written(values);
    std::vector<rpc::Value> again;
    if (once.size() != size || !rpc::decode_packed(once, {}, again)) std::abort();
    if (written(again) != once) std::abort();
  }
  if (size > 4) {
    ByteReader in{body.subspan(4)};
    (void)rpc::decode_payload_head(in);
  }
  return 0;
}
