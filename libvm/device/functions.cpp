#include "device/functions.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "device/device_api.h"
#include "device/tensor.h"
#include "register.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

DLDevice device_of(std::int64_t type, std::int64_t id) {
  if (type < 0 || type > INT32_MAX || id < INT32_MIN || id > INT32_MAX)
    TVM_FFI_THROW(ValueError) << "no device has type " << type << " and id " << id;
  return {static_cast<DLDeviceType>(type), static_cast<std::int32_t>(id)};
}

ffi::Any attribute(std::int64_t type, std::int64_t id, std::int64_t kind) {
  const auto device = device_of(type, id);
  if (kind == static_cast<int>(DeviceAttr::exist)) {
    auto* api = find_device(device.device_type);
    return static_cast<std::int64_t>(api != nullptr && api->exists(device.device_id));
  }
  auto& api = device_api(device.device_type);
  if (kind < 0 || kind > static_cast<int>(DeviceAttr::image_pitch_alignment)) return nullptr;
  return api.attribute(device.device_id, static_cast<DeviceAttr>(kind));
}

DeviceApi::Stream stream_of(std::int64_t number) {
  return reinterpret_cast<DeviceApi::Stream>(static_cast<std::intptr_t>(number));
}

void set_stream(DLDevice device, DeviceApi::Stream stream) {
  device_api(device.device_type).set_stream(device, stream);
  TVM_FFI_CHECK_SAFE_CALL(
      TVMFFIEnvSetStream(device.device_type, device.device_id, stream, nullptr));
}

void set_device(std::int64_t type, std::int64_t id) {
  const auto device = device_of(type, id);
  device_api(device.device_type).set_device(device);
}

/// Names that RuntimeEnabled knows beside the device kinds' own, and whose device they ask for.
struct RuntimeName {
  std::string_view name;
  DLDeviceType type;
  bool prefix;  ///< also as the start of a longer name
};
constexpr std::array kRuntimes{
    RuntimeName{"cpu", kDLCPU, false},         RuntimeName{"cuda", kDLCUDA, false},
    RuntimeName{"gpu", kDLCUDA, false},        RuntimeName{"opencl", kDLOpenCL, false},
    RuntimeName{"cl", kDLOpenCL, false},       RuntimeName{"metal", kDLMetal, false},
    RuntimeName{"mtl", kDLMetal, false},       RuntimeName{"vulkan", kDLVulkan, false},
    RuntimeName{"hexagon", kDLHexagon, false}, RuntimeName{"rocm", kDLROCM, true},
    RuntimeName{"nvptx", kDLCUDA, true},
};

bool runtime_enabled(std::string_view name) {
  // The data plane is part of every server; a compiler is part of none.
  if (name == "rpc") return true;
  if (name.starts_with("llvm")) return false;
  for (const auto& known : kRuntimes)
    if (name == known.name || (known.prefix && name.starts_with(known.name)))
      return find_device(known.type) != nullptr;
  std::string names = "rpc, llvm";
  for (const auto& known : kRuntimes) names += ", " + std::string{known.name};
  TVM_FFI_THROW(InternalError) << "Unknown optional runtime " << name << "; known are " << names;
}

bool storage_shared(const DLTensor* a, const DLTensor* b) {
  if (a->device.device_type != b->device.device_type || a->device.device_id != b->device.device_id)
    return false;
  if (a->data == b->data) return true;
  // Offsets were folded into the pointers, so tensors of one memory may differ in them.
  const auto begin = [](const DLTensor* t) {
    return reinterpret_cast<std::uintptr_t>(t->data) + t->byte_offset;
  };
  return begin(a) < begin(b) + checked_bytes(*b) && begin(b) < begin(a) + checked_bytes(*a);
}

std::uint64_t byte_count(std::int64_t bytes, const void* host) {
  if (bytes < 0) TVM_FFI_THROW(ValueError) << "byte count " << bytes << " is negative";
  if (host == nullptr && bytes != 0)
    TVM_FFI_THROW(ValueError) << "null pointer for " << bytes << " bytes";
  return static_cast<std::uint64_t>(bytes);
}

ffi::Tensor create_view(const ffi::Tensor& of, const ffi::Shape& shape, DLDataType dtype,
                        std::int64_t byte_offset) {
  if (byte_offset < 0) TVM_FFI_THROW(ValueError) << "byte offset " << byte_offset << " is negative";
  return view_of(of, shape, dtype, static_cast<std::uint64_t>(byte_offset));
}

void register_streams() {
  add_typed("runtime.Device_StreamCreate", [](DLDevice device) {
    return static_cast<std::int64_t>(
        reinterpret_cast<std::intptr_t>(device_api(device.device_type).create_stream(device)));
  });
  add_typed("runtime.Device_StreamFree", [](DLDevice device, std::int64_t stream) {
    device_api(device.device_type).release_stream(device, stream_of(stream));
  });
  add_typed("runtime.Device_SetStream",
            [](DLDevice device, std::int64_t stream) { set_stream(device, stream_of(stream)); });
  add_typed("runtime.Device_StreamSync", [](DLDevice device, std::int64_t stream) {
    device_api(device.device_type).synchronize(device, stream_of(stream));
  });
  add_typed(
      "runtime.Device_StreamSyncFromTo", [](DLDevice device, std::int64_t from, std::int64_t to) {
        device_api(device.device_type).synchronize_streams(device, stream_of(from), stream_of(to));
      });
  add_typed("runtime.TVMSetStream", [](std::int64_t type, std::int64_t id, void* stream) {
    set_stream(device_of(type, id), stream);
  });
}

void register_tensors() {
  add_typed("runtime.TVMTensorAllocWithScope", [](const ffi::Shape& shape, DLDataType dtype,
                                                  DLDevice device,
                                                  const ffi::Optional<ffi::String>& scope) {
    return empty(shape, dtype, device, scope.has_value() ? as_view(*scope) : std::string_view{});
  });
  add_typed("runtime.TVMTensorCreateView", create_view);
  add_typed("runtime.TVMTensorCopyFromBytes", [](DLTensor* to, void* from, std::int64_t bytes) {
    write_bytes(*to, from, byte_count(bytes, from));
  });
  add_typed("runtime.TVMTensorCopyToBytes", [](DLTensor* from, void* to, std::int64_t bytes) {
    read_bytes(*from, to, byte_count(bytes, to));
  });
  add_typed("runtime.TVMTensorCopyFromTo",
            [](DLTensor* from, DLTensor* to) { copy_tensor(*from, *to); });
  add_typed("runtime.TVMTensorIsStorageShared",
            [](DLTensor* a, DLTensor* b) { return storage_shared(a, b); });
}

}  // namespace

void register_device_functions() {
  add_typed("runtime.GetDeviceAttr", attribute);
  add_typed("runtime.RuntimeEnabled",
            [](const ffi::String& name) { return runtime_enabled(as_view(name)); });
  add_typed("__tvm_set_device", set_device);
  for (int type = 0; type < kDeviceTypes; ++type)
    if (auto* api = find_device(static_cast<DLDeviceType>(type)))
      add_typed("device_api." + std::string{api->name()},
                [api] { return static_cast<void*>(api); });
  register_streams();
  register_tensors();
}

}  // namespace outpost::vm
