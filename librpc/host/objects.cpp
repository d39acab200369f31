#include "host/objects.h"

#include <tvm/ffi/string.h>

#include <array>

#include "device/tensor.h"
#include "host/call.h"

namespace outpost::host {
namespace ffi = tvm::ffi;
namespace {

constexpr std::size_t kNdimMax = 64;  // room for a shape on the stack
constexpr std::size_t kInlineResultBytes =
    4096;  // a larger bytes result is sent from where it lies

struct Dims {
  std::array<std::int64_t, kNdimMax> at;
  std::size_t count;
  ffi::ShapeView view() const { return {at.data(), count}; }
};

Result<Dims> dims_of(const rpc::TensorView& tensor) {
  Dims out;
  out.count = static_cast<std::size_t>(tensor.ndim());
  if (out.count > kNdimMax)
    return Error{Code::limit,
                 fmt::format("tensor of {} dimensions, at most {}", out.count, kNdimMax)};
  for (std::size_t i = 0; i < out.count; ++i) out.at[i] = tensor.dim(static_cast<std::int32_t>(i));
  return out;
}

std::string shape_text(const Dims& dims) {
  return fmt::format(
      "[{}]",
      fmt::join(dims.at.begin(), dims.at.begin() + static_cast<std::ptrdiff_t>(dims.count), ", "));
}

TVMFFIAny any_of(std::int32_t type_index) {
  TVMFFIAny out{};
  out.type_index = type_index;
  return out;
}

/// The unowned form of a value that `keep` owns.
TVMFFIAny view_of_kept(std::vector<ffi::Any>& keep, ffi::Any value) {
  keep.push_back(std::move(value));
  return ffi::AnyView{keep.back()}.CopyToTVMFFIAny();
}

bool same_view(const DLTensor& tensor, const rpc::TensorView& view) {
  if (view.byte_offset != 0 || tensor.ndim != view.ndim() || !(to_wire(tensor.dtype) == view.dtype))
    return false;
  for (std::int32_t i = 0; i < tensor.ndim; ++i)
    if (tensor.shape[i] != view.dim(i)) return false;
  return true;
}

}  // namespace

Result<std::uint64_t> Objects::tensor_bytes(const rpc::TensorView& tensor) const {
  OUTPOST_TRY(const auto dims, dims_of(tensor));
  const auto bytes = vm::tensor_bytes(dims.at.data(), tensor.ndim(), to_dlpack(tensor.dtype));
  if (!bytes)
    return Error{Code::malformed, fmt::format("tensor of shape {} with {} bits an element has no "
                                              "valid size",
                                              shape_text(dims), tensor.dtype.bits)};
  return *bytes;
}

Result<Objects::Span> Objects::span(const rpc::TensorView& tensor, std::uint64_t bytes) {
  auto found = table_.find(Handle{tensor.data});
  if (found.has_error()) return wrap(std::move(found).error(), "tensor");
  Entry* entry = *found;
  if (entry->kind != Entry::Kind::memory)
    return Error{Code::malformed,
                 fmt::format("handle 0x{:x} is no tensor memory of this session", tensor.data)};
  const auto device = to_wire(entry->device);
  if (!(device == tensor.device))
    return Error{Code::malformed,
                 fmt::format("tensor names device {}:{}, its memory is on {}:{}",
                             tensor.device.type, tensor.device.id, device.type, device.id)};
  if (tensor.byte_offset > entry->bytes || bytes > entry->bytes - tensor.byte_offset)
    return Error{Code::malformed,
                 fmt::format("{} bytes at offset {} reach beyond the tensor's {} bytes", bytes,
                             tensor.byte_offset, entry->bytes)};
  auto* api = vm::find_device(entry->device.device_type);
  if (api == nullptr) return Error{Code::unsupported, "the tensor's device is gone"};
  return Span{entry, api, entry->offset + tensor.byte_offset};
}

Result<> Objects::tensor_argument(const rpc::TensorView& view, TVMFFIAny& out,
                                  std::vector<ffi::Any>& keep) {
  OUTPOST_TRY(const auto bytes, tensor_bytes(view));
  OUTPOST_TRY(const auto span, this->span(view, bytes));
  const auto& owner = span.entry->object;
  const auto* raw = static_cast<const DLTensor*>(owner.as<ffi::TensorObj>());
  if (same_view(*raw, view)) {
    out = view_of_kept(keep, owner);
    return {};
  }
  OUTPOST_TRY(const auto dims, dims_of(view));
  return guarded([&] {
    out = view_of_kept(keep, vm::view_of(owner.cast<ffi::Tensor>(), dims.view(),
                                         to_dlpack(view.dtype), view.byte_offset));
  });
}

Result<> Objects::to_arguments(std::span<const rpc::Value> values, std::vector<TVMFFIAny>& out,
                               std::vector<ffi::Any>& keep, std::vector<TVMFFIByteArray>& views) {
  out.resize(values.size());
  views.resize(values.size());  // before any address of an element is taken
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& v = values[i];
    TVMFFIAny& a = out[i];
    switch (v.kind) {
      case rpc::Kind::none:
        a = any_of(kTVMFFINone);
        break;
      case rpc::Kind::integer:
        a = any_of(kTVMFFIInt);
        a.v_int64 = v.integer;
        break;
      case rpc::Kind::boolean:
        a = any_of(kTVMFFIBool);
        a.v_int64 = v.integer != 0;
        break;
      case rpc::Kind::real:
        a = any_of(kTVMFFIFloat);
        a.v_float64 = v.real;
        break;
      case rpc::Kind::pointer:
        a = any_of(kTVMFFIOpaquePtr);
        a.v_int64 = v.integer;
        break;
      case rpc::Kind::dtype:
        a = any_of(kTVMFFIDataType);
        a.v_dtype = to_dlpack(v.dtype);
        break;
      case rpc::Kind::device:
        a = any_of(kTVMFFIDevice);
        a.v_device = to_dlpack(v.device);
        break;
      case rpc::Kind::string: {
        const auto text = as_text(v.data);
        a = view_of_kept(keep, ffi::String(text.data(), text.size()));
        break;
      }
      case rpc::Kind::bytes: {
        views[i] = {reinterpret_cast<const char*>(v.data.data()), v.data.size()};
        if (v.boxed) {
          a = view_of_kept(keep, ffi::Bytes(views[i].data, views[i].size));
        } else {
          a = any_of(kTVMFFIByteArrayPtr);
          a.v_ptr = &views[i];
        }
        break;
      }
      case rpc::Kind::tensor: {
        if (auto r = tensor_argument(v.tensor, a, keep); r.has_error())
          return wrap(std::move(r).error(), fmt::format("argument {}", i));
        break;
      }
      case rpc::Kind::function:
      case rpc::Kind::module:
      case rpc::Kind::object: {
        auto found = table_.find(Handle{v.handle()});
        if (found.has_error())
          return wrap(std::move(found).error(), fmt::format("argument {} ({})", i, name(v.kind)));
        if ((*found)->kind == Entry::Kind::stream)
          return Error{Code::malformed,
                       fmt::format("argument {}: a stream is no {}", i, name(v.kind))};
        a = view_of_kept(keep, (*found)->object);
        break;
      }
    }
  }
  return {};
}

Result<> Objects::write_tensor(rpc::PackedWriter& out, const ffi::Tensor& tensor) {
  const DLTensor& raw = *tensor.GetDLTensorPtr();
  if (!ffi::IsContiguous(raw))
    return Error{Code::unsupported,
                 "kInvalidDLTensorFieldStride: the returned tensor is not compact; copy it first"};
  auto* api = vm::find_device(raw.device.device_type);
  const auto bytes = vm::tensor_bytes(raw.shape, raw.ndim, raw.dtype);
  if (api == nullptr || !bytes)
    return Error{Code::unsupported,
                 fmt::format("the returned tensor lies on {}, which this server does not have",
                             vm::device_type_name(raw.device.device_type))};
  // The stock client forgets offsets, so the handle stands for the start of the view.
  OUTPOST_TRY(const auto handle, table_.add(Entry{.kind = Entry::Kind::memory,
                                                  .object = tensor,
                                                  .data = raw.data,
                                                  .offset = raw.byte_offset,
                                                  .bytes = *bytes,
                                                  .device = raw.device}));
  const auto id = static_cast<std::uint64_t>(handle);
  out.integer(kTVMFFITensor);
  out.tensor({.data = id,
              .device = to_wire(raw.device),
              .dtype = to_wire(raw.dtype),
              .dims = {reinterpret_cast<const std::byte*>(raw.shape),
                       8 * static_cast<std::size_t>(raw.ndim)},
              .byte_offset = 0});
  out.pointer(id);
  return {};
}

Result<> Objects::write_result(rpc::PackedWriter& out, const ffi::Any& result, Bytes& payload) {
  const auto index = result.type_index();
  if (index == kTVMFFITensor) {
    out.count(3);
    return write_tensor(out, result.cast<ffi::Tensor>());
  }
  const auto raw = ffi::AnyView{result}.CopyToTVMFFIAny();
  out.count(2);
  out.integer(index);
  switch (index) {
    case kTVMFFINone:
      out.none();
      return {};
    case kTVMFFIInt:
      out.integer(raw.v_int64);
      return {};
    case kTVMFFIBool:
      out.boolean(raw.v_int64 != 0);
      return {};
    case kTVMFFIFloat:
      out.real(raw.v_float64);
      return {};
    case kTVMFFIOpaquePtr:
      out.pointer(reinterpret_cast<std::uint64_t>(raw.v_ptr));
      return {};
    case kTVMFFIDataType:
      out.dtype(to_wire(raw.v_dtype));
      return {};
    case kTVMFFIDevice:
      out.device(to_wire(raw.v_device));
      return {};
    case kTVMFFISmallStr:
    case kTVMFFIStr: {
      const auto text = result.cast<ffi::String>();
      const std::string_view view{text.data(), text.size()};
      // The raw form ends at a NUL byte for the stock client; the boxed one does not.
      if (view.find('\0') == std::string_view::npos)
        out.raw_string(view);
      else
        out.boxed_string(view);
      return {};
    }
    case kTVMFFISmallBytes:
    case kTVMFFIBytes: {
      const auto* array = index == kTVMFFIBytes ? TVMFFIBytesGetByteArrayPtr(raw.v_obj) : nullptr;
      if (array != nullptr && array->size > kInlineResultBytes) {
        payload = {reinterpret_cast<const std::byte*>(array->data), array->size};
        out.byte_view_head(array->size);
      } else {
        const auto bytes = result.cast<ffi::Bytes>();
        out.byte_view({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
      }
      return {};
    }
    default:
      break;
  }
  if (index < kTVMFFIStaticObjectBegin)
    return Error{Code::unsupported, fmt::format("a result of type index {} has no form on the wire "
                                                "(a function must not return a view)",
                                                index)};
  OUTPOST_TRY(const auto handle, table_.add(Entry{.kind = Entry::Kind::object, .object = result}));
  out.pointer(static_cast<std::uint64_t>(handle));
  return {};
}

}  // namespace outpost::host
