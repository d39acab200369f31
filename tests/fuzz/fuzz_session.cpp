// Input: what a client sends after the handshake. A whole session reads it and answers; any bytes
// may come, none may crash it. Names that would start programs, dial hosts or take raw addresses
// are cut out first: those are what a session may do, not what its parser must survive.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "host/serve.h"
#include "wire/frame.h"
#include "wire/value.h"

namespace {
using namespace outpost;

constexpr std::array<std::string_view, 12> kNames = {
    "tvm.rpc.server.upload",  "tvm.rpc.server.download",  "tvm.rpc.server.remove",
    "tvm.rpc.server.listdir", "tvm.rpc.server.workpath",  "tvm.rpc.server.ModuleGetFunction",
    "vm.builtin.make_tuple",  "vm.builtin.tuple_getitem", "vm.builtin.copy",
    "vm.builtin.shape_of",    "vm.builtin.null_value",    "tvm.rpc.server.GetCRTMaxPacketSize"};

bool is_harmless(Bytes body) {
  ByteReader in{body};
  const auto code = *in.le<std::int32_t>("code");
  if (code == static_cast<std::int32_t>(rpc::FrameCode::init_server))
    return as_text(body).find("rpc.Connect") == std::string_view::npos;
  if (code != static_cast<std::int32_t>(rpc::FrameCode::get_global_func)) return true;
  std::vector<rpc::Value> values;
  if (rpc::decode_packed(body.subspan(4), {}, values).has_error() || values.empty()) return true;
  return std::find(kNames.begin(), kNames.end(), as_text(values[0].data)) != kNames.end();
}

std::vector<std::byte> without_harmful(Bytes input) {
  std::vector<std::byte> out;
  rpc::FrameReader frames{1 << 20};
  auto space = frames.prepare();
  const auto n = std::min(space.size(), input.size());
  std::copy_n(input.begin(), n, space.begin());
  frames.commit(n);
  for (;;) {
    auto body = frames.next();
    if (body.has_error() || !*body) break;
    if (!is_harmless(**body)) continue;
    ByteWriter{out}.sized(**body);
  }
  return out;
}

const std::string& folder() {
  static const std::string path = [] {
    std::string pattern = (std::filesystem::temp_directory_path() / "fuzz-XXXXXX").string();
    const char* made = ::mkdtemp(pattern.data());
    if (made == nullptr || host::preload({}).has_error()) std::abort();
    return pattern;
  }();
  return path;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = without_harmful({reinterpret_cast<const std::byte*>(data), size});
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  const unique_fd server{ends[0]};
  unique_fd client{ends[1]};
  std::thread reader{[&] {
    std::array<std::byte, 4096> sink{};
    (void)::send(client.get(), input.data(), input.size(), MSG_NOSIGNAL);
    ::shutdown(client.get(), SHUT_WR);
    while (::recv(client.get(), sink.data(), sink.size(), 0) > 0) {
    }
  }};
  host::SessionOptions options;
  options.work_dir = folder();
  options.limits.frame_bytes_max = 1 << 20;
  options.limits.stream_bytes_max = 1 << 20;
  SessionPage page;
  host::serve_session(server.get(), options, page);
  ::shutdown(server.get(), SHUT_RDWR);
  reader.join();
  for (const auto& entry : std::filesystem::directory_iterator{folder()})
    std::filesystem::remove_all(entry.path());
  return 0;
}
