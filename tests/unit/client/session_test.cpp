// The blocking face against a scripted server at the other end of a socket pair.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "base/unique_fd.h"
#include "core/client_session.h"
#include "outpost/rpc/client.h"
#include "wire/frame.h"

namespace outpost::client {
namespace {

using Frame = std::vector<std::byte>;

template <class Write>
Frame frame(rpc::FrameCode code, Write write) {
  Frame out;
  ByteWriter w{out};
  const auto begin = rpc::open_frame(w, code);
  write(w);
  rpc::close_frame(w, begin);
  return out;
}

Frame returned(std::vector<rpc::Value> values) {
  return frame(rpc::FrameCode::return_value, [&](ByteWriter& w) {
    rpc::PackedWriter packed{w};
    packed.count(static_cast<std::int32_t>(values.size()));
    for (const auto& v : values) packed.value(v);
  });
}

Frame raised(std::string_view text) {
  return frame(rpc::FrameCode::exception, [&](ByteWriter& w) {
    rpc::PackedWriter packed{w};
    packed.count(1);
    packed.raw_string(text);
  });
}

/// What the server does with one request: bytes to send; empty ends the connection.
using Reply = std::function<Frame(rpc::FrameCode code, ByteReader body)>;

/// Answers InitServer itself, and every other request with `reply`, until the client closes.
class Peer {
 public:
  explicit Peer(Reply reply) : reply_{std::move(reply)} {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    client_ = ends[0];
    socket_.reset(ends[1]);
    thread_ = std::thread{[this] { serve(); }};
  }
  ~Peer() { thread_.join(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Session open(const ConnectOptions& options = {}) { return adopt(client_, options); }
  int seen(rpc::FrameCode code) const { return seen_[static_cast<std::size_t>(code)]; }

 private:
  void serve() {
    rpc::FrameReader frames{1ULL << 30};
    for (;;) {
      const auto body = frames.next();
      ASSERT_TRUE(body.has_value());
      if (!*body) {
        const auto space = frames.prepare();
        const auto got = ::recv(socket_.get(), space.data(), space.size(), 0);
        if (got <= 0) return;
        frames.commit(static_cast<std::size_t>(got));
        continue;
      }
      ByteReader in{**body};
      const auto code = static_cast<rpc::FrameCode>(*in.le<std::int32_t>("code"));
      ++seen_[static_cast<std::size_t>(code)];
      if (code == rpc::FrameCode::shutdown) return;
      const auto answer =
          code == rpc::FrameCode::init_server ? returned({rpc::arg::none()}) : reply_(code, in);
      if (answer.empty()) return socket_.reset();
      // A client may leave without waiting for its last answers; the cases judge what it saw.
      if (::send(socket_.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  Reply reply_;
  int client_ = -1;
  unique_fd socket_;
  std::array<std::atomic<int>, 32> seen_{};
  std::thread thread_;
};

Frame number(std::int64_t v) {
  return returned({rpc::arg::integer(1), rpc::arg::integer(v)});
}
Frame pointer(std::uint64_t v) {
  return returned({rpc::arg::pointer(v)});
}

template <class E>
std::string text_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing of that kind was thrown";
}

/// Gives out function 7; calls get `answer`.
Reply calls(Frame answer) {
  return [answer](rpc::FrameCode code, ByteReader) {
    return code == rpc::FrameCode::call_func ? answer : pointer(7);
  };
}

TEST(ClientSessionFace, RaisesWhatTheServerRaisesAndGoesOn) {
  int asked = 0;
  Peer peer{[&](rpc::FrameCode code, ByteReader) {
    if (code != rpc::FrameCode::call_func) return pointer(7);
    return ++asked == 1 ? raised("no such thing") : number(5);
  }};
  const auto session = peer.open();
  const auto f = session.get_function("f");
  EXPECT_EQ(text_of<RemoteError>([&] { f(); }), "no such thing");
  EXPECT_EQ(f().as_int(), 5);
}

TEST(ClientSessionFace, ClosesWhenTheServerClosesInsideAnAnswer) {
  auto half = number(5);
  half.resize(half.size() - 3);
  bool sent = false;
  Peer peer{[&](rpc::FrameCode code, ByteReader) {
    if (code != rpc::FrameCode::call_func) return pointer(7);
    return std::exchange(sent, true) ? Frame{} : half;
  }};
  ConnectOptions options;
  options.timeouts.stall = std::chrono::milliseconds{50};
  const auto session = peer.open(options);
  const auto f = session.get_function("f");
  EXPECT_EQ(text_of<ConnectionError>([&] { f(); }),
            "the session with the adopted socket is lost: cannot receive: the server stood still "
            "for 50 ms");
  EXPECT_FALSE(session.is_open());
  EXPECT_TRUE(text_of<ConnectionError>([&] { f(); }).starts_with("the session with"));
}

TEST(ClientSessionFace, SaysThatTheServerEndedTheSession) {
  Peer peer{calls(frame(rpc::FrameCode::shutdown, [](ByteWriter&) {}))};
  const auto session = peer.open();
  EXPECT_EQ(text_of<ConnectionError>([&] { session.get_function("f")(); }),
            "the session with the adopted socket is lost: the server ended the session (Shutdown)");
}

TEST(ClientSessionFace, FindsOutThatTheSessionIsLostBehindAnError) {
  int asked = 0;
  Peer peer{[&](rpc::FrameCode code, ByteReader) {
    if (code == rpc::FrameCode::call_func) return raised("the worker crashed");
    return ++asked == 3 ? Frame{} : pointer(7);
  }};
  const auto session = peer.open();
  const auto f = session.get_function("f");
  EXPECT_EQ(text_of<RemoteError>([&] { f(); }), "the worker crashed");
  EXPECT_TRUE(session.is_open());
  EXPECT_FALSE(text_of<RpcError>([&] { (void)session.cpu().exists(); }).empty());
  EXPECT_FALSE(session.answers());
  EXPECT_FALSE(session.is_open());
}

TEST(ClientSessionFace, LimitsTheWaitForAnAnswer) {
  std::atomic<bool> asked{false};
  std::binary_semaphore over{0};
  Peer peer{[&](rpc::FrameCode code, ByteReader) {
    if (code != rpc::FrameCode::call_func) return pointer(7);
    over.acquire();
    return Frame{};
  }};
  ConnectOptions options;
  options.timeouts.answer = std::chrono::milliseconds{30};
  auto session = peer.open(options);
  const auto f = session.get_function("f");
  EXPECT_EQ(text_of<ConnectionError>([&] { f(); }),
            "the session with the adopted socket is lost: no answer within 30 ms");
  over.release();
}

TEST(ClientSessionFace, ReadsTheTimeOutsTextAlsoWhenItCameUnasked) {
  constexpr std::string_view kText = "RPCSessionTimeoutError: Your 1.0s session has expired";
  Peer peer{calls(raised(kText))};
  const auto session = peer.open();
  const auto f = session.get_function("f");
  const std::vector<std::byte> large(4'000'000);
  EXPECT_EQ(text_of<SessionTimeoutError>([&] { f(large); }), kText);
  EXPECT_EQ(text_of<SessionTimeoutError>([&] { f(); }), kText);
}

TEST(ClientSessionFace, FreesWhatIsDroppedAndNothingAfterItsEnd) {
  Peer peer{calls(returned({rpc::arg::integer(71), rpc::arg::pointer(9)}))};
  auto session = peer.open();
  auto f = session.get_function("f");
  {
    const auto object = f().as_object();
    const auto copy = object;
    EXPECT_EQ(object.type_index(), 71);
  }
  EXPECT_EQ(peer.seen(rpc::FrameCode::free_handle), 1);
  session.close();
  f = {};
  EXPECT_EQ(peer.seen(rpc::FrameCode::free_handle), 1);
}

TEST(ClientSessionFace, FreesAfterTheTransferWhatItsProgressDrops) {
  Peer peer{calls(number(0))};
  const auto session = peer.open();
  auto f = session.get_function("f");
  TransferOptions options;
  options.progress = [&](std::uint64_t, std::uint64_t) { f = {}; };
  session.upload(std::vector<std::byte>(100'000), "file", options);
  EXPECT_EQ(peer.seen(rpc::FrameCode::free_handle), 1);
}

TEST(ClientSessionFace, CutsCopiesToTheServersLimit) {
  constexpr std::uint64_t kLimit = 1000;
  std::map<std::uint64_t, std::uint64_t> blocks;
  std::size_t largest = 0;
  Peer peer{[&](rpc::FrameCode code, ByteReader in) {
    if (code == rpc::FrameCode::call_func) return number(kLimit);
    if (code != rpc::FrameCode::copy_to_remote) return pointer(7);
    largest = std::max(largest, in.left() + 4);
    const auto tensor = rpc::decode_tensor(in, 8);
    blocks[tensor->byte_offset] = *in.le<std::uint64_t>("bytes");
    return returned({rpc::arg::none()});
  }};
  {
    const auto session = peer.open();
    const auto tensor = session.cpu().empty({25, 100}, data_type_of<std::uint8_t>());
    tensor.copy_from(std::vector<std::byte>(2500));
  }
  std::uint64_t next = 0;
  for (const auto& [offset, size] : blocks) {
    EXPECT_EQ(offset, next);
    next += size;
  }
  EXPECT_EQ(next, 2500U);
  EXPECT_LE(largest, kLimit);
  EXPECT_EQ(blocks.size(), 3U);
}

TEST(ClientSessionFace, RefusesALimitBelowTheHeadOfACopy) {
  Peer peer{calls(number(20))};
  const auto session = peer.open();
  const auto tensor = session.cpu().empty({100}, data_type_of<std::uint8_t>());
  EXPECT_EQ(text_of<RpcError>([&] { tensor.copy_from(std::vector<std::byte>(100)); }),
            "the server limits copies to 20 bytes, their head alone takes 52");
}

TEST(ClientSessionFace, KeepsTheStreamWhenAProgressThrows) {
  Peer peer{calls(returned({rpc::arg::integer(66), rpc::arg::bytes(as_bytes("0123456789"))}))};
  const auto session = peer.open();
  TransferOptions options;
  options.progress = [](std::uint64_t, std::uint64_t) { throw std::runtime_error{"enough"}; };
  EXPECT_EQ(text_of<std::runtime_error>([&] { (void)session.download("file", options); }),
            "enough");
  EXPECT_EQ(session.download("file").size(), 10U);
}

TEST(ClientSessionFace, RefusesATensorWithoutASize) {
  const std::int64_t dims[] = {1LL << 40, 1LL << 40};
  rpc::TensorView view;
  view.dtype = {2, 32, 1};
  view.dims = std::as_bytes(std::span{dims});
  Peer peer{calls(returned({rpc::arg::integer(70), rpc::arg::tensor(view), rpc::arg::none()}))};
  const auto session = peer.open();
  EXPECT_EQ(text_of<RpcError>([&] { session.get_function("f")(); }),
            "the shape has more elements than can be counted");
}

TEST(ClientSessionFace, LogsEachRequest) {
  Peer peer{calls(number(1))};
  std::vector<std::string> lines;
  ConnectOptions options;
  options.enable_logging = true;
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  const auto session = peer.open(options);
  session.get_function("f")();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(lines[2].starts_with("the adopted socket: CallFunc -> int in "));
}

}  // namespace
}  // namespace outpost::client
