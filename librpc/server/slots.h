#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/assert.h"

namespace outpost::server {

enum class SessionId : std::uint64_t {};

/// How many sessions may run at once, and who waits, in order of arrival. Knows no processes.
class Slots {
 public:
  explicit Slots(std::size_t count) : count_{count} { OUTPOST_ASSERT(count > 0); }

  void enter(SessionId id) { waiting_.push_back(id); }
  /// The one whose turn it is, who then holds a slot; empty when no slot is free or nobody waits.
  std::optional<SessionId> next() {
    if (waiting_.empty() || used_ == count_) return std::nullopt;
    ++used_;
    const auto id = waiting_.front();
    waiting_.pop_front();
    return id;
  }
  /// One who waits and goes away. False: it does not wait.
  bool leave(SessionId id) { return std::erase(waiting_, id) > 0; }
  void release() {
    OUTPOST_ASSERT(used_ > 0);
    --used_;
  }

  std::size_t count() const { return count_; }
  std::size_t used() const { return used_; }
  std::size_t waiting() const { return waiting_.size(); }
  /// Place in line, 1 for the next; 0 for one who does not wait.
  std::size_t place(SessionId id) const {
    const auto it = std::ranges::find(waiting_, id);
    return it == waiting_.end() ? 0 : static_cast<std::size_t>(it - waiting_.begin()) + 1;
  }
  /// Slots that neither run a session nor are about to.
  std::size_t free() const { return count_ - used_ - std::min(count_ - used_, waiting_.size()); }

 private:
  std::size_t count_;
  std::size_t used_ = 0;
  std::deque<SessionId> waiting_;
};

}  // namespace outpost::server
