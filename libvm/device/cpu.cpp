#include "device/cpu.h"

#include <tvm/ffi/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace outpost::vm {
namespace {

class CpuDevice final : public DeviceApi {
 public:
  std::string_view name() const override { return "cpu"; }
  DLDeviceType type() const override { return kDLCPU; }
  bool exists(int) override { return true; }
  bool plain_pointers() const override { return true; }

  tvm::ffi::Any attribute(int, DeviceAttr kind) override {
    if (kind == DeviceAttr::exist) return 1;
    if (kind == DeviceAttr::total_global_memory)
      return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    return nullptr;
  }

  void* allocate(DLDevice, std::size_t bytes, std::size_t alignment, DLDataType,
                 std::string_view scope) override {
    if (!scope.empty() && scope != "global")
      TVM_FFI_THROW(ValueError) << "cpu has no memory scope '" << scope << "'; use \"global\"";
    void* data = nullptr;
    const auto aligned = std::max({alignment, sizeof(void*), std::size_t{64}});
    if (posix_memalign(&data, aligned, std::max<std::size_t>(bytes, 1)) != 0)
      TVM_FFI_THROW(MemoryError) << "cannot allocate " << bytes << " bytes on cpu: out of memory";
    return data;
  }
  void release(DLDevice, void* data) noexcept override { std::free(data); }

  void copy(Place from, Place to, std::size_t bytes, Stream) override {
    std::memmove(static_cast<char*>(to.data) + to.offset_bytes,
                 static_cast<const char*>(from.data) + from.offset_bytes, bytes);
  }
};

}  // namespace

DeviceApi& cpu_device() {
  static CpuDevice device;
  return device;
}
}  // namespace outpost::vm
