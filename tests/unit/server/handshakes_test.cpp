#include "net/handshakes.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <vector>

namespace outpost::rpc {
namespace {

using namespace std::chrono_literals;

/// Keeps the lines, and ends the loop at each.
class LinesLog final : public Log {
 public:
  explicit LinesLog(EventLoop& loop) : loop_{loop} {}
  bool wants(LogLevel) const override { return true; }
  void write(LogLevel, std::string_view event) override {
    lines.emplace_back(event);
    loop_.stop();
  }
  std::vector<std::string> lines;

 private:
  EventLoop& loop_;
};

class HandshakesTest : public testing::Test {
 protected:
  Handshakes& make(HandshakeLimits limits) {
    handshakes_.emplace(loop_, log_, limits, [this](Arrival arrival) {
      arrivals_.push_back(std::move(arrival));
      loop_.stop();
    });
    return *handshakes_;
  }
  /// Our end of a new connection that the handshakes have taken in.
  unique_fd connect(std::string peer = "peer") {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    handshakes_->add(unique_fd{pair[0]}, std::move(peer));
    return unique_fd{pair[1]};
  }
  static void send(const unique_fd& fd, std::string_view bytes) {
    EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  static std::string hello(std::string_view key) {
    return std::string{as_text(encode_hello(kMagic, key))};
  }
  static bool is_closed(const unique_fd& fd) {
    char byte;
    return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  EventLoop loop_;
  LinesLog log_{loop_};
  std::vector<Arrival> arrivals_;
  std::optional<Handshakes> handshakes_;
};

TEST_F(HandshakesTest, LeaveTheBytesBehindTheHelloToTheWorker) {
  make({});
  const auto client = connect();
  send(client, hello("client:pi4 -timeout=2") + "next");
  loop_.run();
  ASSERT_EQ(arrivals_.size(), 1u);
  EXPECT_EQ(arrivals_[0].key.match_key, "pi4");
  char rest[8];
  EXPECT_EQ(::recv(arrivals_[0].socket.get(), rest, sizeof rest, MSG_DONTWAIT), 4);
}

TEST_F(HandshakesTest, DoNotWaitForOneAnother) {
  make({});
  std::vector<unique_fd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(connect());
    if (i % 2 != 0) send(silent.back(), hello("client:slow").substr(0, 11));
  }
  const auto client = connect();
  send(client, hello("client:fast"));
  loop_.run();
  ASSERT_EQ(arrivals_.size(), 1u);
  EXPECT_EQ(arrivals_[0].key.match_key, "fast");
  EXPECT_EQ(handshakes_->size(), 100u);
}

TEST_F(HandshakesTest, EndAtTheirDeadline) {
  make({.deadline = 20ms});
  const auto client = connect("10.0.0.1:5");
  send(client, "\x71");
  loop_.run();
  EXPECT_TRUE(is_closed(client));
  ASSERT_EQ(log_.lines.size(), 1u);
  EXPECT_EQ(log_.lines[0],
            "handshake refused peer=10.0.0.1:5 reason='no whole handshake within 20 ms' bytes='q'");
}

TEST_F(HandshakesTest, DropTheOldestAboveTheLimit) {
  make({.count_max = 2});
  const auto first = connect(), second = connect(), third = connect();
  EXPECT_EQ(handshakes_->size(), 2u);
  EXPECT_TRUE(is_closed(first));
  EXPECT_FALSE(is_closed(second));
}

TEST_F(HandshakesTest, SayWhatAStrangerLooksLike) {
  make({});
  const auto client = connect("10.0.0.1:5");
  send(client, "GET / HTTP/1.1\r\n");
  loop_.run();
  ASSERT_EQ(log_.lines.size(), 1u);
  EXPECT_NE(log_.lines[0].find("looks like HTTP"), std::string::npos);
  EXPECT_NE(log_.lines[0].find("bytes='GET / HT'"), std::string::npos) << log_.lines[0];
}

}  // namespace
}  // namespace outpost::rpc
