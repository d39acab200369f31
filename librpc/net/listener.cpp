#include "net/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/host_port.h"

namespace outpost::rpc {
namespace {

constexpr int kAcceptsPerEvent = 32;  // so that a flood of connections cannot starve the sessions
constexpr std::chrono::milliseconds kPause{200};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &list);
  if (failed != 0)
    return Error{Code::not_found,
                 fmt::format("cannot listen on host '{}': {}", host, ::gai_strerror(failed))};
  return Addresses{list};
}

void set_port(sockaddr& address, std::uint16_t port) {
  if (address.sa_family == AF_INET)
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

/// Options that every accepted socket inherits from its listener on Linux: no call per session.
void set_inherited(int fd, const ListenOptions& options) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.keepalive_idle.count() > 0) {
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(options.keepalive_idle.count()));
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL,
               static_cast<int>(options.keepalive_interval.count()));
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, options.keepalive_probes);
  }
  if (options.send_timeout.count() > 0)
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
               static_cast<int>(std::chrono::milliseconds{options.send_timeout}.count()));
}

/// A listening socket, or the errno of the step that failed.
struct Attempt {
  unique_fd socket;
  int error = 0;
};
Attempt try_listen(const addrinfo& entry, std::uint16_t port, const ListenOptions& options,
                   bool only_v6) {
  unique_fd fd{::socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return {{}, errno};
  if (options.reuse_addr) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (entry.ai_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, only_v6);
  set_inherited(fd.get(), options);
  sockaddr_storage address{};
  std::memcpy(&address, entry.ai_addr, entry.ai_addrlen);
  set_port(reinterpret_cast<sockaddr&>(address), port);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), entry.ai_addrlen) != 0 ||
      ::listen(fd.get(), options.backlog) != 0)
    return {{}, errno};
  return {std::move(fd), 0};
}

/// All addresses on one port; with port 0 the first address chooses it.
struct PortAttempt {
  Listening listening;
  int error = 0;
};
PortAttempt try_port(const addrinfo* list, std::uint16_t port, const ListenOptions& options) {
  PortAttempt out;
  out.listening.port = port;
  const bool only_v6 = list->ai_next != nullptr;
  for (const auto* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    auto attempt = try_listen(*entry, out.listening.port, options, only_v6);
    // a name may stand for a family that this machine has not: the other one is enough
    if (attempt.error == EAFNOSUPPORT || (attempt.error == EADDRNOTAVAIL && only_v6)) {
      out.error = attempt.error;
      continue;
    }
    if (attempt.error != 0) return {{}, attempt.error};
    if (out.listening.port == 0) out.listening.port = bound_port(attempt.socket.get());
    out.listening.sockets.push_back(std::move(attempt.socket));
  }
  if (!out.listening.sockets.empty()) out.error = 0;
  return out;
}

}  // namespace

Result<Listening> listen_on(const ListenOptions& options) {
  OUTPOST_TRY(const auto addresses, resolve(options.host));
  const auto last = std::max(options.port, options.port_end);
  int error = 0;
  for (std::uint32_t port = options.port; port <= last; ++port) {
    auto attempt = try_port(addresses.get(), static_cast<std::uint16_t>(port), options);
    if (attempt.error == 0) return std::move(attempt.listening);
    error = attempt.error;
    if (error != EADDRINUSE && error != EACCES) break;
    if (options.port == 0) break;
  }
  const auto range = last == options.port ? fmt::format("port {}", options.port)
                                          : fmt::format("ports {} to {}", options.port, last);
  return Error{
      error == EADDRINUSE ? Code::busy : Code::io,
      fmt::format("cannot listen on host '{}', {}: {}", options.host, range, std::strerror(error))};
}

std::string peer_name(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return format_host_port(text, ntohs(v4.sin_port));
  }
  if (address.sa_family != AF_INET6) return text;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
    ::inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return format_host_port(text, ntohs(v6.sin6_port));
}

Acceptor::Acceptor(EventLoop& loop, Log& log, Listening listening, Accepted accepted)
    : loop_{loop},
      log_{log},
      listening_{std::move(listening)},
      accepted_{std::move(accepted)},
      watches_(listening_.sockets.size(), WatchId::none),
      pauses_(listening_.sockets.size()) {
  for (std::size_t i = 0; i < listening_.sockets.size(); ++i) start(i);
}

Acceptor::~Acceptor() {
  stop();
}

void Acceptor::stop() {
  for (auto& watch : watches_) loop_.unwatch(watch);
  for (auto& pause : pauses_) loop_.cancel(pause);
  listening_.sockets.clear();
}

void Acceptor::start(std::size_t index) {
  watches_[index] = loop_.watch(listening_.sockets[index].get(), EPOLLIN,
                                [this, index](std::uint32_t) { accept_from(index); });
}

void Acceptor::accept_from(std::size_t index) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    if (index >= listening_.sockets.size()) return;  // stopped by the one before
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    unique_fd socket{::accept4(listening_.sockets[index].get(),
                               reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC)};
    if (socket) {
      accepted_(std::move(socket), peer_name(reinterpret_cast<const sockaddr&>(address)));
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return pause(index, errno);
    // anything else concerns the one connection, which is gone already (accept(2))
  }
}

void Acceptor::pause(std::size_t index, int error) {
  log_.error("cannot accept reason='{}' retry_ms={}", std::strerror(error), kPause.count());
  loop_.unwatch(watches_[index]);
  pauses_[index] = loop_.after(kPause, [this, index] { start(index); });
}

}  // namespace outpost::rpc
