#pragma once
#include <dlpack/dlpack.h>
#include <tvm/ffi/any.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outpost::vm {

/// Attribute numbers of DevGetAttr and runtime.GetDeviceAttr (server-functions.md, Device
/// attributes).
enum class DeviceAttr : int {
  exist = 0,
  max_threads_per_block = 1,
  warp_size = 2,
  max_shared_memory_per_block = 3,
  compute_version = 4,
  device_name = 5,
  max_clock_rate_khz = 6,
  multiprocessor_count = 7,
  max_thread_dimensions = 8,
  max_registers_per_block = 9,
  gcn_arch = 10,
  api_version = 11,
  driver_version = 12,
  l2_cache_bytes = 13,
  total_global_memory = 14,
  available_global_memory = 15,
  image_pitch_alignment = 16,
};

/// A kind of device (DLPack device type) with all its instances. One object per kind and process;
/// plug-ins implement it too. Functions fail by throwing tvm::ffi::Error, since they run below
/// tvm-ffi calls. All are called from the session's own thread.
class DeviceApi {
 public:
  using Stream = void*;  ///< null is the default stream
  virtual ~DeviceApi() = default;

  /// "cpu", "cuda", ...: the name in messages and in `device_api.<name>`.
  virtual std::string_view name() const = 0;
  virtual DLDeviceType type() const = 0;
  virtual bool exists(int id) = 0;
  /// None for a number that is unknown or that the device cannot tell.
  virtual tvm::ffi::Any attribute(int id, DeviceAttr kind) = 0;
  /// Whether memory is addressed by plain pointers, so that an offset can be folded into one.
  virtual bool plain_pointers() const = 0;

  /// Bytes of uninitialised memory. `scope` "" and "global" are plain memory; others may be
  /// refused. `alignment` is a power of two. Never null; 0 bytes give a pointer that can be freed.
  virtual void* allocate(DLDevice device, std::size_t bytes, std::size_t alignment,
                         DLDataType dtype, std::string_view scope) = 0;
  virtual void release(DLDevice device, void* data) noexcept = 0;

  /// Copies `bytes` between memory of this kind and/or host memory (kDLCPU); offsets count from the
  /// pointers that allocate gave. At least one side is of this kind.
  struct Place {
    void* data;
    std::size_t offset_bytes;
    DLDevice device;
  };
  virtual void copy(Place from, Place to, std::size_t bytes, Stream stream) = 0;

  virtual void set_device(DLDevice) {}
  virtual Stream create_stream(DLDevice) { return nullptr; }
  virtual void release_stream(DLDevice, Stream) {}
  virtual void synchronize(DLDevice, Stream) {}
  /// Makes `to` wait for what `from` holds now. Waiting on the host is right, if slow.
  virtual void synchronize_streams(DLDevice device, Stream from, Stream) {
    synchronize(device, from);
  }
  virtual void set_stream(DLDevice, Stream) {}
  virtual Stream current_stream(DLDevice) { return nullptr; }
};

/// Device type numbers from here on are unknown to every process.
inline constexpr int kDeviceTypes = 64;
/// The kind's api, or null when this process has none. Plug-ins register theirs before first use.
DeviceApi* find_device(DLDeviceType type);
/// The same; throws `Device API cuda is not enabled.` (RuntimeError) when there is none.
DeviceApi& device_api(DLDeviceType type);
/// Adds or replaces the api for its type. The object lives until the process ends.
void register_device(DeviceApi* api);
/// DLPack's name of a type ("cpu", "cuda", "opencl", ...); "device 99" for an unknown number.
std::string device_type_name(DLDeviceType type);

/// `dims` multiplied with the element size, sub-byte types packed over the whole tensor:
/// (elements * bits * lanes + 7) / 8. Empty when a dimension is negative or the product overflows
/// 2^62.
std::optional<std::uint64_t> tensor_bytes(const std::int64_t* dims, int ndim, DLDataType dtype);

}  // namespace outpost::vm
