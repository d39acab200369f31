#include "thread/workspace.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "device/device_api.h"
#include "raised.h"

namespace outpost::vm {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

/// Scratch memory of one device for one thread. Kernels free nearly always in reverse order.
class WorkspacePool {
 public:
  explicit WorkspacePool(DLDevice device)
      : device_{device}, api_{&device_api(device.device_type)} {}
  WorkspacePool(const WorkspacePool&) = delete;
  WorkspacePool& operator=(const WorkspacePool&) = delete;
  ~WorkspacePool() {
    for (const auto& block : free_) api_->release(device_, block.data);
    for (const auto& block : used_) api_->release(device_, block.data);
  }
  bool serves(DLDevice device) const {
    return device_.device_type == device.device_type && device_.device_id == device.device_id;
  }

  void* allocate(std::uint64_t bytes) {
    if (bytes > (std::uint64_t{1} << 62))
      TVM_FFI_THROW(MemoryError) << "workspace of " << bytes << " bytes";
    const auto size =
        std::max<std::uint64_t>(1, (bytes + kPageBytes - 1) / kPageBytes) * kPageBytes;
    const auto fit = std::lower_bound(free_.begin(), free_.end(), size,
                                      [](const Block& b, std::uint64_t n) { return b.bytes < n; });
    Block block{};
    if (fit != free_.end()) {
      block = *fit;
      free_.erase(fit);
    } else {
      if (!free_.empty()) {  // the largest is too small: replaced, so the pool does not pile up
        api_->release(device_, free_.back().data);
        free_.pop_back();
      }
      block = {api_->allocate(device_, size, 64, {kDLUInt, 8, 1}, {}), size};
    }
    used_.push_back(block);
    return block.data;
  }

  bool release(void* data) {
    for (auto it = used_.rbegin(); it != used_.rend(); ++it) {
      if (it->data != data) continue;
      const Block block = *it;
      used_.erase(std::next(it).base());
      free_.insert(std::lower_bound(free_.begin(), free_.end(), block.bytes,
                                    [](const Block& b, std::uint64_t n) { return b.bytes < n; }),
                   block);
      return true;
    }
    return false;
  }

 private:
  struct Block {
    void* data;
    std::uint64_t bytes;
  };
  DLDevice device_;
  DeviceApi* api_;
  std::vector<Block> free_;  ///< by size
  std::vector<Block> used_;  ///< in order of allocation
};

WorkspacePool& pool_of(DLDevice device) {
  thread_local std::vector<std::unique_ptr<WorkspacePool>> pools;
  for (auto& pool : pools)
    if (pool->serves(device)) return *pool;
  return *pools.emplace_back(std::make_unique<WorkspacePool>(device));
}

}  // namespace

void* allocate_workspace(int device_type, int device_id, std::uint64_t bytes) {
  void* data = nullptr;
  guarded([&] {
    data = pool_of({static_cast<DLDeviceType>(device_type), device_id}).allocate(bytes);
    return 0;
  });
  return data;
}

int free_workspace(int device_type, int device_id, void* data) {
  return guarded([&] {
    if (pool_of({static_cast<DLDeviceType>(device_type), device_id}).release(data)) return 0;
    return raise_error("RuntimeError", "workspace freed that this thread did not allocate");
  });
}

}  // namespace outpost::vm
