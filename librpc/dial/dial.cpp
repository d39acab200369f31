#include "dial/dial.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>

#include "base/bytes.h"
#include "wire/handshake.h"

namespace outpost::rpc {
namespace {

constexpr std::int32_t kServerKeyBytesMax = 1 << 20;

std::string os_text(int error) {
  return std::generic_category().message(error);
}

/// Time left of one limit; without a limit it never ends.
class Remaining {
 public:
  explicit Remaining(Timeout limit) : limited_{limit.count() > 0}, end_{Clock::now() + limit} {}

  /// For poll(): -1 waits for ever, 0 means that the time is over.
  int poll_ms() const {
    if (!limited_) return -1;
    const auto left = std::chrono::ceil<Timeout>(end_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
  }
  /// For a step of its own: zero when there is no limit, else at least one millisecond.
  Timeout left() const { return Timeout{limited_ ? std::max(poll_ms(), 1) : 0}; }

 private:
  using Clock = std::chrono::steady_clock;
  bool limited_;
  Clock::time_point end_;
};

/// Waits until the socket is ready for `events`. False: the time is over.
Result<bool> wait_for(int socket, short events, const Remaining& time) {
  for (;;) {
    pollfd p{socket, events, 0};
    const int ready = ::poll(&p, 1, time.poll_ms());
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return Error{Code::io, fmt::format("cannot poll: {}", os_text(errno))};
  }
}

void set_option(int socket, int level, int option, int value) {
  // A socket without these still works, only slower or with a later end of a dead peer.
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 6);
}

/// One address: connects without blocking, so that the limit holds, then makes the socket block.
Result<unique_fd> connect_one(const addrinfo& to, const Remaining& time) {
  unique_fd fd{
      ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol)};
  if (!fd) return Error{Code::io, os_text(errno)};
  if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Error{Code::io, os_text(errno)};
    OUTPOST_TRY(const bool ready, wait_for(fd.get(), POLLOUT, time));
    if (!ready) return Error{Code::timeout, "no answer in time"};
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return Error{Code::io, os_text(error)};
  }
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0)
    return Error{Code::io, os_text(errno)};
  tune(fd.get());
  return fd;
}

Result<> send_all(int socket, Bytes data, const Remaining& time) {
  while (!data.empty()) {
    OUTPOST_TRY(const bool ready, wait_for(socket, POLLOUT, time));
    if (!ready) return Error{Code::timeout, "the peer took no bytes in time"};
    const auto sent = ::send(socket, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      data = data.subspan(static_cast<std::size_t>(sent));
    else if (sent < 0 && errno != EINTR && errno != EAGAIN)
      return Error{Code::io, os_text(errno)};
  }
  return {};
}

/// Fills `data` and takes not one byte more, since what follows belongs to the session.
Result<> receive_all(int socket, std::span<std::byte> data, const Remaining& time) {
  while (!data.empty()) {
    OUTPOST_TRY(const bool ready, wait_for(socket, POLLIN, time));
    if (!ready) return Error{Code::timeout, "no answer in time"};
    const auto got = ::recv(socket, data.data(), data.size(), MSG_DONTWAIT);
    if (got > 0)
      data = data.subspan(static_cast<std::size_t>(got));
    else if (got == 0)
      return Error{Code::io, "the peer closed the connection"};
    else if (errno != EINTR && errno != EAGAIN)
      return Error{Code::io, os_text(errno)};
  }
  return {};
}

Result<std::int32_t> receive_number(int socket, const Remaining& time) {
  std::array<std::byte, 4> raw;
  OUTPOST_CHECK(receive_all(socket, raw, time));
  return ByteReader{raw}.le<std::int32_t>("number");
}

Result<Greeting> exchange(int socket, std::string_view key, std::string_view peer,
                          const Remaining& time) {
  const auto hello = encode_hello(kMagic, fmt::format("client:{}", key));
  OUTPOST_CHECK(send_all(socket, hello, time));
  OUTPOST_TRY(const auto status, receive_number(socket, time));
  if (status == kNoMatch)
    return Error{Code::not_found, fmt::format("{} has no server with key '{}'", peer, key)};
  if (status == kDuplicateKey)
    return Error{Code::busy, fmt::format("{} already has a peer with key '{}'", peer, key)};
  if (status != kMagic)
    return Error{Code::malformed, fmt::format("{} is not an RPC server (it answered 0x{:x})", peer,
                                              static_cast<std::uint32_t>(status))};
  OUTPOST_TRY(const auto size, receive_number(socket, time));
  if (size < 0 || size > kServerKeyBytesMax)
    return Error{Code::malformed, fmt::format("server key of {} bytes", size)};
  Greeting out;
  out.server_key.resize(static_cast<std::size_t>(size));
  OUTPOST_CHECK(receive_all(socket, std::as_writable_bytes(std::span{out.server_key}), time));
  return out;
}

}  // namespace

std::string address_text(std::string_view host, std::uint16_t port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

Result<unique_fd> connect_tcp(const std::string& host, std::uint16_t port, Timeout timeout) {
  const Remaining time{timeout};
  const auto peer = address_text(host, port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed == EAI_NONAME || failed == EAI_ADDRFAMILY) {
    // A machine that has only its loopback counts as having no address of either family.
    hints.ai_flags = AI_NUMERICSERV;
    failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  }
  if (failed != 0)
    return Error{Code::not_found, fmt::format("cannot connect to {}: cannot resolve '{}': {}", peer,
                                              host, ::gai_strerror(failed))};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses{found, &::freeaddrinfo};
  Error last{Code::io, "no address"};
  for (const auto* at = addresses.get(); at != nullptr; at = at->ai_next) {
    auto fd = connect_one(*at, time);
    if (fd.has_value()) return fd;
    last = std::move(fd).error();
  }
  return wrap(std::move(last), fmt::format("cannot connect to {}", peer));
}

Result<Greeting> greet(int socket, std::string_view key, std::string_view peer, Timeout timeout) {
  auto greeting = exchange(socket, key, peer, Remaining{timeout});
  if (greeting.has_error())
    return wrap(std::move(greeting).error(), fmt::format("handshake with {} failed", peer));
  return greeting;
}

Result<unique_fd> dial_session(const std::string& host, std::uint16_t port, std::string_view key,
                               Timeout timeout) {
  const Remaining time{timeout};
  OUTPOST_TRY(unique_fd fd, connect_tcp(host, port, timeout));
  OUTPOST_CHECK(greet(fd.get(), key, address_text(host, port), time.left()));
  return fd;
}

}  // namespace outpost::rpc
