#pragma once
#include <cstddef>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <map>
#include <string>

#include "order.h"

namespace outpost::tracker {

struct Waiting;

/// A line of waiting requests by place, with ranks. With groups (users of the fair order) the first
/// of each group stands for it; without, everybody is in the one group "".
class Line {
 public:
  using Tree = __gnu_pbds::tree<Place, Waiting*, std::less<>, __gnu_pbds::rb_tree_tag,
                                __gnu_pbds::tree_order_statistics_node_update>;

  /// @param share  empty: groups stand where their first request stands
  void add(const std::string& group, Place place, Waiting* request, const FairShare* share,
           std::size_t active);
  void remove(const std::string& group, Place place, const FairShare* share, std::size_t active);
  /// The group's standing has changed.
  void rekey(const std::string& group, const FairShare* share, std::size_t active);

  bool empty() const { return heads_.empty(); }
  std::size_t size() const { return size_; }
  /// Where the first stands; the line is not empty.
  Place first_place() const { return heads_.begin()->first; }
  Waiting* first() const { return heads_.begin()->second->tree.begin()->second; }
  /// How many are in front of that request; groups take turns, so each counts as far as it is deep.
  std::size_t ahead_of(const std::string& group, Place place) const;
  /// How many stand in front of a place that belongs to another line of the same pool.
  std::size_t ahead_of(Place place) const;

 private:
  struct Group {
    Tree tree;
    Place key{};
  };
  using Groups = std::map<std::string, Group, std::less<>>;
  void set_key(Groups::iterator at, const FairShare* share, std::size_t active);

  Groups groups_;
  std::map<Place, Group*> heads_;
  std::size_t size_ = 0;
};

}  // namespace outpost::tracker
