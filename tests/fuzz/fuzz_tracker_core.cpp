// A whole tracker without sockets: a few connections, each step of the input picks one and says
// what happens to it. One connection is honest throughout and must be answered at the end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tracker_core.h"

using namespace outpost;
using namespace outpost::tracker;

namespace {

constexpr ConnId kHonest{99};

void ping(TrackerCore& core, Time now) {
  const auto text = rpc::encode(rpc::TrackerRequest{rpc::PingRequest{}});
  const auto answer = rpc::encode_status(rpc::TrackerStatus::success);
  Outcome out;
  core.received(kHonest, as_bytes(text), now, out);
  const auto answered =
      std::any_of(out.sends.begin(), out.sends.end(),
                  [&](const Outcome::Send& s) { return s.to == kHonest && s.bytes == answer; });
  if (!answered) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  TrackerCore core{{}, "stop"};
  Time now{};
  Outcome out;
  core.connected(kHonest, "::1", now);
  core.received(kHonest, as_bytes(rpc::encode_tracker_magic()), now, out);
  while (size >= 2) {  // who and what, how many bytes
    const ConnId who{data[0] % 4U};
    const auto what = data[0] / 4U % 8U;
    const auto count = std::min<std::size_t>(data[1], size - 2);
    out.clear();
    if (what == 0) core.gone(who, now, out);
    if (what == 1) core.connected(who, "10.0.0.1", now);
    if (what == 2) core.received(who, as_bytes(rpc::encode_tracker_magic()), now, out);
    if (what == 3) core.tick(now += std::chrono::seconds{data[1]}, out);
    if (what >= 4) {
      const std::string_view text{reinterpret_cast<const char*>(data + 2), count};
      std::string message(4, '\0');
      message[0] = static_cast<char>(count);
      core.received(who, as_bytes(what >= 6 ? message.append(text) : std::string{text}), now, out);
      data += count;
      size -= count;
    }
    data += 2;
    size -= 2;
  }
  ping(core, now);
  return 0;
}
