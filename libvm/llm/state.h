#pragma once
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/object.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "builtin/packed.h"

namespace outpost::vm {

/// What a language model keeps per sequence between steps (vm-llm-state.md). Every operation is all
/// or nothing; errors are tvm::ffi::Error.
class SequenceState {
 public:
  using Id = std::int64_t;
  virtual ~SequenceState() = default;
  virtual void clear() = 0;
  virtual void add_sequence(Id id) = 0;
  virtual void remove_sequence(Id id) = 0;
  virtual void fork_sequence(Id parent, Id child, std::int64_t position) = 0;
  virtual void popn(Id id, std::int64_t n) = 0;
  /// `parents`: the trees of the appended tokens, one after the other.
  virtual void begin_forward(const std::vector<Id>& ids, const std::vector<std::int64_t>& lengths,
                             const std::optional<std::vector<std::int64_t>>& parents) = 0;
  virtual void end_forward() = 0;
};

/// The object that programs hold; the peer's type tree, so that functions which take a state accept
/// every kind of it.
class KvStateObj : public tvm::ffi::Object {
 public:
  std::unique_ptr<SequenceState> impl;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO("relax.vm.KVState", KvStateObj, tvm::ffi::Object);
};
class AttentionKvCacheObj : public KvStateObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO("relax.vm.AttentionKVCache", AttentionKvCacheObj, KvStateObj);
};
class PagedAttentionKvCacheObj : public AttentionKvCacheObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relax.vm.PagedAttentionKVCache", PagedAttentionKvCacheObj,
                                    AttentionKvCacheObj);
};
class RnnStateBaseObj : public KvStateObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO("relax.vm.RNNState", RnnStateBaseObj, KvStateObj);
};
class RnnStateObj : public RnnStateBaseObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relax.vm.RNNStateImp", RnnStateObj, RnnStateBaseObj);
};

/// The state among the arguments. @throws TypeError
template <class Obj>
Obj& state_of(const Args& args, int i) {
  const auto* object = args.view(i).as<Obj>();
  if (object == nullptr) args.wrong_type(i, Obj::_type_key);
  return *const_cast<Obj*>(object);
}

}  // namespace outpost::vm
