#pragma once
#include <tvm/ffi/c_api.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace outpost::vm {

/// Slots of 16 bytes, taken and given back like a stack. What was taken never moves, since compiled
/// functions hold pointers to it.
class Arena {
 public:
  struct Mark {
    std::size_t chunk = 0;
    TVMFFIAny* top = nullptr;
  };
  Arena() {
    add(kChunkSlots);
    mark_ = {0, chunks_[0].begin.get()};
  }

  Mark mark() const { return mark_; }
  /// Uninitialised slots.
  TVMFFIAny* take(std::size_t slots) {
    const auto& c = chunks_[mark_.chunk];
    if (slots > static_cast<std::size_t>(c.end - mark_.top)) return take_in_next(slots);
    auto* out = mark_.top;
    mark_.top += slots;
    return out;
  }
  /// Gives back everything taken since.
  void rewind(Mark mark) { mark_ = mark; }
  std::size_t slots() const { return slots_; }

 private:
  static constexpr std::size_t kChunkSlots = 4096;
  struct Chunk {
    std::unique_ptr<TVMFFIAny[]> begin;
    TVMFFIAny* end;
  };
  void add(std::size_t slots) {
    chunks_.push_back({std::unique_ptr<TVMFFIAny[]>{new TVMFFIAny[slots]}, nullptr});
    chunks_.back().end = chunks_.back().begin.get() + slots;
    slots_ += slots;
  }
  TVMFFIAny* take_in_next(std::size_t slots) {
    // Chunks behind the mark are empty: drop those that are too small.
    while (chunks_.size() > mark_.chunk + 1) {
      const auto& next = chunks_[mark_.chunk + 1];
      if (static_cast<std::size_t>(next.end - next.begin.get()) >= slots) break;
      slots_ -= static_cast<std::size_t>(next.end - next.begin.get());
      chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(mark_.chunk) + 1);
    }
    if (chunks_.size() == mark_.chunk + 1) add(slots > kChunkSlots ? slots : kChunkSlots);
    ++mark_.chunk;
    auto* out = chunks_[mark_.chunk].begin.get();
    mark_.top = out + slots;
    return out;
  }

  std::vector<Chunk> chunks_;
  Mark mark_;
  std::size_t slots_ = 0;
};

}  // namespace outpost::vm
