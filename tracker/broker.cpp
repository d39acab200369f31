#include "broker.h"

#include <fmt/format.h>

#include <utility>

namespace outpost::tracker {
namespace {

constexpr std::size_t kUsedKeysKept =
    64;  ///< per connection, so that a used key is not offered again

Result<> check_size(std::string_view text, std::size_t bytes_max, std::string_view what) {
  if (text.size() <= bytes_max) return {};
  return Error{Code::limit, fmt::format("{} of {} bytes exceeds key_bytes_max {}", what,
                                        text.size(), bytes_max)};
}

}  // namespace

Result<Broker::Put> Broker::put(ConnId server, const std::string& key, Offer offer, Time now,
                                std::vector<Grant>& grants) {
  OUTPOST_CHECK(check_size(offer.match_key, limits_.key_bytes_max, "match key"));
  OUTPOST_CHECK(check_size(offer.host, limits_.key_bytes_max, "address"));
  OUTPOST_TRY(auto* pool, this->pool(key));
  Conn& c = conn(server, now);
  if (c.offers.size() >= limits_.offers_per_connection_max)
    return Error{Code::limit, fmt::format("more than offers_per_connection_max {} free devices",
                                          limits_.offers_per_connection_max)};
  heard(server, now, grants);
  if (!match_keys_.emplace(offer.match_key, &c).second) return Put::duplicate;
  if (c.offers.empty()) c.since = now;
  if (c.handed_out != 0) --c.handed_out;  // a device that is free again has lost its client
  const auto arrival = ++arrivals_;
  c.offers.emplace(arrival, OwnOffer{pool, std::move(offer)});
  watch(c);
  pool->free.emplace(arrival, &c);
  match(*pool, now, grants);
  return Put::accepted;
}

Result<> Broker::request(ConnId client, const std::string& key, double priority, Time now,
                         std::vector<Grant>& grants) {
  OUTPOST_TRY(auto* pool, this->pool(key));
  Conn& c = conn(client, now);
  if (c.requests.size() >= limits_.requests_per_connection_max)
    return Error{Code::limit,
                 fmt::format("more than requests_per_connection_max {} waiting requests",
                             limits_.requests_per_connection_max)};
  const Place place{-priority, ++arrivals_};
  c.requests.emplace(place.arrival, OwnRequest{pool, place, now});
  pool->waiting.emplace(place, &c);
  match(*pool, now, grants);
  return {};
}

bool Broker::heard(ConnId who, Time now, std::vector<Grant>& grants) {
  const auto found = conns_.find(who);
  if (found == conns_.end()) return false;
  Conn& c = found->second;
  c.heard = now;
  if (c.watched) watched_.splice(watched_.end(), watched_, c.watch);
  if (!c.suspect) return false;
  c.suspect = false;
  c.since = now;
  watch(c);
  std::vector<Pool*> touched;
  for (auto& [arrival, own] : c.offers) {  // back at their old place
    own.pool->free.emplace(arrival, &c);
    touched.push_back(own.pool);
  }
  for (auto* pool : touched) match(*pool, now, grants);
  return true;
}

void Broker::gone(ConnId who) {
  const auto found = conns_.find(who);
  if (found == conns_.end()) return;
  Conn& c = found->second;
  for (const auto& [arrival, own] : c.offers) {
    own.pool->free.erase(arrival);
    match_keys_.erase(own.offer.match_key);
  }
  for (const auto& [arrival, own] : c.requests) own.pool->waiting.erase(own.place);
  for (const auto& key : c.used_keys) match_keys_.erase(key);
  unwatch(c);
  conns_.erase(found);
}

std::vector<ConnId> Broker::tick(Time now) {
  std::vector<ConnId> suspects;
  while (!watched_.empty() && watched_.front()->heard + limits_.suspect_after <= now) {
    Conn& c = *watched_.front();
    unwatch(c);
    c.suspect = true;
    c.since = now;
    for (const auto& [arrival, own] : c.offers) own.pool->free.erase(arrival);
    suspects.push_back(c.id);
  }
  return suspects;
}

std::optional<Time> Broker::next_deadline() const {
  if (watched_.empty()) return std::nullopt;
  return watched_.front()->heard + limits_.suspect_after;
}

std::vector<std::string> Broker::match_keys(ConnId who) const {
  std::vector<std::string> out;
  const auto found = conns_.find(who);
  if (found == conns_.end()) return out;
  for (const auto& [arrival, own] : found->second.offers) out.push_back(own.offer.match_key);
  return out;
}

std::vector<QueueCount> Broker::queues() const {
  std::vector<QueueCount> out;
  out.reserve(pools_by_age_.size());
  for (const auto& [born, p] : pools_by_age_)
    out.push_back({p->key, p->free.size(), p->waiting.size()});
  return out;
}

QueueCount Broker::queue(std::string_view key) const {
  const auto found = pools_.find(std::string{key});
  if (found == pools_.end()) return {key, 0, 0};
  return {key, found->second.free.size(), found->second.waiting.size()};
}

Board Broker::board(ConnId server) const {
  const auto found = conns_.find(server);
  if (found == conns_.end()) return {};
  const Conn& c = found->second;
  if (c.suspect) return {BoardState::suspect, c.since};
  if (!c.offers.empty()) return {BoardState::free, c.since};
  return {c.handed_out != 0 ? BoardState::busy : BoardState::away, c.since};
}

Broker::Conn& Broker::conn(ConnId who, Time now) {
  const auto [at, fresh] = conns_.try_emplace(who);
  if (fresh) {
    at->second.id = who;
    at->second.heard = now;
    at->second.since = now;
  }
  return at->second;
}

Result<Broker::Pool*> Broker::pool(const std::string& key) {
  const auto found = pools_.find(key);
  if (found != pools_.end()) return &found->second;
  OUTPOST_CHECK(check_size(key, limits_.key_bytes_max, "key"));
  if (pools_.size() >= limits_.keys_max && !make_room_for_a_pool())
    return Error{Code::limit, fmt::format("more than keys_max {} keys in use", limits_.keys_max)};
  Pool& made = pools_[key];
  made.key = key;
  made.born = ++arrivals_;
  pools_by_age_.emplace(made.born, &made);
  return &made;
}

/// Forgets every key that nobody offers or wants; a suspect's devices hold theirs. Rare: it takes
/// keys_max keys to come here, and what it frees is used up before it runs again.
bool Broker::make_room_for_a_pool() {
  std::unordered_map<const Pool*, bool> used;
  for (const auto& [id, c] : conns_)
    for (const auto& [arrival, own] : c.offers) used[own.pool] = true;
  for (auto at = pools_by_age_.begin(); at != pools_by_age_.end();) {
    const Pool* p = at->second;
    const bool idle = p->waiting.empty() && p->free.empty() && !used.contains(p);
    at = idle ? pools_by_age_.erase(at) : std::next(at);
    if (idle) pools_.erase(std::string{p->key});
  }
  return pools_.size() < limits_.keys_max;
}

void Broker::match(Pool& pool, Time now, std::vector<Grant>& grants) {
  while (!pool.free.empty() && !pool.waiting.empty()) hand_out(pool, now, grants);
}

/// The first in line gets the device that has been free for longest.
void Broker::hand_out(Pool& pool, Time now, std::vector<Grant>& grants) {
  const auto [arrival, server] = *pool.free.begin();
  const auto [place, client] = *pool.waiting.begin();
  pool.free.erase(pool.free.begin());
  pool.waiting.erase(pool.waiting.begin());
  auto own = server->offers.extract(arrival);
  const auto request = client->requests.extract(place.arrival);
  remember_used(*server, own.mapped().offer.match_key);
  ++server->handed_out;
  if (server->offers.empty()) {
    unwatch(*server);
    server->since = now;
  }
  grants.push_back({client->id, server->id, pool.key, std::move(own.mapped().offer),
                    now - request.mapped().since});
}

void Broker::watch(Conn& c) {
  if (c.watched || c.offers.empty()) return;
  // Behind all others, because it was heard just now.
  c.watch = watched_.insert(watched_.end(), &c);
  c.watched = true;
}

void Broker::unwatch(Conn& c) {
  if (c.watched) watched_.erase(c.watch);
  c.watched = false;
}

void Broker::remember_used(Conn& c, const std::string& match_key) {
  c.used_keys.push_back(match_key);
  if (c.used_keys.size() <= kUsedKeysKept) return;
  match_keys_.erase(c.used_keys.front());
  c.used_keys.pop_front();
}

}  // namespace outpost::tracker
