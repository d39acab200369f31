#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "support/session_pair.h"
#include "wire/handshake.h"

namespace outpost {
namespace {
using Packed = rpc::PackedWriter;
using rpc::FrameCode;

/// An inner server: takes one connection, answers the handshake, then serves it like any session.
class InnerServer {
 public:
  InnerServer() {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_.get(), raw, sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_.get(), raw, &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread{[this] { serve(); }};
  }
  ~InnerServer() { thread_.join(); }
  int port() const { return port_; }
  /// Ends the inner session as a dying server does.
  void die() { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  void serve() {
    socket_.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::byte hello[64];
    std::size_t have = 0;
    for (std::size_t need = 8; have < need;) {
      const auto n = ::recv(socket_.get(), hello + have, need - have, 0);
      if (n <= 0) return;
      have += static_cast<std::size_t>(n);
      (void)rpc::parse_hello(Bytes{hello, have}, 1024, need);
    }
    const auto answer = rpc::encode_hello(rpc::kMagic, "server:inner");
    (void)::send(socket_.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    host::SessionOptions options;
    options.work_dir = "/tmp";
    SessionPage page;
    host::serve_session(socket_.get(), options, page);
  }
  unique_fd listener_, socket_;
  int port_ = 0;
  std::thread thread_;
};

test::SessionPair::Answer init_hop(test::SessionPair& s, int port) {
  s.request(FrameCode::init_server, [&](ByteWriter& out) {
    out.sized(as_bytes(rpc::kProtocolVersion));
    Packed packed{out};
    packed.count(5);
    packed.boxed_string("rpc.Connect");
    packed.boxed_string("127.0.0.1");
    packed.integer(port);
    packed.boxed_string("inner");
    packed.boolean(false);
  });
  return s.answer();
}

TEST(Hop, HandsRequestsOnAndReportsTheInnerServersDeath) {
  InnerServer inner;
  test::SessionPair outer;
  ASSERT_EQ(init_hop(outer, inner.port()).code, FrameCode::return_value);
  const std::vector<std::int64_t> shape{1 << 18};
  const auto handle = outer.alloc(shape);
  ASSERT_NE(handle, 0U);
  const std::vector<float> numbers(1 << 18, 2.5F);
  const auto view = test::SessionPair::view(handle, shape);
  EXPECT_EQ(outer.copy_to(view, std::as_bytes(std::span{numbers})).code, FrameCode::return_value);
  const auto back = outer.copy_from(view, 1 << 20);
  ASSERT_EQ(back.code, FrameCode::copy_ack);
  EXPECT_EQ(std::memcmp(back.body.data(), numbers.data(), back.body.size()), 0);
  EXPECT_EQ(outer.call(1234, 0, [](Packed&) {}).code, FrameCode::exception);
  inner.die();
  outer.request(FrameCode::get_global_func, [](ByteWriter& out) {
    Packed packed{out};
    packed.count(1);
    packed.raw_string("x");
  });
  EXPECT_NE(outer.answer().text().find("inner server"), std::string::npos);
  EXPECT_EQ(outer.leave(), SessionEnd::io);
}

TEST(Hop, NamesTheAddressThatCannotBeReachedAndLetsTheClientTryAgain) {
  test::SessionPair s;
  const auto a = init_hop(s, 1);
  EXPECT_EQ(a.code, FrameCode::exception);
  EXPECT_NE(a.text().find("127.0.0.1:1"), std::string::npos) << a.text();
  s.init();
}

TEST(RemoteSession, CallsFunctionsOfTheOtherServer) {
  InnerServer inner;
  test::SessionPair s;
  s.init();
  const auto module = s.call(s.global("rpc.Connect"), 4, [&](Packed& p) {
    p.raw_string("127.0.0.1");
    p.integer(inner.port());
    p.raw_string("inner");
    p.boolean(false);
  });
  ASSERT_EQ(module.code, FrameCode::return_value) << module.text();
  EXPECT_EQ(module.values[0].integer, rpc::kModule);
  const auto lookup = s.global("tvm.rpc.server.ModuleGetFunction");
  const auto get = [&](std::string_view name) {
    return s.call(lookup, 3, [&](Packed& p) {
      p.module(module.values[1].handle());
      p.raw_string(name);
      p.boolean(true);
    });
  };
  const auto make = get("vm.builtin.make_tuple").values[1].handle();
  const auto item = get("vm.builtin.tuple_getitem").values[1].handle();
  const auto tuple = s.call(make, 2, [](Packed& p) {
    p.integer(5);
    p.raw_string("a longer text");
  });
  ASSERT_EQ(tuple.code, FrameCode::return_value) << tuple.text();
  const auto second = [&](std::int64_t index) {
    return s.call(item, 2, [&](Packed& p) {
      p.object(tuple.values[1].handle());
      p.integer(index);
    });
  };
  EXPECT_EQ(as_text(second(1).values[1].data), "a longer text");
  EXPECT_EQ(second(9).code, FrameCode::exception);
  EXPECT_EQ(get("no.such.function").values[1].kind, rpc::Kind::none);
  s.leave();
}

TEST(Hop, RefusesWrongArgumentsAndTooManyHops) {
  test::SessionPair s;
  const auto attempt = [&](auto write, std::int32_t count) {
    s.request(FrameCode::init_server, [&](ByteWriter& out) {
      out.sized(as_bytes(rpc::kProtocolVersion));
      Packed packed{out};
      packed.count(count);
      write(packed);
    });
    return s.answer().text();
  };
  EXPECT_NE(attempt([](Packed& p) { p.boxed_string("rpc.Connect"); }, 1).find("host"),
            std::string::npos);
  const auto many = attempt(
      [](Packed& p) {
        for (int i = 0; i < 20; ++i) p.boxed_string("rpc.Connect");
      },
      20);
  EXPECT_NE(many.find("hops_max 8"), std::string::npos) << many;
}

}  // namespace
}  // namespace outpost
