#include "device/pool.h"

#include <fmt/format.h>
#include <malloc.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <map>
#include <utility>

namespace outpost::vm {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kAlignmentMin = 64;

/// One session per process: its pools, and what they hold together.
struct Session {
  std::map<std::pair<std::pair<int, int>, AllocatorKind>, std::weak_ptr<MemoryPool>> pools;
  std::uint64_t held_bytes = 0;
  std::uint64_t limit_bytes = 0;
};
Session& session() {
  static Session s;
  return s;
}

}  // namespace

std::shared_ptr<MemoryPool> MemoryPool::get(DLDevice device, AllocatorKind kind) {
  auto& entry = session().pools[{{device.device_type, device.device_id}, kind}];
  auto pool = entry.lock();
  if (!pool) {
    pool = std::make_shared<MemoryPool>(device, kind);
    entry = pool;
  }
  return pool;
}

void MemoryPool::clear_all() {
  for (const auto& [key, entry] : session().pools)
    if (const auto pool = entry.lock()) pool->clear();
  malloc_trim(0);  // the C library keeps pages of freed blocks otherwise
}

void MemoryPool::set_limit(std::uint64_t bytes) {
  session().limit_bytes = bytes;
}

MemoryPool::MemoryPool(DLDevice device, AllocatorKind kind)
    : device_{device}, kind_{kind}, api_{device_api(device.device_type)} {}

MemoryPool::~MemoryPool() {
  clear();
}

MemoryPool::Block MemoryPool::take(std::uint64_t bytes, std::size_t alignment, DLDataType dtype,
                                   std::string_view scope) {
  alignment = std::max(alignment, kAlignmentMin);
  Block block{nullptr, bytes};
  if (kind_ == AllocatorKind::pooled) {
    if (!scope.empty() && scope != "global")
      throw tvm::ffi::Error(
          "InternalError",
          fmt::format("the pooled allocator has no memory scope '{}'; use the naive one", scope),
          "");
    if (bytes > UINT64_MAX - kPageBytes) refuse(bytes);
    block.bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (const auto it = free_.find(block.bytes); it != free_.end() && !it->second.empty()) {
      block.data = it->second.back();
      it->second.pop_back();
      statistics_.free_bytes -= block.bytes;
      statistics_.used_bytes += block.bytes;
      return block;
    }
  }
  block.data = allocate(block.bytes, alignment, dtype, scope);
  session().held_bytes += block.bytes;
  statistics_.used_bytes += block.bytes;
  statistics_.device_allocations += 1;
  statistics_.peak_bytes =
      std::max(statistics_.peak_bytes, statistics_.used_bytes + statistics_.free_bytes);
  return block;
}

void* MemoryPool::allocate(std::uint64_t bytes, std::size_t alignment, DLDataType dtype,
                           std::string_view scope) {
  const auto fits = [bytes] {
    const auto& s = session();
    return s.limit_bytes == 0 ||
           (s.held_bytes <= s.limit_bytes && bytes <= s.limit_bytes - s.held_bytes);
  };
  if (!fits()) clear_all();
  if (!fits()) refuse(bytes);
  try {
    return api_.allocate(device_, bytes, alignment, dtype, scope);
  } catch (const tvm::ffi::Error& e) {
    if (e.kind() == "ValueError" || session().held_bytes == 0) {
      if (e.kind() == "ValueError") throw;
      refuse(bytes);
    }
  }
  clear_all();  // what is only kept for later may be what is missing now
  try {
    return api_.allocate(device_, bytes, alignment, dtype, scope);
  } catch (const tvm::ffi::Error&) {
    refuse(bytes);
  }
}

void MemoryPool::refuse(std::uint64_t bytes) const {
  const auto& s = session();
  throw tvm::ffi::Error(
      "MemoryError",
      fmt::format("cannot allocate {} bytes on {}({}): the session holds {} bytes, {}", bytes,
                  device_type_name(device_.device_type), device_.device_id, s.held_bytes,
                  s.limit_bytes == 0 ? "the device has no more"
                                     : fmt::format("its limit is {}", s.limit_bytes)),
      "");
}

void MemoryPool::give(Block block) noexcept {
  statistics_.used_bytes -= block.bytes;
  if (kind_ == AllocatorKind::pooled && users_ > 0) {
    try {
      free_[block.bytes].push_back(block.data);
      statistics_.free_bytes += block.bytes;
      return;
    } catch (const std::bad_alloc&) {
      // no memory to remember it: give it back instead
    }
  }
  session().held_bytes -= block.bytes;
  api_.release(device_, block.data);
}

void MemoryPool::clear() noexcept {
  for (auto& [bytes, blocks] : free_) {
    for (void* data : blocks) api_.release(device_, data);
    session().held_bytes -= bytes * blocks.size();
  }
  free_.clear();
  statistics_.free_bytes = 0;
}

}  // namespace outpost::vm
