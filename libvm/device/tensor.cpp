#include "device/tensor.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

std::string text_of(ffi::ShapeView shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

void set_place(DLTensor& tensor, void* data, std::uint64_t byte_offset, bool plain_pointers) {
  tensor.data = plain_pointers ? static_cast<char*>(data) + byte_offset : data;
  tensor.byte_offset = plain_pointers ? 0 : byte_offset;
}

struct OwnMemory {
  DeviceApi* api;
  void AllocData(DLTensor* tensor, std::uint64_t bytes, std::string_view scope) {
    const auto element = (std::size_t{tensor->dtype.bits} * tensor->dtype.lanes + 7) / 8;
    std::size_t alignment = Buffer::kAlignment;
    while (alignment < element) alignment *= 2;
    tensor->data = api->allocate(tensor->device, bytes, alignment, tensor->dtype, scope);
  }
  void FreeData(DLTensor* tensor) noexcept { api->release(tensor->device, tensor->data); }
};

struct SharedMemory {
  std::shared_ptr<Buffer> buffer;
  void AllocData(DLTensor* tensor, std::uint64_t byte_offset, bool plain_pointers) {
    set_place(*tensor, buffer->data(), byte_offset, plain_pointers);
  }
  void FreeData(DLTensor*) noexcept {}
};

struct OwnerMemory {
  ffi::Tensor owner;
  void AllocData(DLTensor* tensor, std::uint64_t byte_offset, bool plain_pointers) {
    set_place(*tensor, owner.data_ptr(), owner.byte_offset() + byte_offset, plain_pointers);
  }
  void FreeData(DLTensor*) noexcept {}
};

void check_inside(ffi::ShapeView shape, DLDataType dtype, std::uint64_t byte_offset,
                  std::uint64_t all_bytes) {
  const auto bytes = checked_bytes(shape, dtype);
  if (byte_offset > all_bytes || bytes > all_bytes - byte_offset)
    TVM_FFI_THROW(ValueError) << "a view of " << bytes << " bytes at byte " << byte_offset
                              << " reaches outside its memory of " << all_bytes << " bytes";
}

void check_compact(const DLTensor& tensor, std::string_view what) {
  if (!ffi::IsContiguous(tensor))
    TVM_FFI_THROW(ValueError) << what << " must be compact, but has strides";
}

DeviceApi::Place place_of(const DLTensor& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.byte_offset), tensor.device};
}

/// The side that is not the host does the work.
DeviceApi& copier(DLDevice from, DLDevice to) {
  if (from.device_type != kDLCPU && to.device_type != kDLCPU && from.device_type != to.device_type)
    TVM_FFI_THROW(ValueError) << "cannot copy from " << device_type_name(from.device_type) << " to "
                              << device_type_name(to.device_type)
                              << " directly; copy through the cpu";
  return device_api(from.device_type != kDLCPU ? from.device_type : to.device_type);
}

void copy_bytes(const DeviceApi::Place& from, const DeviceApi::Place& to, std::uint64_t bytes,
                DeviceApi::Stream stream) {
  if (bytes == 0) return;
  if (from.data == nullptr || to.data == nullptr)
    TVM_FFI_THROW(ValueError) << "cannot copy " << bytes << " bytes: a tensor has no data";
  copier(from.device, to.device).copy(from, to, bytes, stream);
}

}  // namespace

std::shared_ptr<Buffer> Buffer::allocate(DLDevice device, std::uint64_t bytes,
                                         std::size_t alignment, DLDataType dtype,
                                         std::string_view scope) {
  auto& api = device_api(device.device_type);
  void* data = api.allocate(device, bytes, alignment, dtype, scope);
  return std::shared_ptr<Buffer>{new Buffer{api, device, data, bytes}};
}

Buffer::~Buffer() {
  api_->release(device_, data_);
}

std::uint64_t checked_bytes(ffi::ShapeView shape, DLDataType dtype) {
  const auto bytes = tensor_bytes(shape.data(), static_cast<int>(shape.size()), dtype);
  if (!bytes || dtype.bits == 0 || dtype.lanes == 0)
    TVM_FFI_THROW(ValueError) << "shape " << text_of(shape) << " of "
                              << ffi::DLDataTypeToString(dtype)
                              << (bytes ? " has elements without a size"
                                        : " is negative or too large for memory");
  return *bytes;
}

std::uint64_t checked_bytes(const DLTensor& tensor) {
  return checked_bytes({tensor.shape, static_cast<std::size_t>(std::max(tensor.ndim, 0))},
                       tensor.dtype);
}

ffi::Tensor empty(ffi::ShapeView shape, DLDataType dtype, DLDevice device, std::string_view scope) {
  const auto bytes = checked_bytes(shape, dtype);
  return ffi::Tensor::FromNDAlloc(OwnMemory{&device_api(device.device_type)}, shape, dtype, device,
                                  bytes, scope);
}

ffi::Tensor view_of(std::shared_ptr<Buffer> buffer, ffi::ShapeView shape, DLDataType dtype,
                    std::uint64_t byte_offset) {
  check_inside(shape, dtype, byte_offset, buffer->bytes());
  const auto device = buffer->device();
  const bool plain = device_api(device.device_type).plain_pointers();
  return ffi::Tensor::FromNDAlloc(SharedMemory{std::move(buffer)}, shape, dtype, device,
                                  byte_offset, plain);
}

ffi::Tensor view_of(const ffi::Tensor& owner, ffi::ShapeView shape, DLDataType dtype,
                    std::uint64_t byte_offset) {
  check_compact(*owner.GetDLTensorPtr(), "the tensor of a view");
  check_inside(shape, dtype, byte_offset, checked_bytes(*owner.GetDLTensorPtr()));
  const auto device = owner.device();
  const bool plain = device_api(device.device_type).plain_pointers();
  return ffi::Tensor::FromNDAlloc(OwnerMemory{owner}, shape, dtype, device, byte_offset, plain);
}

void copy_tensor(const DLTensor& from, const DLTensor& to, DeviceApi::Stream stream) {
  check_compact(from, "the source of a copy");
  check_compact(to, "the target of a copy");
  const auto bytes = checked_bytes(from);
  if (const auto target = checked_bytes(to); bytes != target)
    TVM_FFI_THROW(ValueError) << "cannot copy a tensor of " << bytes << " bytes to one of "
                              << target << " bytes";
  copy_bytes(place_of(from), place_of(to), bytes, stream);
}

void write_bytes(const DLTensor& to, const void* from, std::uint64_t bytes) {
  check_compact(to, "the target of a copy");
  if (const auto size = checked_bytes(to); bytes > size)
    TVM_FFI_THROW(ValueError) << "cannot copy " << bytes << " bytes to a tensor of " << size
                              << " bytes";
  copy_bytes({const_cast<void*>(from), 0, {kDLCPU, 0}}, place_of(to), bytes, nullptr);
}

void read_bytes(const DLTensor& from, void* to, std::uint64_t bytes) {
  check_compact(from, "the source of a copy");
  if (const auto size = checked_bytes(from); bytes > size)
    TVM_FFI_THROW(ValueError) << "cannot copy " << bytes << " bytes from a tensor of " << size
                              << " bytes";
  copy_bytes(place_of(from), {to, 0, {kDLCPU, 0}}, bytes, nullptr);
}

void* cpu_data(const DLTensor& tensor, std::string_view what) {
  if (tensor.device.device_type != kDLCPU && tensor.device.device_type != kDLCUDAHost)
    TVM_FFI_THROW(ValueError) << what << " must be on the cpu, but is on "
                              << device_type_name(tensor.device.device_type);
  check_compact(tensor, what);
  if (tensor.data == nullptr && checked_bytes(tensor) != 0)
    TVM_FFI_THROW(ValueError) << what << " has no data";
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

}  // namespace outpost::vm
