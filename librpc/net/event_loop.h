#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace outpost::rpc {

using Clock = std::chrono::steady_clock;

enum class WatchId : std::uint64_t { none = 0 };
struct TimerId {
  Clock::time_point due{};
  std::uint64_t number = 0;  ///< 0: no timer
};

/// The daemon's one thread of events: an io_context, plus readiness of plain descriptors and timers
/// that cost no allocation in Asio. Plain, because a client's socket is shared with its worker and
/// must stay blocking, which Asio's own sockets do not leave it.
/// Callbacks may add and remove watches and timers, their own too.
class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  boost::asio::io_context& context();
  /// Until stop(), or until nothing is left to wait for.
  void run();
  void stop();

  /// Calls back with the epoll events seen, level-triggered. The descriptor stays the caller's and
  /// must stay open until unwatch(). Error of the system (no memory, no descriptors): `none`.
  WatchId watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready);
  void change(WatchId id, std::uint32_t events);
  /// Nothing happens for `none`. Sets the caller's id to `none`.
  void unwatch(WatchId& id);

  TimerId after(Clock::duration delay, std::function<void()> due);
  /// Nothing happens when it has fired or is none. Sets the caller's id to none.
  void cancel(TimerId& id);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outpost::rpc
