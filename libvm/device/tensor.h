#pragma once
#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "device/device_api.h"

namespace outpost::vm {

/// Memory of one device, given back through its DeviceApi when the last owner goes. One session
/// and thread; tensors that look at it share the ownership.
class Buffer {
 public:
  /// @param alignment  a power of two; the device may align more
  /// @throws tvm::ffi::Error when the device is not enabled, has no such scope or no memory
  static std::shared_ptr<Buffer> allocate(DLDevice device, std::uint64_t bytes,
                                          std::size_t alignment = kAlignment,
                                          DLDataType dtype = {kDLUInt, 8, 1},
                                          std::string_view scope = {});
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  DLDevice device() const { return device_; }

  static constexpr std::size_t kAlignment = 64;

 private:
  Buffer(DeviceApi& api, DLDevice device, void* data, std::uint64_t bytes)
      : api_{&api}, device_{device}, data_{data}, bytes_{bytes} {}
  DeviceApi* api_;
  DLDevice device_;
  void* data_;
  std::uint64_t bytes_;
};

/// Bytes of a tensor of this shape and type. @throws ValueError that shows both when a dimension
/// is negative, the size overflows or the element type has no size.
std::uint64_t checked_bytes(tvm::ffi::ShapeView shape, DLDataType dtype);
std::uint64_t checked_bytes(const DLTensor& tensor);

/// A new compact tensor that owns its memory; contents undefined.
tvm::ffi::Tensor empty(tvm::ffi::ShapeView shape, DLDataType dtype, DLDevice device,
                       std::string_view scope = {});

/// A tensor over `[byte_offset, byte_offset + its size)` of the buffer, which it keeps alive. The
/// offset goes into the pointer where the device has plain pointers. @throws ValueError when it
/// would reach outside.
tvm::ffi::Tensor view_of(std::shared_ptr<Buffer> buffer, tvm::ffi::ShapeView shape,
                         DLDataType dtype, std::uint64_t byte_offset = 0);

/// The same for memory that another tensor owns: shares its data with another shape or type.
tvm::ffi::Tensor view_of(const tvm::ffi::Tensor& owner, tvm::ffi::ShapeView shape, DLDataType dtype,
                         std::uint64_t byte_offset = 0);

/// Copies all of `from` to `to`: compact, equal byte sizes (types may differ), any two devices of
/// one kind, or one of them the CPU. Waits for nothing on devices with streams.
void copy_tensor(const DLTensor& from, const DLTensor& to, DeviceApi::Stream stream = nullptr);
/// Copies between host memory and the start of a compact tensor; `bytes` is at most its size.
void write_bytes(const DLTensor& to, const void* from, std::uint64_t bytes);
void read_bytes(const DLTensor& from, void* to, std::uint64_t bytes);

/// Start of a compact CPU tensor's elements, with its byte offset. @throws ValueError naming
/// `what` when it is elsewhere or has gaps.
void* cpu_data(const DLTensor& tensor, std::string_view what);

}  // namespace outpost::vm
