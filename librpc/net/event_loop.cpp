#include "net/event_loop.h"

#include <sys/epoll.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <unordered_map>

#include "base/assert.h"
#include "base/unique_fd.h"

namespace outpost::rpc {
namespace {

constexpr int kEventsMax = 64;  // of one look at the epoll instance

}  // namespace

struct EventLoop::Impl {
  struct Watched {
    int fd;
    std::function<void(std::uint32_t)> ready;
  };

  boost::asio::io_context io{1};
  // one epoll instance of ours below Asio's: each side keeps its own way of watching
  boost::asio::posix::stream_descriptor epoll{io, ::epoll_create1(EPOLL_CLOEXEC)};
  std::unordered_map<std::uint64_t, Watched> watched;
  std::uint64_t last_watch = 0;
  boost::asio::steady_timer timer{io};
  Clock::time_point armed = Clock::time_point::max();
  std::map<std::pair<Clock::time_point, std::uint64_t>, std::function<void()>> timers;
  std::uint64_t last_timer = 0;

  Impl() { wait_for_events(); }

  void wait_for_events() {
    epoll.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](boost::system::error_code ec) {
                       if (ec) return;
                       dispatch();
                       wait_for_events();
                     });
  }

  void dispatch() {
    epoll_event events[kEventsMax];
    const int count = ::epoll_wait(epoll.native_handle(), events, kEventsMax, 0);
    for (int i = 0; i < count; ++i) {
      const auto it = watched.find(events[i].data.u64);
      if (it == watched.end()) continue;  // removed by a callback just before
      // moved out for the call: a callback that removes its own watch must not destroy itself
      auto ready = std::move(it->second.ready);
      ready(events[i].events);
      const auto still = watched.find(events[i].data.u64);
      if (still != watched.end()) still->second.ready = std::move(ready);
    }
  }

  void arm() {
    if (timers.empty() || timers.begin()->first.first >= armed) return;
    armed = timers.begin()->first.first;
    timer.expires_at(armed);
    timer.async_wait([this](boost::system::error_code ec) {
      if (ec) return;
      armed = Clock::time_point::max();
      fire();
      arm();
    });
  }

  void fire() {
    const auto now = Clock::now();
    while (!timers.empty() && timers.begin()->first.first <= now) {
      auto due = std::move(timers.begin()->second);
      timers.erase(timers.begin());
      due();
    }
  }
};

EventLoop::EventLoop() : impl_{std::make_unique<Impl>()} {}
EventLoop::~EventLoop() = default;

boost::asio::io_context& EventLoop::context() {
  return impl_->io;
}
void EventLoop::run() {
  impl_->io.run();
}
void EventLoop::stop() {
  impl_->io.stop();
}

WatchId EventLoop::watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready) {
  const auto number = ++impl_->last_watch;
  epoll_event event{.events = events, .data = {.u64 = number}};
  if (::epoll_ctl(impl_->epoll.native_handle(), EPOLL_CTL_ADD, fd, &event) != 0)
    return WatchId::none;
  impl_->watched.emplace(number, Impl::Watched{fd, std::move(ready)});
  return WatchId{number};
}

void EventLoop::change(WatchId id, std::uint32_t events) {
  const auto number = static_cast<std::uint64_t>(id);
  const auto it = impl_->watched.find(number);
  OUTPOST_ASSERT(it != impl_->watched.end());
  epoll_event event{.events = events, .data = {.u64 = number}};
  OUTPOST_ASSERT(::epoll_ctl(impl_->epoll.native_handle(), EPOLL_CTL_MOD, it->second.fd, &event) ==
                 0);
}

void EventLoop::unwatch(WatchId& id) {
  const auto it = impl_->watched.find(static_cast<std::uint64_t>(std::exchange(id, WatchId::none)));
  if (it == impl_->watched.end()) return;
  ::epoll_ctl(impl_->epoll.native_handle(), EPOLL_CTL_DEL, it->second.fd, nullptr);
  impl_->watched.erase(it);
}

TimerId EventLoop::after(Clock::duration delay, std::function<void()> due) {
  // one that lies beyond the clock's end never fires
  const auto now = Clock::now();
  const auto far = Clock::time_point::max() - now;
  const TimerId id{delay < far ? now + delay : Clock::time_point::max(), ++impl_->last_timer};
  impl_->timers.emplace(std::pair{id.due, id.number}, std::move(due));
  impl_->arm();
  return id;
}

void EventLoop::cancel(TimerId& id) {
  if (id.number != 0) impl_->timers.erase({id.due, id.number});
  id = {};
}

}  // namespace outpost::rpc
