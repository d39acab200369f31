#include "tracker_log.h"

#include <utility>

namespace outpost::tracker {
namespace {

constexpr Time kWindow = std::chrono::seconds{10};
constexpr unsigned kComplaintsPerWindow = 20;

double seconds(Time t) {
  return std::chrono::duration<double>(t).count();
}

}  // namespace

void TrackerLog::opened(ConnId id, std::string peer, Time now) {
  log_.debug("connection opened peer={}", peer);
  peers_[id] = {.name = std::move(peer), .key = {}, .since = now};
}

void TrackerLog::ended(ConnId id, std::string_view why, Time now) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  const auto& peer = found->second;
  if (peer.key.empty())
    log_.debug("connection ended peer={} reason='{}'", peer.name, why);
  else
    log_.info("server left peer={} key={} seconds={:.1f} handed_out={} reason='{}'", peer.name,
              quoted(peer.key), seconds(now - peer.since), peer.grants, why);
  peers_.erase(found);
}

void TrackerLog::refused(ConnId id, std::string_view reason, Time now) {
  if (may_complain(now)) {
    const auto more = std::exchange(swallowed_, 0);
    log_.warn("connection closed peer={} reason={}{}", name(id), quoted(reason),
              more == 0 ? "" : fmt::format(" not_logged_before={}", more));
  }
  ended(id, reason, now);
}

void TrackerLog::fact(const Fact& fact, const Broker& broker, Time now) {
  if (fact.kind == Fact::Kind::granted) count_grant(fact.other);
  const bool per_request = fact.kind == Fact::Kind::put || fact.kind == Fact::Kind::waits ||
                           fact.kind == Fact::Kind::granted || fact.kind == Fact::Kind::refused;
  if (per_request && !log_.wants(LogLevel::debug)) return;  // before any text is made
  switch (fact.kind) {
    case Fact::Kind::registered: {
      const auto found = peers_.find(fact.conn);
      if (found == peers_.end() || found->second.key == fact.detail) return;
      found->second.key = fact.detail;
      return log_.info("server registered peer={} key={}", name(fact.conn), quoted(fact.detail));
    }
    case Fact::Kind::put:
      return log_.debug("device free peer={} match_key={}", name(fact.conn), quoted(fact.detail));
    case Fact::Kind::duplicate:
      if (!may_complain(now)) return;
      return log_.warn("match key offered twice, the second is ignored peer={} match_key={}",
                       name(fact.conn), quoted(fact.detail));
    case Fact::Kind::waits:
      return log_.debug("request waits peer={} key={} pending={}", name(fact.conn),
                        quoted(fact.detail), broker.queue(fact.detail).pending);
    case Fact::Kind::waits_alone:
      if (broker.queue(fact.detail).pending != 1 || !may_complain(now)) return;
      return log_.warn("request waits for a key that no server has peer={} key={}", name(fact.conn),
                       quoted(fact.detail));
    case Fact::Kind::granted:
      return log_.debug("device handed out peer={} server={} match_key={} waited_s={:.3f}",
                        name(fact.conn), name(fact.other), quoted(fact.detail),
                        seconds(fact.waited));
    case Fact::Kind::suspect:
      return log_.warn(
          "server is silent, its devices are not handed out until it asks again peer={} key={}",
          name(fact.conn), quoted(fact.detail));
    case Fact::Kind::refused:
      return log_.debug("request refused peer={} reason={}", name(fact.conn), quoted(fact.detail));
    case Fact::Kind::odd_tags:
      if (!may_complain(now)) return;
      return log_.warn("tags cannot be read, the board has none peer={} reason={}", name(fact.conn),
                       quoted(fact.detail));
    case Fact::Kind::trusted:
      return log_.info("server asks again, its devices are handed out peer={} key={}",
                       name(fact.conn), quoted(fact.detail));
  }
}

void TrackerLog::count_grant(ConnId server) {
  const auto found = peers_.find(server);
  if (found != peers_.end()) ++found->second.grants;
}

std::string_view TrackerLog::name(ConnId id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? std::string_view{"?"} : found->second.name;
}

bool TrackerLog::may_complain(Time now) {
  if (now - window_ >= kWindow) {
    window_ = now;
    complaints_ = 0;
  }
  if (++complaints_ <= kComplaintsPerWindow) return true;
  ++swallowed_;
  return false;
}

}  // namespace outpost::tracker
