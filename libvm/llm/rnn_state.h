#pragma once
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <map>
#include <vector>

#include "llm/state.h"

namespace outpost::vm {

/// State of recurrent layers: per sequence a slot with the last states, of which some can be taken
/// back (vm-llm-state.md, section 9).
class RnnState final : public SequenceState {
 public:
  struct Options {
    std::int64_t layers = 0;
    std::int64_t sequences_max = 0;
    std::int64_t history = 0;
    std::vector<tvm::ffi::Function> get;  ///< one per state: (storage, slots, histories, out)
    std::vector<tvm::ffi::Function> set;  ///< (storage, slots, histories, data)
    std::vector<tvm::ffi::Tensor> initial;
  };
  explicit RnnState(Options options);

  void clear() override;
  void add_sequence(Id id) override;
  void remove_sequence(Id id) override;
  void fork_sequence(Id parent, Id child, std::int64_t position) override;
  void popn(Id id, std::int64_t n) override;
  void begin_forward(const std::vector<Id>& ids, const std::vector<std::int64_t>& lengths,
                     const std::optional<std::vector<std::int64_t>>& parents) override;
  void end_forward() override;

  void get(std::int64_t layer, std::int64_t state, const TVMFFIAny& out);
  void set(std::int64_t layer, std::int64_t state, const TVMFFIAny& data);
  tvm::ffi::Tensor debug_get(std::int64_t layer, std::int64_t state, Id id) const;

 private:
  struct Sequence {
    std::int64_t slot = 0;
    std::int64_t history = 0;    ///< position of the latest states
    std::int64_t available = 0;  ///< how many can be taken back
    std::int64_t length = 0;
  };
  Sequence& sequence(Id id);
  const tvm::ffi::Tensor& storage(std::int64_t layer, std::int64_t state) const;
  /// The states of one slot, all its history or one position of it.
  tvm::ffi::Tensor slot_view(std::int64_t layer, std::int64_t state, std::int64_t slot) const;
  tvm::ffi::Tensor entry_view(std::int64_t layer, std::int64_t state, std::int64_t slot,
                              std::int64_t history) const;
  void require_batch() const;
  void call(const tvm::ffi::Function& f, std::int64_t layer, std::int64_t state,
            const TVMFFIAny& last);

  Options options_;
  std::vector<tvm::ffi::Tensor> storage_;  ///< layer by layer, its states
  std::vector<std::int64_t> free_slots_;   ///< the next one last
  std::map<Id, Sequence> sequences_;
  std::vector<Id> batch_;  ///< empty: no batch is open
  std::vector<std::int64_t> batch_lengths_;
  tvm::ffi::Tensor slots_;
  tvm::ffi::Tensor histories_;
};

}  // namespace outpost::vm
