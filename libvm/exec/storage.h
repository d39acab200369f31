#pragma once
#include <tvm/ffi/object.h>

#include <memory>

#include "device/pool.h"

namespace outpost::vm {

/// What alloc_storage gives: a block of a pool. Tensors cut from it keep it alive.
class StorageObj : public tvm::ffi::Object {
 public:
  StorageObj(std::shared_ptr<MemoryPool> p, MemoryPool::Block b) : pool{std::move(p)}, block{b} {}
  ~StorageObj() { pool->give(block); }
  std::shared_ptr<MemoryPool> pool;
  MemoryPool::Block block;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("vm.Storage", StorageObj, tvm::ffi::Object);
};

class Storage : public tvm::ffi::ObjectRef {
 public:
  Storage(std::shared_ptr<MemoryPool> pool, MemoryPool::Block block)
      : ObjectRef{tvm::ffi::make_object<StorageObj>(std::move(pool), block)} {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Storage, tvm::ffi::ObjectRef, StorageObj);
};

}  // namespace outpost::vm
