#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"

namespace outpost {

enum class Handle : std::uint64_t { null = 0 };

/// What one session has given out. A handle is slot and generation, never an address: a forged,
/// stale or foreign one is not_found. `T` is movable and its default value means "empty".
template <class T>
class HandleTable {
 public:
  /// @param handles_max  the largest number of live handles; one more is a limit error
  explicit HandleTable(std::uint32_t handles_max) : handles_max_{handles_max} {}

  Result<Handle> add(T object) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
      if (slots_.size() >= handles_max_)
        return Error{Code::limit,
                     fmt::format("more than handles_max {} live handles", handles_max_)};
      slot = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slots_[slot].object = std::move(object);
    slots_[slot].used = true;
    ++live_;
    return Handle{(std::uint64_t{slots_[slot].generation} << 32) | (slot + 1U)};
  }

  Result<T*> find(Handle h) {
    const auto raw = static_cast<std::uint64_t>(h);
    const std::uint64_t slot = (raw & 0xffffffffU) - 1;
    if (slot >= slots_.size() || !slots_[slot].used || slots_[slot].generation != raw >> 32)
      return Error{Code::not_found,
                   fmt::format("handle 0x{:x} was not given out by this session", raw)};
    return &slots_[slot].object;
  }

  /// Gives the object back, so that the caller decides when its destructor runs.
  Result<T> take(Handle h) {
    OUTPOST_TRY(T * object, find(h));
    const auto slot = (static_cast<std::uint64_t>(h) & 0xffffffffU) - 1;
    slots_[slot].used = false;
    // Bit 31 stays 0, so that a handle read as a signed number is positive; 0 is never used.
    slots_[slot].generation = slots_[slot].generation % 0x7fffffffU + 1;
    free_.push_back(static_cast<std::uint32_t>(slot));
    --live_;
    return std::exchange(*object, T{});
  }

  std::size_t live() const { return live_; }

 private:
  struct Slot {
    T object{};
    std::uint32_t generation = 1;
    bool used = false;
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::uint32_t handles_max_;
  std::size_t live_ = 0;
};

}  // namespace outpost
