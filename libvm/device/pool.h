#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/device_api.h"

namespace outpost::vm {

enum class AllocatorKind { naive = 1, pooled = 2 };

/// Storage of programs on one device. Naive: every storage is an allocation of its own. Pooled:
/// sizes are rounded up to pages, and freed ones are kept for the next storage of that size, the
/// latest first. Shared by the VMs of a session; when the last one ends, nothing is kept any more.
class MemoryPool {
 public:
  struct Statistics {
    std::uint64_t used_bytes = 0;  ///< in storages
    std::uint64_t free_bytes = 0;  ///< kept for later
    std::uint64_t peak_bytes = 0;  ///< most of both together
    std::uint64_t device_allocations = 0;
  };
  struct Block {
    void* data = nullptr;
    std::uint64_t bytes = 0;  ///< rounded
  };

  /// The session's pool of that device and kind.
  static std::shared_ptr<MemoryPool> get(DLDevice device, AllocatorKind kind);
  /// Gives every block that no storage uses back to its device, in all pools.
  static void clear_all();
  /// Most bytes that all pools of the process may hold together; 0: no limit. A larger request
  /// is an error, after unused blocks were given back.
  static void set_limit(std::uint64_t bytes);

  MemoryPool(DLDevice device, AllocatorKind kind);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// @throws tvm::ffi::Error MemoryError with the bytes asked for, held and allowed; InternalError
  /// for a scope that a pool does not have
  Block take(std::uint64_t bytes, std::size_t alignment, DLDataType dtype, std::string_view scope);
  void give(Block block) noexcept;
  void clear() noexcept;
  DLDevice device() const { return device_; }
  const Statistics& statistics() const { return statistics_; }

  /// A VM that uses the pool. Blocks are kept only while there is one.
  class User {
   public:
    explicit User(std::shared_ptr<MemoryPool> pool) : pool_{std::move(pool)} { ++pool_->users_; }
    User(User&& other) noexcept = default;
    User& operator=(User&&) = delete;
    ~User() {
      if (pool_ && --pool_->users_ == 0) pool_->clear();
    }
    const std::shared_ptr<MemoryPool>& pool() const { return pool_; }

   private:
    std::shared_ptr<MemoryPool> pool_;
  };

 private:
  void* allocate(std::uint64_t bytes, std::size_t alignment, DLDataType dtype,
                 std::string_view scope);
  [[noreturn]] void refuse(std::uint64_t bytes) const;

  DLDevice device_;
  AllocatorKind kind_;
  DeviceApi& api_;
  int users_ = 0;
  Statistics statistics_;
  std::unordered_map<std::uint64_t, std::vector<void*>> free_;
};

}  // namespace outpost::vm
