#include "tracker_io.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/host_port.h"
#include "tracker_log.h"

namespace outpost::tracker {
namespace {

using rpc::Clock;

constexpr std::size_t kReadBytes = 64U << 10;           ///< one look at one connection
constexpr std::size_t kPauseReadingBytes = 256U << 10;  ///< unsent answers, before more is asked
constexpr std::size_t kIdleBytes = 4096;                ///< what an empty output may keep
constexpr std::chrono::seconds kLinger{1};              ///< for a peer to read why it was closed
constexpr std::size_t kLingerBytes = 16U << 20;

/// Edge-triggered: a level-triggered socket that was served keeps its place in epoll's list and
/// would overtake one that spoke before it, but first come is first served here.
constexpr std::uint32_t kReads = EPOLLIN | EPOLLRDHUP;

struct Connection {
  unique_fd fd;
  rpc::WatchId watch = rpc::WatchId::none;
  std::uint32_t watched_for = EPOLLET | kReads;
  std::string out;
  std::size_t sent = 0;       ///< of `out`
  bool dirty = false;         ///< has answers of this event
  bool answered = false;      ///< an answer was sent since the last read
  bool known = true;          ///< to the core; false: only what is due is still sent
  bool write_closed = false;  ///< our side; the peer's bytes are thrown away
  std::size_t discarded = 0;
  bool progress = false;  ///< something was sent since the alarm was set
  rpc::TimerId alarm;

  std::size_t unsent() const { return out.size() - sent; }
};

}  // namespace

struct TrackerIo::Impl {
  Impl(rpc::EventLoop& event_loop, Log& where, TrackerCore& tracker, const IoLimits& io_limits,
       std::function<void()> on_stop)
      : loop{event_loop},
        core{tracker},
        limits{io_limits},
        log{where},
        stopped{std::move(on_stop)} {}

  static Time now() { return Clock::now().time_since_epoch(); }

  void accept(unique_fd socket, std::string peer) {
    if (connections.size() >= limits.connections_max)
      parked.emplace_back(std::move(socket), std::move(peer));
    else
      adopt(std::move(socket), std::move(peer));
  }

  void adopt(unique_fd socket, std::string peer) {
    const ConnId id{++last_id};
    auto made = std::make_unique<Connection>();
    made->watch =
        loop.watch(socket.get(), EPOLLET | kReads, [this, id](std::uint32_t e) { ready(id, e); });
    if (made->watch == rpc::WatchId::none) return;  // out of kernel memory: the peer is closed
    made->fd = std::move(socket);
    const auto address = parse_host_port(peer, 0);
    const auto time = now();
    core.connected(id, address ? address->host : peer, time);
    log.opened(id, std::move(peer), time);
    connections.emplace(id, std::move(made));
    arm();
  }

  void ready(ConnId id, std::uint32_t events) {
    auto* c = find(id);
    if (c && (events & EPOLLOUT)) flush(id, *c);
    c = find(id);
    if (!c) return settle();
    if (!c->known) {
      if (c->write_closed || (events & (EPOLLHUP | EPOLLERR))) discard(id, *c);
    } else if (core.has_more(id)) {
      if (c->unsent() <= kPauseReadingBytes) go_on(id);
    } else if (events & (kReads | EPOLLHUP | EPOLLERR)) {
      read(id, *c, events);
    }
    settle();
  }

  void read(ConnId id, Connection& c, std::uint32_t events) {
    const auto got = ::recv(c.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got < 0) return drop(id, std::strerror(errno));
    if (got == 0) return finish(id, c, "closed by the peer");
    const bool rest =
        static_cast<std::size_t>(got) == buffer.size() || (events & ~EPOLLIN & ~EPOLLOUT);
    c.answered = false;
    outcome.clear();
    core.received(id, {buffer.data(), static_cast<std::size_t>(got)}, now(), outcome);
    // A client that writes length and text apart holds the text back until the length is
    // acknowledged; a delayed acknowledgement would cost it 40 ms.
    const bool waits = core.mid_message(id);
    apply();
    auto* still = find(id);
    if (still && (waits || !still->answered)) acknowledge(*still);
    if (still && rest) look_again(*still);
  }

  void go_on(ConnId id) {
    outcome.clear();
    core.resume(id, now(), outcome);
    apply();
    auto* c = find(id);
    if (!c) return;
    watch_for(id, *c);
    if (core.has_more(id)) look_again(*c);
  }

  /// Edges tell of news only; what is left over comes again, behind the others.
  void look_again(const Connection& c) { loop.change(c.watch, c.watched_for); }

  static void acknowledge(const Connection& c) {
    const int on = 1;
    ::setsockopt(c.fd.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
  }

  /// Performs the outcome of one input.
  void apply() {
    const auto time = now();
    dirty.clear();
    for (auto& send : outcome.sends) {
      auto* c = find(send.to);
      if (!c) continue;
      c->out.empty() ? void(c->out = std::move(send.bytes)) : void(c->out += send.bytes);
      c->answered = true;
      if (!std::exchange(c->dirty, true)) dirty.push_back(send.to);
    }
    for (const auto& fact : outcome.facts) log.fact(fact, core.broker(), time);
    for (const auto id : dirty) {
      auto* c = find(id);
      if (!c) continue;
      c->dirty = false;
      flush(id, *c);
    }
    for (const auto& close : outcome.closes) {
      log.refused(close.conn, close.reason, time);
      if (auto* c = find(close.conn)) retire(close.conn, *c);
    }
    if (outcome.stop) stop_all();
  }

  void flush(ConnId id, Connection& c) {
    if (c.unsent() != 0) {
      const auto put =
          ::send(c.fd.get(), c.out.data() + c.sent, c.unsent(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN) return drop(id, std::strerror(errno));
      if (put > 0) c.sent += static_cast<std::size_t>(put);
      if (put > 0) c.progress = true;
    }
    if (c.unsent() > limits.unsent_bytes_max) return drop(id, "does not read its answers");
    if (c.unsent() == 0) {
      c.sent = 0;
      c.out.capacity() > kIdleBytes ? std::string{}.swap(c.out) : c.out.clear();
      if (!c.known && !c.write_closed) return close_writing(id, c);
    } else if (c.sent > c.unsent()) {
      c.out.erase(0, std::exchange(c.sent, 0));
    }
    watch_for(id, c);
  }

  /// Reads only while the peer takes its answers, and minds that it does.
  void watch_for(ConnId id, Connection& c) {
    const bool more = c.known && core.has_more(id);
    const bool may_read = c.write_closed || (c.known && !more && c.unsent() <= kPauseReadingBytes);
    const bool writes = more || c.unsent() != 0;
    const std::uint32_t events = EPOLLET | (may_read ? kReads : 0U) | (writes ? EPOLLOUT : 0U);
    if (events != std::exchange(c.watched_for, events)) loop.change(c.watch, events);
    if (!writes && !c.write_closed) loop.cancel(c.alarm);
    if (!writes || c.alarm.number != 0) return;
    c.progress = false;
    c.alarm = loop.after(limits.slow_reader, [this, id] { check_progress(id); });
  }

  void check_progress(ConnId id) {
    auto* c = find(id);
    if (!c) return;
    c->alarm = {};
    c->progress ? watch_for(id, *c) : drop(id, "does not read its answers");
    settle();
  }

  /// The peer has closed its side: what it owned is withdrawn now, what is due to it is sent.
  void finish(ConnId id, Connection& c, std::string_view why) {
    const auto time = now();
    outcome.clear();
    core.gone(id, time, outcome);
    log.ended(id, why, time);
    retire(id, c);
    apply();
  }

  /// Known to the core no more: the rest is sent, then our side is closed.
  void retire(ConnId id, Connection& c) {
    c.known = false;
    flush(id, c);
  }

  /// Closing a socket with unread bytes would be a reset, which can overtake the last answers.
  void close_writing(ConnId id, Connection& c) {
    c.write_closed = true;
    ::shutdown(c.fd.get(), SHUT_WR);
    loop.cancel(c.alarm);
    c.alarm = loop.after(kLinger, [this, id] { drop(id, "closed"); });
    watch_for(id, c);
    discard(id, c);
  }

  void discard(ConnId id, Connection& c) {
    ssize_t got = 0;
    while ((got = ::recv(c.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0) {
      c.discarded += static_cast<std::size_t>(got);
      if (c.discarded > kLingerBytes) break;
    }
    if (got >= 0 || errno != EAGAIN) drop(id, "closed");
  }

  void drop(ConnId id, std::string_view why) {
    const auto found = connections.find(id);
    if (found == connections.end()) return;
    auto& c = *found->second;
    if (c.known) lost.emplace_back(id, why);
    loop.unwatch(c.watch);
    loop.cancel(c.alarm);
    connections.erase(found);
    if (!parked.empty() && !ending) {
      auto [socket, peer] = std::move(parked.front());
      parked.pop_front();
      adopt(std::move(socket), std::move(peer));
    }
  }

  /// Ends every event: connections that were lost in its course are told to the core, whose answers
  /// may lose others.
  void settle() {
    while (!lost.empty()) {
      const auto [id, why] = std::move(lost.front());
      lost.pop_front();
      const auto time = now();
      outcome.clear();
      core.gone(id, time, outcome);
      log.ended(id, why, time);
      apply();
    }
    arm();
  }

  /// Keeps the one timer at or before the core's next deadline.
  void arm() {
    const auto next = core.next_deadline();
    if (!next || (timer.number != 0 && timer_due <= *next)) return;
    loop.cancel(timer);
    timer_due = *next;
    timer = loop.after(timer_due - now(), [this] {
      timer = {};
      outcome.clear();
      core.tick(now(), outcome);
      apply();
      settle();
    });
  }

  void stop_all() {
    close_all();
    if (stopped) std::exchange(stopped, nullptr)();
  }

  void close_all() {
    ending = true;
    acceptor.reset();
    parked.clear();
    loop.cancel(timer);
    while (!connections.empty()) drop(connections.begin()->first, "the tracker ends");
    lost.clear();
  }

  Connection* find(ConnId id) {
    const auto found = connections.find(id);
    return found == connections.end() ? nullptr : found->second.get();
  }

  rpc::EventLoop& loop;
  TrackerCore& core;
  IoLimits limits;
  TrackerLog log;
  std::function<void()> stopped;
  std::unique_ptr<rpc::Acceptor> acceptor;
  std::unordered_map<ConnId, std::unique_ptr<Connection>> connections;
  std::deque<std::pair<unique_fd, std::string>> parked;
  std::uint64_t last_id = 0;
  bool ending = false;
  rpc::TimerId timer;
  Time timer_due{};
  Outcome outcome;                                  // used again for each input
  std::vector<ConnId> dirty;                        // with answers of this input
  std::deque<std::pair<ConnId, std::string>> lost;  // connections that the core has yet to hear of
  std::array<std::byte, kReadBytes> buffer;
};

TrackerIo::TrackerIo(rpc::EventLoop& loop, Log& log, TrackerCore& core, rpc::Listening listening,
                     const IoLimits& limits, std::function<void()> stopped)
    : impl_{std::make_unique<Impl>(loop, log, core, limits, std::move(stopped))} {
  auto* impl = impl_.get();
  impl->acceptor = std::make_unique<rpc::Acceptor>(
      loop, log, std::move(listening), [impl](unique_fd socket, std::string peer) {
        impl->accept(std::move(socket), std::move(peer));
      });
}

TrackerIo::~TrackerIo() {
  impl_->close_all();
}

void TrackerIo::stop() {
  impl_->close_all();
}

std::size_t TrackerIo::connections() const {
  return impl_->connections.size();
}

}  // namespace outpost::tracker
