#include "broker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "broker_state.h"

namespace outpost::tracker {
namespace {

Result<> check_size(std::string_view text, std::size_t bytes_max, std::string_view what) {
  if (text.size() <= bytes_max) return {};
  return Error{Code::limit, fmt::format("{} of {} bytes exceeds key_bytes_max {}", what,
                                        text.size(), bytes_max)};
}

}  // namespace

Broker::Broker(const BrokerLimits& limits) : limits_{limits} {}
Broker::~Broker() = default;

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
  OUTPOST_TRY(auto* cls, join(c, *pool));
  if (!match_keys_.emplace(offer.match_key, &c).second) return Put::duplicate;
  release(c, now, grants);  // a device that is free again has lost its client
  if (c.offers.empty()) c.since = now;
  const auto arrival = ++arrivals_;
  c.offers.emplace(arrival, Conn::OwnOffer{cls, std::move(offer)});
  watch(c);
  this->offer(*cls, arrival, c);
  serve(*cls, now, grants);
  return Put::accepted;
}

Result<> Broker::request(ConnId client, const Ask& ask, Time now, std::vector<Grant>& grants) {
  OUTPOST_CHECK(check_size(ask.user, limits_.key_bytes_max, "user"));
  OUTPOST_CHECK(check_size(ask.need, limits_.key_bytes_max, "condition"));
  OUTPOST_TRY(auto* pool, this->pool(ask.key));
  Conn& c = conn(client, now);
  if (c.requests.size() >= limits_.requests_per_connection_max)
    return Error{Code::limit,
                 fmt::format("more than requests_per_connection_max {} waiting requests",
                             limits_.requests_per_connection_max)};
  OUTPOST_TRY(auto* cls, request_class(*pool, ask.need));
  const auto has_boards = [](const DeviceClass* d) { return d->boards != 0; };
  const bool any = std::any_of(pool->devices.begin(), pool->devices.end(),
                               [&](const auto& d) { return has_boards(d.second.get()); });
  if (any && !ask.wait && std::none_of(cls->fits.begin(), cls->fits.end(), has_boards))
    return Error{Code::not_found,
                 fmt::format("no board of key '{}' meets '{}'", ask.key, ask.need)};
  User& u = user(ask.user);
  if (limits_.waiting_per_user_max != 0 && u.waiting.size() >= limits_.waiting_per_user_max)
    return Error{Code::denied, fmt::format("user '{}' has {} requests waiting, as many as allowed",
                                           ask.user, u.waiting.size())};
  const auto arrival = ++arrivals_;
  auto made = std::make_unique<Waiting>(
      Waiting{&c, cls, &u, place_of(limits_.order, ask.priority, now, arrival), now, {}});
  Waiting& w = *made;
  c.requests.emplace(arrival, std::move(made));
  u.waiting.emplace(arrival, &w);
  ++cls->waiting;
  ++pool->waiting;
  if (ask.wait) {
    w.ends = now + *ask.wait;
    wait_ends_.emplace(*w.ends, &w);
  }
  if (limits_.held_per_user_max != 0 && u.held >= limits_.held_per_user_max) return {};
  stand_in_line(w);
  seek(cls->fits, now, grants);
  return {};
}

Result<> Broker::set_tags(ConnId server, Tags tags, Time now, std::vector<Grant>& grants) {
  Conn& c = conn(server, now);
  if (c.tags == tags) return {};
  c.tags = std::move(tags);
  for (auto& [born, cls] : c.member_of) {
    OUTPOST_TRY(auto* to, device_class(*cls->pool, c.tags));
    ++to->boards;
    --cls->boards;
    cls = to;
  }
  for (auto& [arrival, own] : c.offers) {
    auto* to = c.member_of.at(own.cls->pool->born);
    if (!c.suspect) {
      withdraw(*own.cls, arrival);
      offer(*to, arrival, c);
    }
    own.cls = to;
  }
  for (const auto& [born, cls] : c.member_of) serve(*cls, now, grants);
  return {};
}

bool Broker::heard(ConnId who, Time now, std::vector<Grant>& grants) {
  Conn* c = find(who);
  if (!c) return false;
  c->heard = now;
  if (c->watched) watched_.splice(watched_.end(), watched_, c->watch);
  if (!c->suspect) return false;
  c->suspect = false;
  c->since = now;
  watch(*c);
  for (auto& [arrival, own] : c->offers) offer(*own.cls, arrival, *c);  // at their old place
  for (const auto& [born, cls] : c->member_of) serve(*cls, now, grants);
  return true;
}

void Broker::gone(ConnId who, Time now, std::vector<Grant>& grants) {
  Conn* c = find(who);
  if (!c) return;
  for (const auto& [arrival, own] : c->offers) {
    if (!c->suspect) withdraw(*own.cls, arrival);
    match_keys_.erase(own.offer.match_key);
  }
  for (const auto& key : c->used_keys) match_keys_.erase(key);
  for (const auto& [born, cls] : c->member_of) --cls->boards;
  while (!c->requests.empty()) forget(*c->requests.begin()->second);
  unwatch(*c);
  while (!c->held.empty()) release(*c, now, grants);
  conns_.erase(who);
}

std::vector<ConnId> Broker::tick(Time now, std::vector<Refusal>& refusals) {
  std::vector<ConnId> suspects;
  while (!watched_.empty() && watched_.front()->heard + limits_.suspect_after <= now) {
    Conn& c = *watched_.front();
    unwatch(c);
    c.suspect = true;
    c.since = now;
    for (const auto& [arrival, own] : c.offers) withdraw(*own.cls, arrival);
    suspects.push_back(c.id);
  }
  while (!wait_ends_.empty() && wait_ends_.begin()->first <= now) {
    Waiting& w = *wait_ends_.begin()->second;
    const auto seconds = std::chrono::duration<double>(*w.ends - w.since).count();
    refusals.push_back({w.conn->id, fmt::format("no device within {:g} s: {}", seconds, words(w))});
    forget(w);
  }
  return suspects;
}

std::optional<Time> Broker::next_deadline() const {
  std::optional<Time> next;
  if (!watched_.empty()) next = watched_.front()->heard + limits_.suspect_after;
  if (!wait_ends_.empty() && (!next || wait_ends_.begin()->first < *next))
    next = wait_ends_.begin()->first;
  return next;
}

std::vector<std::string> Broker::match_keys(ConnId who) const {
  std::vector<std::string> out;
  if (const Conn* c = find(who))
    for (const auto& [arrival, own] : c->offers) out.push_back(own.offer.match_key);
  return out;
}

std::vector<QueueCount> Broker::queues() const {
  std::vector<QueueCount> out;
  out.reserve(pools_by_age_.size());
  for (const auto& [born, p] : pools_by_age_) out.push_back({p->key, p->free, p->waiting});
  return out;
}

QueueCount Broker::queue(std::string_view key) const {
  const auto found = pools_.find(std::string{key});
  if (found == pools_.end()) return {key, 0, 0};
  return {key, found->second->free, found->second->waiting};
}

Board Broker::board(ConnId server) const {
  const Conn* c = find(server);
  if (!c) return {};
  if (c->suspect) return {BoardState::suspect, c->since};
  if (!c->offers.empty()) return {BoardState::free, c->since};
  return {c->held.empty() ? BoardState::away : BoardState::busy, c->since};
}

std::string Broker::reason(ConnId client) const {
  const Conn* c = find(client);
  return c && !c->requests.empty() ? words(*c->requests.begin()->second) : std::string{};
}

std::string Broker::words(const Waiting& w) const {
  const auto& cls = *w.cls;
  const auto& pool = *cls.pool;
  if (!w.in_line)
    return fmt::format("user '{}' holds {} devices, as many as allowed", w.user->name,
                       w.user->held);
  std::size_t ahead = cls.line.ahead_of(fair() ? w.user->name : "", w.place);
  std::set<const RequestClass*> rivals;
  for (const auto* d : cls.fits) rivals.insert(d->wanted_by.begin(), d->wanted_by.end());
  rivals.erase(&cls);
  for (const auto* r : rivals) ahead += r->line.ahead_of(w.place);
  const bool any = std::any_of(cls.fits.begin(), cls.fits.end(),
                               [](const DeviceClass* d) { return d->boards != 0; });
  return fmt::format("place {} of {} for '{}', {}{}", ahead + 1, pool.waiting, pool.key,
                     any ? "all boards are in use" : "no board is registered",
                     any || cls.text.empty() ? "" : " that meets '" + cls.text + "'");
}

}  // namespace outpost::tracker
