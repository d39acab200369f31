// System calls 11 to 21: devices, their memory and streams (rpc-wire.md, Frames).
#include <algorithm>

#include "base/utf8.h"
#include "device/tensor.h"
#include "host/call.h"
#include "host/session.h"

namespace outpost::host {
namespace ffi = tvm::ffi;
using rpc::FrameCode;
using rpc::Kind;
namespace {

constexpr std::int64_t kAlignmentMax = 1 << 20;

Result<vm::DeviceApi*> api_of(DLDevice device) {
  auto* api = vm::find_device(device.device_type);
  if (api == nullptr)
    return Error{Code::unsupported, fmt::format("Device API {} is not enabled.",
                                                vm::device_type_name(device.device_type))};
  if (!api->exists(device.device_id))
    return Error{Code::not_found,
                 fmt::format("{}:{} does not exist on this board", api->name(), device.device_id)};
  return api;
}

Entry memory_entry(ffi::Tensor tensor) {
  const DLTensor& raw = *tensor.GetDLTensorPtr();
  return {.kind = Entry::Kind::memory,
          .allocated = true,
          .object = std::move(tensor),
          .data = raw.data,
          .bytes = vm::checked_bytes(raw),
          .device = raw.device};
}

}  // namespace

Result<DLDevice> Session::device_argument(std::size_t index) {
  OUTPOST_TRY(const auto* value, argument(index, Kind::device, "device"));
  return to_dlpack(value->device);
}

Result<> Session::device_call(FrameCode code) {
  if (code == FrameCode::copy_among_remote) return copy_among();
  if (code == FrameCode::dev_alloc_data_with_scope) return alloc_with_scope();
  OUTPOST_TRY(const auto device, device_argument(0));
  switch (code) {
    case FrameCode::dev_set_device:
      return set_device(device);
    case FrameCode::dev_get_attr:
      return get_attribute(device);
    case FrameCode::dev_alloc_data:
      return alloc_data(device);
    case FrameCode::dev_free_data:
      return free_data(device);
    default:
      return stream_call(code, device);
  }
}

Result<> Session::set_device(DLDevice device) {
  OUTPOST_TRY(auto* api, api_of(device));
  OUTPOST_CHECK(guarded([&] { api->set_device(device); }));
  answer_none();
  return {};
}

Result<> Session::get_attribute(DLDevice device) {
  OUTPOST_TRY(const auto* kind, argument(1, Kind::integer, "attribute"));
  const auto attribute =
      static_cast<vm::DeviceAttr>(std::clamp<std::int64_t>(kind->integer, -1, 1 << 20));
  auto* api = vm::find_device(device.device_type);
  if (attribute == vm::DeviceAttr::exist && (api == nullptr || !api->exists(device.device_id))) {
    answer([](rpc::PackedWriter out) {
      out.count(1);
      out.integer(0);
    });
    return {};
  }
  OUTPOST_TRY(api, api_of(device));
  ffi::Any value;
  OUTPOST_CHECK(guarded([&] { value = api->attribute(device.device_id, attribute); }));
  answer([&](rpc::PackedWriter out) {
    out.count(1);
    if (auto number = value.as<std::int64_t>())
      out.integer(*number);
    else if (auto text = value.as<ffi::String>())
      out.boxed_string({text->data(), text->size()});
    else
      out.none();
  });
  return {};
}

Result<> Session::alloc_data(DLDevice device) {
  OUTPOST_TRY(const auto* bytes, argument(1, Kind::integer, "byte count"));
  OUTPOST_TRY(const auto* alignment, argument(2, Kind::integer, "alignment"));
  OUTPOST_TRY(const auto* dtype, argument(3, Kind::dtype, "data type"));
  OUTPOST_TRY([[maybe_unused]] auto* api, api_of(device));
  if (bytes->integer < 0)
    return Error{Code::malformed, fmt::format("cannot allocate {} bytes", bytes->integer)};
  const auto a = alignment->integer;
  if (a <= 0 || a > kAlignmentMax || (a & (a - 1)) != 0)
    return Error{Code::malformed,
                 fmt::format("alignment {} is not a power of two up to {}", a, kAlignmentMax)};
  Entry entry;
  OUTPOST_CHECK(guarded([&] {
    auto buffer = vm::Buffer::allocate(device, static_cast<std::uint64_t>(bytes->integer),
                                       static_cast<std::size_t>(a), to_dlpack(dtype->dtype));
    const std::int64_t shape[] = {bytes->integer};
    entry = memory_entry(vm::view_of(std::move(buffer), {shape, 1}, DLDataType{kDLUInt, 8, 1}));
  }));
  OUTPOST_TRY(const auto handle, objects_.add(std::move(entry)));
  answer_pointer(static_cast<std::uint64_t>(handle));
  return {};
}

Result<> Session::alloc_with_scope() {
  OUTPOST_TRY(const auto* value, argument(0, Kind::tensor, "tensor"));
  std::string_view scope;
  if (values_.size() > 1 && values_[1].kind != Kind::none) {
    OUTPOST_TRY(const auto* text, argument(1, Kind::string, "memory scope"));
    scope = as_text(text->data);
  }
  const auto& tensor = value->tensor;
  const auto device = to_dlpack(tensor.device);
  OUTPOST_TRY([[maybe_unused]] auto* api, api_of(device));
  OUTPOST_CHECK(objects_.tensor_bytes(tensor));
  Entry entry;
  OUTPOST_CHECK(guarded([&] {
    std::vector<std::int64_t> shape;
    for (std::int32_t i = 0; i < tensor.ndim(); ++i) shape.push_back(tensor.dim(i));
    entry = memory_entry(
        vm::empty({shape.data(), shape.size()}, to_dlpack(tensor.dtype), device, scope));
  }));
  OUTPOST_TRY(const auto handle, objects_.add(std::move(entry)));
  answer_pointer(static_cast<std::uint64_t>(handle));
  return {};
}

Result<> Session::free_data(DLDevice device) {
  OUTPOST_TRY(const auto* pointer, argument(1, Kind::pointer, "data handle"));
  OUTPOST_TRY(const Entry* entry, objects_.find(pointer->handle()));
  if (!entry->allocated)
    return Error{Code::malformed,
                 fmt::format("handle 0x{:x} is not memory that DevAlloc gave: free it "
                             "with FreeHandle",
                             pointer->handle())};
  if (entry->device.device_type != device.device_type ||
      entry->device.device_id != device.device_id)
    return Error{
        Code::malformed,
        fmt::format("handle 0x{:x} is memory of another device than {}:{}", pointer->handle(),
                    static_cast<int>(device.device_type), device.device_id)};
  OUTPOST_TRY(auto taken, objects_.take(pointer->handle()));
  OUTPOST_CHECK(guarded([&] { taken = Entry{}; }));
  answer_none();
  return {};
}

Result<> Session::copy_among() {
  OUTPOST_TRY(const auto* from, argument(0, Kind::tensor, "source tensor"));
  OUTPOST_TRY(const auto* to, argument(1, Kind::tensor, "target tensor"));
  OUTPOST_TRY(const auto from_bytes, objects_.tensor_bytes(from->tensor));
  OUTPOST_TRY(const auto to_bytes, objects_.tensor_bytes(to->tensor));
  if (from_bytes != to_bytes)
    return Error{Code::malformed, fmt::format("cannot copy {} bytes into a tensor of {} bytes",
                                              from_bytes, to_bytes)};
  OUTPOST_TRY(const auto source, objects_.span(from->tensor, from_bytes));
  OUTPOST_TRY(const auto target, objects_.span(to->tensor, to_bytes));
  OUTPOST_TRY(const auto stream, stream_argument(2, source.entry->device));
  auto* api = source.api->type() == kDLCPU ? target.api : source.api;
  if (source.api->type() != kDLCPU && target.api->type() != kDLCPU && source.api != target.api)
    return Error{Code::unsupported, fmt::format("no direct copy from {} to {}", source.api->name(),
                                                target.api->name())};
  OUTPOST_CHECK(guarded([&] {
    api->copy({source.entry->data, source.offset, source.entry->device},
              {target.entry->data, target.offset, target.entry->device}, from_bytes, stream);
  }));
  answer_none();
  return {};
}

Result<vm::DeviceApi::Stream> Session::stream_argument(std::size_t index, DLDevice device) {
  if (index >= values_.size() || values_[index].kind == Kind::none) return vm::DeviceApi::Stream{};
  OUTPOST_TRY(const auto* pointer, argument(index, Kind::pointer, "stream"));
  if (pointer->handle() == 0) return vm::DeviceApi::Stream{};
  OUTPOST_TRY(const Entry* entry, objects_.find(pointer->handle()));
  if (entry->kind != Entry::Kind::stream || entry->device.device_type != device.device_type)
    return Error{Code::malformed,
                 fmt::format("handle 0x{:x} is no stream of this device", pointer->handle())};
  return entry->data;
}

Result<> Session::stream_call(FrameCode code, DLDevice device) {
  OUTPOST_TRY(auto* api, api_of(device));
  if (code == FrameCode::dev_create_stream || code == FrameCode::dev_get_current_stream) {
    vm::DeviceApi::Stream stream = nullptr;
    const bool create = code == FrameCode::dev_create_stream;
    OUTPOST_CHECK(guarded(
        [&] { stream = create ? api->create_stream(device) : api->current_stream(device); }));
    std::uint64_t handle = 0;
    if (stream != nullptr) {
      OUTPOST_TRY(
          const auto added,
          objects_.add(Entry{.kind = Entry::Kind::stream, .data = stream, .device = device}));
      handle = static_cast<std::uint64_t>(added);
    }
    answer_pointer(handle);
    return {};
  }
  OUTPOST_TRY(const auto stream, stream_argument(1, device));
  OUTPOST_CHECK(guarded([&] {
    switch (code) {
      case FrameCode::dev_stream_sync:
        api->synchronize(device, stream);
        break;
      case FrameCode::dev_set_stream:
        api->set_stream(device, stream);
        break;
      case FrameCode::dev_free_stream:
        api->release_stream(device, stream);
        break;
      default:
        break;
    }
  }));
  if (code == FrameCode::dev_free_stream && stream != nullptr)
    (void)objects_.take(values_[1].handle());
  answer_none();
  return {};
}

}  // namespace outpost::host
