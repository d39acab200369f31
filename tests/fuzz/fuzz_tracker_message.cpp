// The tracker's control plane: any bytes through the cutter, every message through each decoder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "wire/tracker_message.h"

using namespace outpost;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rpc::TrackerCutter cutter{rpc::kTrackerMessageBytesMax};
  cutter.feed({reinterpret_cast<const std::byte*>(data), size});
  const auto magic = cutter.take_magic();
  if (magic.has_error() || !*magic) return 0;
  for (auto text = cutter.next(); text && *text; text = cutter.next()) {
    const auto request = rpc::decode_tracker_request(**text);
    if (request) {  // what was understood is written in a form that is understood the same way
      const auto again = rpc::encode(*request);
      const auto back = rpc::decode_tracker_request(std::string_view{again}.substr(4));
      if (!back || rpc::encode(*back) != again) std::abort();
    }
    (void)rpc::decode_status(**text);
    (void)rpc::decode_device(**text);
    (void)rpc::decode_summary(**text);
    (void)rpc::decode_match_keys(**text);
  }
  return 0;
}
