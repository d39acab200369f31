#include <cstdlib>

#include "core/client_session.h"

using outpost::Bytes;
namespace rpc = outpost::rpc;

// The first byte chooses the open requests, the rest is what a server says: answers one by one,
// until an error or until more bytes are wanted.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Bytes received{reinterpret_cast<const std::byte*>(data + 1), size - 1};
  rpc::ClientSession session{{.frame_bytes_max = 1 << 20}};
  rpc::Request request;
  for (int i = 0; i < 4; ++i) switch ((data[0] >> 2 * i) & 3) {
      case 0:
        session.call(request, 7, {});
        break;
      case 1:
        session.copy_from(request, rpc::TensorView{}, 24);
        break;
      default:
        session.init(request, {});
    }
  while (session.open_requests() > 0) {
    const auto step = session.resume(received);
    if (step.has_error()) return 0;
    if (step->consumed > received.size()) std::abort();
    received = received.subspan(step->consumed);
    if (step->kind == rpc::Step::Kind::need) {
      if (step->bytes <= received.size()) std::abort();
      return 0;
    }
    if (step->kind == rpc::Step::Kind::payload) {
      if (step->bytes > received.size()) return 0;
      received = received.subspan(step->bytes);
      session.payload_done();
    }
  }
  return 0;
}
