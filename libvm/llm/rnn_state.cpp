#include "llm/rnn_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "device/tensor.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;

constexpr std::int64_t kCountMax = 1 << 20;

std::int64_t bounded(std::int64_t value, const char* what) {
  if (value <= 0 || value > kCountMax)
    raise("InternalError", fmt::format("{} is {}, expected 1 to {}", what, value, kCountMax));
  return value;
}

ffi::Tensor int32_tensor(const std::vector<std::int32_t>& values, DLDevice device) {
  auto t = empty({std::ssize(values)}, {kDLInt, 32, 1}, device);
  write_bytes(*t.GetDLTensorPtr(), values.data(), values.size() * sizeof(std::int32_t));
  return t;
}

}  // namespace

RnnState::RnnState(Options options) : options_{std::move(options)} {
  bounded(options_.layers, "the number of layers");
  bounded(options_.sequences_max, "the number of sequences");
  bounded(options_.history, "the history");
  const auto states = options_.initial.size();
  if (states == 0 || options_.get.size() != states || options_.set.size() != states)
    raise("InternalError",
          fmt::format("{} initial states, {} get and {} set functions: one of each "
                      "is needed per state",
                      states, options_.get.size(), options_.set.size()));
  const auto device = options_.initial[0].device();
  for (const auto& t : options_.initial)
    if (t.device().device_type != device.device_type || t.device().device_id != device.device_id)
      raise("InternalError", "the initial states are on different devices");
  for (std::int64_t layer = 0; layer < options_.layers; ++layer)
    for (const auto& t : options_.initial) {
      std::vector<std::int64_t> shape{options_.sequences_max, options_.history};
      shape.insert(shape.end(), t.shape().begin(), t.shape().end());
      storage_.push_back(empty({shape.data(), shape.size()}, t.dtype(), device));
    }
  clear();
}

void RnnState::clear() {
  sequences_.clear();
  free_slots_.clear();
  for (auto slot = options_.sequences_max; slot-- > 0;) free_slots_.push_back(slot);
  batch_.clear();
}

RnnState::Sequence& RnnState::sequence(Id id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end())
    raise("InternalError", fmt::format("The sequence \"{}\" cannot be found in the state", id));
  return it->second;
}

const ffi::Tensor& RnnState::storage(std::int64_t layer, std::int64_t state) const {
  const auto states = std::ssize(options_.initial);
  if (layer < 0 || layer >= options_.layers || state < 0 || state >= states)
    raise("InternalError", fmt::format("layer {} and state {}: there are {} layers of {} states",
                                       layer, state, options_.layers, states));
  return storage_[static_cast<std::size_t>(layer * states + state)];
}

ffi::Tensor RnnState::slot_view(std::int64_t layer, std::int64_t state, std::int64_t slot) const {
  const auto& all = storage(layer, state);
  const ffi::ShapeView shape{all.shape().data() + 1, all.shape().size() - 1};
  const auto bytes = checked_bytes(shape, all.dtype());
  return view_of(all, shape, all.dtype(), static_cast<std::uint64_t>(slot) * bytes);
}

ffi::Tensor RnnState::entry_view(std::int64_t layer, std::int64_t state, std::int64_t slot,
                                 std::int64_t history) const {
  const auto& all = storage(layer, state);
  const ffi::ShapeView shape{all.shape().data() + 2, all.shape().size() - 2};
  const auto bytes = checked_bytes(shape, all.dtype());
  const auto place = static_cast<std::uint64_t>(slot * options_.history + history);
  return view_of(all, shape, all.dtype(), place * bytes);
}

void RnnState::add_sequence(Id id) {
  if (sequences_.contains(id))
    raise("InternalError", fmt::format("The sequence \"{}\" is already in the state.", id));
  if (free_slots_.empty())
    raise("InternalError",
          fmt::format("The sequence slots are full, {} are in use", options_.sequences_max));
  const auto slot = free_slots_.back();
  for (std::int64_t layer = 0; layer < options_.layers; ++layer)
    for (std::size_t k = 0; k < options_.initial.size(); ++k)
      copy_tensor(*options_.initial[k].GetDLTensorPtr(),
                  *entry_view(layer, static_cast<std::int64_t>(k), slot, 0).GetDLTensorPtr());
  free_slots_.pop_back();
  sequences_[id] = {.slot = slot};
  batch_.clear();
}

void RnnState::remove_sequence(Id id) {
  free_slots_.push_back(sequence(id).slot);
  sequences_.erase(id);
  batch_.clear();
}

void RnnState::fork_sequence(Id parent, Id child, std::int64_t) {
  auto copy = sequence(parent);
  if (sequences_.contains(child))
    raise("InternalError", fmt::format("The sequence \"{}\" is already in the state.", child));
  if (free_slots_.empty())
    raise("InternalError",
          fmt::format("The sequence slots are full, {} are in use", options_.sequences_max));
  const auto slot = free_slots_.back();
  for (std::int64_t layer = 0; layer < options_.layers; ++layer)
    for (std::int64_t k = 0; k < std::ssize(options_.initial); ++k)
      copy_tensor(*slot_view(layer, k, copy.slot).GetDLTensorPtr(),
                  *slot_view(layer, k, slot).GetDLTensorPtr());
  free_slots_.pop_back();
  copy.slot = slot;
  sequences_[child] = copy;
  batch_.clear();
}

void RnnState::popn(Id id, std::int64_t n) {
  auto& s = sequence(id);
  if (n < 0 || n > s.available)
    raise("InternalError", fmt::format("The sequence only has {} available states in the history, "
                                       "{} cannot be rolled back",
                                       s.available, n));
  s.history = (s.history - n + options_.history) % options_.history;
  s.available -= n;
  s.length -= n;
  batch_.clear();
}

void RnnState::begin_forward(const std::vector<Id>& ids, const std::vector<std::int64_t>& lengths,
                             const std::optional<std::vector<std::int64_t>>& parents) {
  if (ids.empty() || ids.size() != lengths.size())
    raise("InternalError",
          fmt::format("{} sequences with {} lengths in a batch", ids.size(), lengths.size()));
  if (std::set<Id>(ids.begin(), ids.end()).size() != ids.size())
    raise("InternalError", "a sequence is in the batch twice");
  std::size_t at = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sequence(ids[i]);
    if (lengths[i] <= 0) raise("InternalError", "Append with length 0 is not allowed.");
    for (std::int64_t k = 0; parents && k < lengths[i]; ++k, ++at)
      if (at >= parents->size() || (*parents)[at] != k - 1)
        raise("InternalError", "the state takes chains only: the parent of token i is i - 1");
  }
  if (parents && at != parents->size())
    raise("InternalError", fmt::format("{} parents for {} tokens", parents->size(), at));
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> histories;
  for (const auto id : ids) {
    slots.push_back(static_cast<std::int32_t>(sequence(id).slot));
    histories.push_back(static_cast<std::int32_t>(sequence(id).history));
  }
  const auto device = options_.initial[0].device();
  slots_ = int32_tensor(slots, device);
  histories_ = int32_tensor(histories, device);
  batch_ = ids;
  batch_lengths_ = lengths;
}

void RnnState::end_forward() {
  require_batch();
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    auto& s = sequence(batch_[i]);
    const auto n = batch_lengths_[i];
    s.length += n;
    s.available = n > 1 ? 0 : std::min(s.available + 1, options_.history - 1);
    s.history = (s.history + 1) % options_.history;
  }
  batch_.clear();
}

void RnnState::require_batch() const {
  if (batch_.empty())
    raise("InternalError", "no batch is open: call begin_forward first, again after each change");
}

void RnnState::call(const ffi::Function& f, std::int64_t layer, std::int64_t state,
                    const TVMFFIAny& last) {
  require_batch();
  const ffi::AnyView args[] = {storage(layer, state), slots_, histories_,
                               ffi::AnyView::CopyFromTVMFFIAny(last)};
  ffi::Any dropped;
  f.CallPacked(args, 4, &dropped);
}

void RnnState::get(std::int64_t layer, std::int64_t state, const TVMFFIAny& out) {
  require_batch();
  storage(layer, state);
  call(options_.get[static_cast<std::size_t>(state)], layer, state, out);
}

void RnnState::set(std::int64_t layer, std::int64_t state, const TVMFFIAny& data) {
  require_batch();
  storage(layer, state);
  call(options_.set[static_cast<std::size_t>(state)], layer, state, data);
}

ffi::Tensor RnnState::debug_get(std::int64_t layer, std::int64_t state, Id id) const {
  const auto& s = const_cast<RnnState*>(this)->sequence(id);
  return clone(*entry_view(layer, state, s.slot, s.history).GetDLTensorPtr());
}

}  // namespace outpost::vm
