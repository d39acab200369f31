#include "dial/dial.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "base/bytes.h"
#include "wire/handshake.h"

namespace outpost::rpc {
namespace {

/// A loopback listener that hands one connection to `serve`, in a thread of its own.
class OneConnection {
 public:
  explicit OneConnection(std::function<void(int socket)> serve) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread{[this, serve = std::move(serve)] {
      const unique_fd client{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      serve(client.get());
    }};
  }
  ~OneConnection() { thread_.join(); }
  OneConnection(const OneConnection&) = delete;
  OneConnection& operator=(const OneConnection&) = delete;

  std::uint16_t port() const { return port_; }
  std::string peer() const { return address_text("127.0.0.1", port_); }

 private:
  unique_fd listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

std::string read_hello(int socket, std::size_t bytes) {
  std::string out(bytes, '\0');
  EXPECT_EQ(::recv(socket, out.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  return out;
}

void write(int socket, Bytes data) {
  EXPECT_EQ(::send(socket, data.data(), data.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(data.size()));
}

constexpr std::size_t kHelloBytes = 8 + 10;  // "client:pi4"

std::vector<std::byte> number(std::int32_t v) {
  std::vector<std::byte> out;
  ByteWriter{out}.le(v);
  return out;
}

/// What dialling a server that answers with these bytes comes to.
Result<unique_fd> dial_one_that_says(const std::vector<std::byte>& answer, std::string& peer) {
  OneConnection server{[&](int socket) {
    read_hello(socket, kHelloBytes);
    write(socket, answer);
  }};
  peer = server.peer();
  return dial_session("127.0.0.1", server.port(), "pi4", Timeout{5000});
}

TEST(Dial, ConnectsAndGreets) {
  std::string hello;
  OneConnection server{[&](int socket) {
    hello = read_hello(socket, kHelloBytes);
    // In pieces, with the first bytes of the session right behind.
    const auto answer = encode_hello(kMagic, "server:pi4");
    for (const auto& b : answer) write(socket, {&b, 1});
    write(socket, as_bytes("next"));
  }};
  const auto fd = dial_session("127.0.0.1", server.port(), "pi4", Timeout{5000});
  ASSERT_TRUE(fd.has_value()) << fd.error().text;
  char next[4];
  ASSERT_EQ(::recv(fd->get(), next, sizeof next, MSG_WAITALL), 4);
  EXPECT_EQ((std::string_view{next, 4}), "next");
  EXPECT_EQ(hello.substr(8), "client:pi4");
}

TEST(Dial, NamesTheKeyThatIsNotThere) {
  std::string peer;
  const auto error = dial_one_that_says(number(kNoMatch), peer).error();
  EXPECT_EQ(error.code, Code::not_found);
  EXPECT_EQ(error.text,
            "handshake with " + peer + " failed: " + peer + " has no server with key 'pi4'");
}

TEST(Dial, TellsATakenKeyFromAStranger) {
  std::string peer;
  EXPECT_EQ(dial_one_that_says(number(kDuplicateKey), peer).error().code, Code::busy);
  const auto stranger = dial_one_that_says(number(0x50545448), peer).error();
  EXPECT_EQ(stranger.code, Code::malformed);
  EXPECT_NE(stranger.text.find("is not an RPC server (it answered 0x50545448)"), std::string::npos);
}

TEST(Dial, RefusesAServerKeyOfImpossibleLength) {
  for (const std::int32_t size : {-1, 1 << 30}) {
    auto answer = number(kMagic);
    ByteWriter{answer}.le(size);
    std::string peer;
    EXPECT_EQ(dial_one_that_says(answer, peer).error().code, Code::malformed);
  }
}

TEST(Dial, SaysThatThePeerClosed) {
  std::string peer;
  const auto error = dial_one_that_says({}, peer).error();
  EXPECT_EQ(error.code, Code::io);
  EXPECT_EQ(error.text, "handshake with " + peer + " failed: the peer closed the connection");
}

TEST(Dial, EndsAtItsLimitWhenThePeerIsSilent) {
  OneConnection server{[](int socket) {
    char byte;
    while (::recv(socket, &byte, 1, 0) > 0) {  // until the client gives up
    }
  }};
  const auto fd = dial_session("127.0.0.1", server.port(), "pi4", Timeout{30});
  EXPECT_EQ(fd.error().code, Code::timeout);
}

TEST(Dial, NamesAHostThatIsUnknown) {
  const auto fd = connect_tcp("no such host", 1, Timeout{1000});
  EXPECT_EQ(fd.error().code, Code::not_found);
  EXPECT_TRUE(fd.error().text.starts_with("cannot connect to no such host:1: cannot resolve"));
}

TEST(AddressText, PutsBracketsAroundIpv6) {
  EXPECT_EQ(address_text("::1", 9090), "[::1]:9090");
  EXPECT_EQ(address_text("lab", 9090), "lab:9090");
}

}  // namespace
}  // namespace outpost::rpc
