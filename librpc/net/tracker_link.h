#pragma once
#include <memory>
#include <string>

#include "base/host_port.h"
#include "base/log.h"
#include "core/registration.h"
#include "net/event_loop.h"

namespace outpost::rpc {

/// Keeps a server known to its tracker: performs what Registration decides, on the loop's thread.
class TrackerLink {
 public:
  /// @param free_slots  sessions that could start now
  TrackerLink(EventLoop& loop, Log& log, HostPort tracker, RegistrationOptions options,
              std::size_t free_slots);
  ~TrackerLink();
  TrackerLink(const TrackerLink&) = delete;
  TrackerLink& operator=(const TrackerLink&) = delete;

  void start();
  void set_free_slots(std::size_t count);
  /// True when the match key is offered; it is used up then.
  bool take(std::string_view match_key);
  /// Withdraws what is offered.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outpost::rpc
