#include <tvm/ffi/error.h>

#include <array>
#include <mutex>

#include "base/assert.h"
#include "device/cpu.h"
#include "device/device_api.h"

namespace outpost::vm {
namespace {
std::array<DeviceApi*, kDeviceTypes>& table() {
  static std::array<DeviceApi*, kDeviceTypes> apis{};
  static const bool once = [] {
    apis[kDLCPU] = &cpu_device();
    return true;
  }();
  (void)once;
  return apis;
}
}  // namespace

DeviceApi* find_device(DLDeviceType type) {
  const auto index = static_cast<int>(type);
  return index >= 0 && index < kDeviceTypes ? table()[static_cast<std::size_t>(index)] : nullptr;
}

DeviceApi& device_api(DLDeviceType type) {
  if (auto* api = find_device(type)) return *api;
  TVM_FFI_THROW(RuntimeError) << "Device API " << device_type_name(type) << " is not enabled.";
}

void register_device(DeviceApi* api) {
  const auto index = static_cast<int>(api->type());
  OUTPOST_ASSERT(index >= 0 && index < kDeviceTypes);
  table()[static_cast<std::size_t>(index)] = api;
}

std::string device_type_name(DLDeviceType type) {
  switch (static_cast<int>(type)) {
    case kDLCPU:
      return "cpu";
    case kDLCUDA:
      return "cuda";
    case kDLCUDAHost:
      return "cuda_host";
    case kDLOpenCL:
      return "opencl";
    case kDLVulkan:
      return "vulkan";
    case kDLMetal:
      return "metal";
    case kDLVPI:
      return "vpi";
    case kDLROCM:
      return "rocm";
    case kDLROCMHost:
      return "rocm_host";
    case kDLExtDev:
      return "ext_dev";
    case kDLCUDAManaged:
      return "cuda_managed";
    case kDLOneAPI:
      return "oneapi";
    case kDLWebGPU:
      return "webgpu";
    case kDLHexagon:
      return "hexagon";
    default:
      return "device " + std::to_string(static_cast<int>(type));
  }
}

std::optional<std::uint64_t> tensor_bytes(const std::int64_t* dims, int ndim, DLDataType dtype) {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 62;
  std::uint64_t n = 1;
  bool empty = false;
  for (int i = 0; i < ndim; ++i) {
    if (dims[i] < 0) return std::nullopt;
    if (dims[i] == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(n, static_cast<std::uint64_t>(dims[i]), &n) || n > kMax)
      return std::nullopt;
  }
  if (empty) return 0;
  const auto bits = std::uint64_t{dtype.bits} * dtype.lanes;
  if (__builtin_mul_overflow(n, bits, &n) || n > kMax) return std::nullopt;
  return (n + 7) / 8;
}
}  // namespace outpost::vm
