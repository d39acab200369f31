#include "server/session_watch.h"

#include <algorithm>

namespace outpost::server {
namespace {

SessionWatch::Time expiry(SessionWatch::Time started, std::optional<double> seconds) {
  constexpr double kForever = 1e9;  // 30 years; beyond it the sum would leave the clock's range
  if (!seconds || *seconds > kForever) return SessionWatch::Time::max();
  const std::chrono::duration<double> span{std::max(*seconds, 0.0)};
  return started + std::chrono::duration_cast<SessionWatch::Time::duration>(span);
}

}  // namespace

SessionWatch::SessionWatch(WatchLimits limits, Time started, std::optional<double> timeout_seconds)
    : limits_{limits}, expires_{expiry(started, timeout_seconds)}, due_{expires_} {}

SessionWatch::Do SessionWatch::kill(bool may_write) {
  phase_ = Phase::killed;
  due_ = Time::max();
  may_write_ = may_write;
  return Do::kill;
}

SessionWatch::Do SessionWatch::end(Time now, EndCause cause) {
  phase_ = Phase::taking;
  cause_ = cause;
  give_up_ = now + limits_.turn_grace;
  due_ = now + limits_.turn_retry;
  return Do::take_turn;
}

SessionWatch::Do SessionWatch::turn(Time now, bool taken) {
  if (phase_ != Phase::taking) return Do::nothing;
  if (taken) return kill(true);
  if (now >= give_up_) return kill(false);
  due_ = now + limits_.turn_retry;
  return Do::nothing;
}

SessionWatch::Do SessionWatch::tick(Time now) {
  if (now < due_) return Do::nothing;
  switch (phase_) {
    case Phase::running:
      return end(now, EndCause::timed_out);
    case Phase::leaving:
      if (now >= expires_) return end(now, EndCause::timed_out);
      return Do::look;
    case Phase::taking:
      return Do::take_turn;
    case Phase::killed:
      return Do::nothing;
  }
  return Do::nothing;
}

SessionWatch::Do SessionWatch::client_gone(Time now) {
  if (phase_ != Phase::running) return Do::nothing;
  phase_ = Phase::leaving;
  due_ = std::min(expires_, now + limits_.gone_grace);
  return Do::nothing;
}

SessionWatch::Do SessionWatch::unread(Time now, std::uint64_t bytes) {
  if (phase_ != Phase::leaving) return Do::nothing;
  if (bytes == 0 || bytes == unread_) {
    cause_ = EndCause::client_gone;
    return kill(false);
  }
  unread_ = bytes;
  due_ = std::min(expires_, now + limits_.gone_grace);
  return Do::nothing;
}

SessionWatch::Do SessionWatch::stop(Time now) {
  if (phase_ != Phase::running && phase_ != Phase::leaving) return Do::nothing;
  return end(now, EndCause::stopping);
}

}  // namespace outpost::server
