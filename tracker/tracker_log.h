#pragma once
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/log.h"
#include "tracker_core.h"

namespace outpost::tracker {

/// Turns what happens to connections into log lines, and keeps each server's totals for its last
/// line. One line an event; noise that a peer can make at will is counted instead of repeated.
class TrackerLog {
 public:
  explicit TrackerLog(Log& log) : log_{log} {}

  void opened(ConnId id, std::string peer, Time now);
  /// @param why  "closed", or what was wrong
  void ended(ConnId id, std::string_view why, Time now);
  /// A connection that was closed because of what it sent.
  void refused(ConnId id, std::string_view reason, Time now);
  void fact(const Fact& fact, const Broker& broker, Time now);

 private:
  struct Peer {
    std::string name;  ///< address and port
    std::string key;   ///< of a server
    std::uint64_t grants = 0;
    Time since{};
  };
  void count_grant(ConnId server);
  std::string_view name(ConnId id) const;
  bool may_complain(Time now);

  Log& log_;
  std::unordered_map<ConnId, Peer> peers_;
  Time window_{};            ///< when the present count of complaints began
  unsigned complaints_ = 0;  ///< in this window
  std::uint64_t swallowed_ = 0;
};

}  // namespace outpost::tracker
