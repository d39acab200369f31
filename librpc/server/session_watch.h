#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

namespace outpost::server {

/// Why the daemon itself ends a session.
enum class EndCause : std::uint8_t {
  none,         ///< it does not
  timed_out,    ///< the client's session_timeout has passed
  client_gone,  ///< the client closed its side and the worker did not notice
  stopping,     ///< the server stops and the grace time has passed
};

struct WatchLimits {
  /// How long an answer that is being sent may take before the session is cut inside the frame.
  std::chrono::milliseconds turn_grace{500};
  std::chrono::milliseconds turn_retry{2};
  /// How long a worker may take to read what a client sent before it closed.
  std::chrono::milliseconds gone_grace{200};
};

/// Decides when and how the daemon ends a running session; knows no clock, socket or process. The
/// worker's part is not needed: it may hang, ignore signals or lie.
class SessionWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// What the owner does next.
  enum class Do : std::uint8_t {
    nothing,
    take_turn,  ///< try to take the right to write, and tell turn()
    look,       ///< count the bytes the worker has not read, and tell unread()
    kill,       ///< kill the worker; cause() and may_write() are final now
  };

  /// @param timeout_seconds  of the session; zero and less expire at once, empty: never
  SessionWatch(WatchLimits limits, Time started, std::optional<double> timeout_seconds);

  /// When tick() is due; Time::max() for never.
  Time deadline() const { return due_; }
  Do tick(Time now);
  /// @param taken  whether the answer to take_turn was yes
  Do turn(Time now, bool taken);
  Do client_gone(Time now);
  /// @param bytes  received by the kernel, not yet read by the worker
  Do unread(Time now, std::uint64_t bytes);
  Do stop(Time now);

  EndCause cause() const { return cause_; }
  /// Whether a last frame may be written: no answer of the worker was cut.
  bool may_write() const { return may_write_; }

 private:
  enum class Phase : std::uint8_t { running, taking, leaving, killed };

  Do end(Time now, EndCause cause);
  Do kill(bool may_write);

  WatchLimits limits_;
  Phase phase_ = Phase::running;
  Time expires_;  // the session's own limit
  Time due_;
  Time give_up_{};            // of taking
  std::uint64_t unread_ = 0;  // at the last look
  EndCause cause_ = EndCause::none;
  bool may_write_ = false;
};

}  // namespace outpost::server
