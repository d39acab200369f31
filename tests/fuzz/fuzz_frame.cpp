// A stream of frames in segments, each body read as its code says. The first byte sets the
// segments' size.
#include <algorithm>
#include <cstdlib>

#include "wire/frame.h"
#include "wire/value.h"

using namespace outpost;

namespace {

void read_body(Bytes body) {
  ByteReader in{body};
  const auto code = in.le<std::int32_t>("code");
  if (!code) std::abort();  // a frame is never shorter than its code
  (void)rpc::name(rpc::FrameCode{*code});
  switch (rpc::FrameCode{*code}) {
    case rpc::FrameCode::copy_to_remote:
    case rpc::FrameCode::copy_from_remote:
      if (rpc::decode_tensor(in, 64)) (void)in.sized("bytes");
      return;
    case rpc::FrameCode::init_server:
      (void)in.sized("version");
      break;
    case rpc::FrameCode::call_func:
      (void)in.le<std::uint64_t>("function");
      break;
    default:
      break;
  }
  std::vector<rpc::Value> values;
  (void)rpc::decode_packed(in.take(in.left(), "packed").value(), {}, values);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t step = std::max<std::size_t>(data[0], 1);
  Bytes left{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  rpc::FrameReader reader{1U << 20};
  while (!left.empty()) {
    const auto room = reader.prepare();
    const auto part = std::min({step, room.size(), left.size()});
    std::copy_n(left.begin(), part, room.begin());
    reader.commit(part);
    left = left.subspan(part);
    for (;;) {
      const auto body = reader.next();
      if (body.has_error()) return 0;
      if (!*body) break;
      read_body(**body);
    }
  }
  return 0;
}
