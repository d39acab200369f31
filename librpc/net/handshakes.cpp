#include "net/handshakes.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace outpost::rpc {
namespace {

/// What else it might be, for the person who reads the log.
std::string_view guess(std::string_view received) {
  constexpr std::string_view kHttp[] = {"GET ", "POST", "HEAD", "PUT ", "OPTI", "HTTP", "CONN"};
  if (std::ranges::any_of(kHttp, [&](auto word) { return received.starts_with(word); }))
    return ": this looks like HTTP";
  if (received.starts_with("\x16\x03")) return ": this looks like TLS";
  if (received.starts_with("SSH-")) return ": this looks like SSH";
  if (received.starts_with(std::string_view{"\x71\xf2\x02\x00", 4}))
    return ": this is the tracker's magic, the client takes this server for a tracker";
  return "";
}

}  // namespace

Handshakes::Handshakes(EventLoop& loop, Log& log, HandshakeLimits limits, Arrived arrived)
    : loop_{loop}, log_{log}, limits_{limits}, arrived_{std::move(arrived)} {}

Handshakes::~Handshakes() {
  stop();
}

void Handshakes::stop() {
  while (!pending_.empty()) drop(pending_.begin());
}

void Handshakes::add(unique_fd socket, std::string peer) {
  if (pending_.size() >= limits_.count_max) refuse(pending_.begin(), "too many handshakes at once");
  const auto it = pending_.insert(pending_.end(), Pending{});
  it->socket = std::move(socket);
  it->peer = std::move(peer);
  (void)parse_hello({}, limits_.key_bytes_max, it->need);
  if (read(it) == Progress::done) return;  // the hello is often here already
  it->watch = loop_.watch(it->socket.get(), EPOLLIN, [this, it](std::uint32_t) { read(it); });
  if (it->watch == WatchId::none) return refuse(it, "no memory to watch the socket");
  it->deadline = loop_.after(limits_.deadline, [this, it] {
    refuse(it, fmt::format("no whole handshake within {} ms", limits_.deadline.count()));
  });
}

Handshakes::Progress Handshakes::read(Iterator it) {
  for (;;) {
    auto& received = it->received;
    const auto had = received.size();
    received.resize(it->need);
    const auto size = ::recv(it->socket.get(), received.data() + had, it->need - had, MSG_DONTWAIT);
    received.resize(had + static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return Progress::more;
    if (size <= 0) {
      refuse(it, size == 0 ? "closed in the handshake" : std::strerror(errno));
      return Progress::done;
    }
    const auto hello = parse_hello(received, limits_.key_bytes_max, it->need);
    if (hello.has_error()) {
      refuse(it, hello.error().text);
      return Progress::done;
    }
    if (!*hello) continue;
    auto key = parse_key((*hello)->key);
    if (key.has_error()) {
      refuse(it, key.error().text);
      return Progress::done;
    }
    Arrival arrival{std::move(it->socket), std::move(it->peer), *std::move(key)};
    loop_.unwatch(it->watch);
    loop_.cancel(it->deadline);
    pending_.erase(it);
    arrived_(std::move(arrival));
    return Progress::done;
  }
}

void Handshakes::refuse(Iterator it, std::string_view why) {
  const auto received = as_text(it->received);
  if (received.empty())
    log_.debug("handshake refused peer={} reason='{}'", it->peer, why);  // a port probe
  else
    log_.warn("handshake refused peer={} reason='{}{}' bytes={}", it->peer, why, guess(received),
              quoted(received.substr(0, 32)));
  drop(it);
}

void Handshakes::drop(Iterator it) {
  loop_.unwatch(it->watch);
  loop_.cancel(it->deadline);
  pending_.erase(it);
}

}  // namespace outpost::rpc
