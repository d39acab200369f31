#include "line.h"

#include <algorithm>

namespace outpost::tracker {

void Line::add(const std::string& group, Place place, Waiting* request, const FairShare* share,
               std::size_t active) {
  const auto [at, fresh] = groups_.try_emplace(group);
  if (!fresh) heads_.erase(at->second.key);
  at->second.tree.insert({place, request});
  ++size_;
  set_key(at, share, active);
}

void Line::remove(const std::string& group, Place place, const FairShare* share,
                  std::size_t active) {
  const auto at = groups_.find(group);
  if (at == groups_.end() || !at->second.tree.erase(place)) return;
  --size_;
  heads_.erase(at->second.key);
  if (at->second.tree.empty())
    groups_.erase(at);
  else
    set_key(at, share, active);
}

void Line::rekey(const std::string& group, const FairShare* share, std::size_t active) {
  const auto at = groups_.find(group);
  if (at == groups_.end()) return;
  heads_.erase(at->second.key);
  set_key(at, share, active);
}

void Line::set_key(Groups::iterator at, const FairShare* share, std::size_t active) {
  const Place head = at->second.tree.begin()->first;
  at->second.key = share ? share->place(at->first, head, active) : head;
  heads_.emplace(at->second.key, &at->second);
}

std::size_t Line::ahead_of(const std::string& group, Place place) const {
  const auto own = groups_.find(group);
  if (own == groups_.end()) return 0;
  const auto depth = own->second.tree.order_of_key(place);
  std::size_t ahead = depth;
  if (groups_.size() == 1) return ahead;
  for (const auto& [name, other] : groups_) {  // users, not requests: few
    if (&other == &own->second) continue;
    const auto turns = other.key < own->second.key ? depth + 1 : depth;
    ahead += std::min(turns, other.tree.size());
  }
  return ahead;
}

std::size_t Line::ahead_of(Place place) const {
  std::size_t ahead = 0;
  for (const auto& [name, group] : groups_) ahead += group.tree.order_of_key(place);
  return ahead;
}

}  // namespace outpost::tracker
