// The broker's inner steps: classes, lines, hand-out and release.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "broker_state.h"

namespace outpost::tracker {
namespace {

constexpr std::size_t kUsedKeysKept = 64;  ///< per connection, so that no used key is offered again

}  // namespace

Broker::Conn* Broker::find(ConnId who) const {
  const auto found = conns_.find(who);
  return found == conns_.end() ? nullptr : found->second.get();
}

Broker::Conn& Broker::conn(ConnId who, Time now) {
  auto& at = conns_[who];
  if (!at) at = std::make_unique<Conn>(Conn{.id = who, .heard = now, .since = now});
  return *at;
}

Broker::User& Broker::user(const std::string& name) {
  auto& at = users_[name];
  if (!at) at = std::make_unique<User>(User{name});
  return *at;
}

Result<Broker::Pool*> Broker::pool(const std::string& key) {
  const auto found = pools_.find(key);
  if (found != pools_.end()) return found->second.get();
  if (key.size() > limits_.key_bytes_max)
    return Error{Code::limit, fmt::format("key of {} bytes exceeds key_bytes_max {}", key.size(),
                                          limits_.key_bytes_max)};
  if (pools_.size() >= limits_.keys_max && !make_room_for_a_pool())
    return Error{Code::limit, fmt::format("more than keys_max {} keys in use", limits_.keys_max)};
  auto& made = pools_[key];
  made = std::make_unique<Pool>(limits_.order);
  made->key = key;
  made->born = ++arrivals_;
  pools_by_age_.emplace(made->born, made.get());
  return made.get();
}

/// Forgets every key that nobody offers, wants or uses. Rare: it takes keys_max keys to come here,
/// and what it frees is used up before it runs again.
bool Broker::make_room_for_a_pool() {
  for (auto at = pools_by_age_.begin(); at != pools_by_age_.end();) {
    const Pool* p = at->second;
    const bool used = p->waiting != 0 || p->holds != 0 ||
                      std::any_of(p->devices.begin(), p->devices.end(),
                                  [](const auto& d) { return d.second->boards != 0; });
    at = used ? std::next(at) : pools_by_age_.erase(at);
    if (!used) pools_.erase(std::string{p->key});
  }
  return pools_.size() < limits_.keys_max;
}

Result<Broker::DeviceClass*> Broker::device_class(Pool& pool, const Tags& tags) {
  const auto text = signature(tags);
  if (const auto found = pool.devices.find(text); found != pool.devices.end())
    return found->second.get();
  if (pool.devices.size() >= limits_.classes_max) {
    for (auto& [need, r] : pool.requests)
      std::erase_if(r->fits, [](const DeviceClass* d) { return d->unused(); });
    std::erase_if(pool.devices, [](const auto& d) { return d.second->unused(); });
  }
  if (pool.devices.size() >= limits_.classes_max)
    return Error{Code::limit,
                 fmt::format("more than classes_max {} different boards under key '{}'",
                             limits_.classes_max, pool.key)};
  auto& made = pool.devices[text];
  made = std::make_unique<DeviceClass>(DeviceClass{&pool, tags});
  for (auto& [need, r] : pool.requests) {
    if (!meets(tags, r->need)) continue;
    r->fits.push_back(made.get());
    made->wanted_by.push_back(r.get());
  }
  return made.get();
}

Result<Broker::RequestClass*> Broker::request_class(Pool& pool, const std::string& text) {
  if (const auto found = pool.requests.find(text); found != pool.requests.end())
    return found->second.get();
  OUTPOST_TRY(auto need, parse_need(text));
  if (pool.requests.size() >= limits_.classes_max) {
    for (auto& [tags, d] : pool.devices)
      std::erase_if(d->wanted_by, [](const RequestClass* r) { return r->waiting == 0; });
    std::erase_if(pool.requests, [](const auto& r) { return r.second->waiting == 0; });
  }
  if (pool.requests.size() >= limits_.classes_max)
    return Error{Code::denied, fmt::format("more than classes_max {} different conditions wait "
                                           "under key '{}'",
                                           limits_.classes_max, pool.key)};
  auto& made = pool.requests[text];
  made = std::make_unique<RequestClass>(RequestClass{&pool, text, std::move(need)});
  for (auto& [tags, d] : pool.devices) {
    if (!meets(d->tags, made->need)) continue;
    made->fits.push_back(d.get());
    d->wanted_by.push_back(made.get());
  }
  return made.get();
}

/// The class of the connection's boards under that key.
Result<Broker::DeviceClass*> Broker::join(Conn& c, Pool& pool) {
  if (const auto found = c.member_of.find(pool.born); found != c.member_of.end())
    return found->second;
  OUTPOST_TRY(auto* cls, device_class(pool, c.tags));
  ++cls->boards;
  c.member_of.emplace(pool.born, cls);
  return cls;
}

void Broker::offer(DeviceClass& d, std::uint64_t arrival, Conn& c) {
  d.free.emplace(arrival, &c);
  ++d.pool->free;
}

void Broker::withdraw(DeviceClass& d, std::uint64_t arrival) {
  d.pool->free -= d.free.erase(arrival);
}

/// Free devices of the class go to the first in line of all lines that want it.
void Broker::serve(DeviceClass& d, Time now, std::vector<Grant>& grants) {
  while (!d.free.empty()) {
    const RequestClass* best = nullptr;
    for (const auto* r : d.wanted_by)
      if (!r->line.empty() && (!best || r->line.first_place() < best->line.first_place())) best = r;
    if (!best) return;
    hand_out(d, *best->line.first(), now, grants);
  }
}

/// Somebody who fits these classes came to the line: the class that the fewest want comes first, so
/// that rare boards are spared, then the one that has been free for longest.
void Broker::seek(const std::vector<DeviceClass*>& fits, Time now, std::vector<Grant>& grants) {
  auto order = fits;
  std::erase_if(order, [](const DeviceClass* d) { return d->free.empty(); });
  std::sort(order.begin(), order.end(), [](const DeviceClass* a, const DeviceClass* b) {
    const auto rank = [](const DeviceClass* d) {
      return std::pair{d->wanted_by.size(), d->free.begin()->first};
    };
    return rank(a) < rank(b);
  });
  for (auto* d : order) serve(*d, now, grants);
}

void Broker::hand_out(DeviceClass& d, Waiting& w, Time now, std::vector<Grant>& grants) {
  auto& pool = *d.pool;
  User& u = *w.user;
  const auto [arrival, server] = *d.free.begin();
  withdraw(d, arrival);
  auto own = server->offers.extract(arrival);
  remember_used(*server, own.mapped().offer.match_key);
  if (server->offers.empty()) {
    unwatch(*server);
    server->since = now;
  }
  grants.push_back(
      {w.conn->id, server->id, pool.key, std::move(own.mapped().offer), now - w.since});
  const double charged = fair() ? pool.share.granted(u.name, now) : 0;
  server->held.push_back({u.name, &pool, now, charged});
  ++pool.holds;
  ++u.held;
  forget(w);
  if (limits_.held_per_user_max != 0 && u.held >= limits_.held_per_user_max) hold_back(u);
  rekey(pool, u.name);
}

void Broker::stand_in_line(Waiting& w) {
  const auto* share = fair() ? &w.cls->pool->share : nullptr;
  w.cls->line.add(fair() ? w.user->name : "", w.place, &w, share, users_.size());
  w.in_line = true;
}

void Broker::leave_line(Waiting& w) {
  if (!std::exchange(w.in_line, false)) return;
  const auto* share = fair() ? &w.cls->pool->share : nullptr;
  w.cls->line.remove(fair() ? w.user->name : "", w.place, share, users_.size());
}

/// The request is no more.
void Broker::forget(Waiting& w) {
  leave_line(w);
  if (w.ends) wait_ends_.erase({*w.ends, &w});
  --w.cls->waiting;
  --w.cls->pool->waiting;
  User& u = *w.user;
  u.waiting.erase(w.place.arrival);
  w.conn->requests.erase(w.place.arrival);
  forget_if_idle(u);
}

/// The oldest of the devices that were handed out has lost its client.
void Broker::release(Conn& server, Time now, std::vector<Grant>& grants) {
  if (server.held.empty()) return;
  const auto hold = std::move(server.held.front());
  server.held.pop_front();
  --hold.pool->holds;
  User& u = user(hold.user);
  if (fair()) hold.pool->share.released(hold.user, hold.charged, now - hold.since, now);
  const bool was_full = limits_.held_per_user_max != 0 && u.held >= limits_.held_per_user_max;
  --u.held;
  rekey(*hold.pool, hold.user);
  if (was_full) {
    std::set<RequestClass*> classes;
    for (const auto& [arrival, w] : u.waiting) {
      stand_in_line(*w);
      classes.insert(w->cls);
    }
    for (auto* r : classes) seek(r->fits, now, grants);
  }
  const auto still = users_.find(hold.user);
  if (still != users_.end()) forget_if_idle(*still->second);
}

void Broker::hold_back(User& u) {
  for (const auto& [arrival, w] : u.waiting) leave_line(*w);
}

void Broker::rekey(Pool& pool, const std::string& name) {
  if (!fair()) return;
  for (auto& [need, r] : pool.requests) r->line.rekey(name, &pool.share, users_.size());
}

void Broker::forget_if_idle(User& u) {
  if (u.waiting.empty() && u.held == 0) users_.erase(std::string{u.name});
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
