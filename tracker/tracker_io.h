#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "net/event_loop.h"
#include "net/listener.h"
#include "tracker_core.h"

namespace outpost::tracker {

struct IoLimits {
  std::size_t connections_max = 65536;       ///< one more waits, silent, until another one ends
  std::size_t unsent_bytes_max = 16U << 20;  ///< answers that one peer does not read
  std::chrono::milliseconds slow_reader{30'000};  ///< without progress while answers wait for it
};

/// Drives a TrackerCore from sockets, on the loop's thread. A bad peer costs its own connection.
class TrackerIo {
 public:
  /// @param stopped  called once, when the owner's STOP came in and everything is closed
  TrackerIo(rpc::EventLoop& loop, Log& log, TrackerCore& core, rpc::Listening listening,
            const IoLimits& limits, std::function<void()> stopped);
  ~TrackerIo();
  TrackerIo(const TrackerIo&) = delete;
  TrackerIo& operator=(const TrackerIo&) = delete;

  /// Closes the listener and every connection.
  void stop();
  std::size_t connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outpost::tracker
