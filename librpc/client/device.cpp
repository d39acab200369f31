// Devices and streams of a session.
#include "client/link.h"

namespace outpost::client {
namespace {

using detail::Access;
using rpc::FrameCode;

rpc::Value on(Device d) {
  return rpc::arg::device({d.type, d.id});
}

Pointer pointer_of(const Value& value) {
  return value.is_none() ? Pointer{} : value.as_pointer();
}

}  // namespace

struct Stream::State {
  std::shared_ptr<detail::Link> link;
  Device device;
  std::uint64_t stream;
  State(std::shared_ptr<detail::Link> l, Device d, std::uint64_t s)
      : link{std::move(l)}, device{d}, stream{s} {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { link->free_stream(device, stream); }

  Value ask(FrameCode code) const {
    return link->system(code, std::vector{on(device), rpc::arg::pointer(stream)});
  }
};

Pointer Stream::pointer() const {
  return state_ ? Pointer{state_->stream} : Pointer{};
}

void Stream::set() const {
  if (!state_) throw RpcError{Code::argument, "an empty stream was used"};
  (void)state_->ask(FrameCode::dev_set_stream);
}

void Stream::sync() const {
  if (!state_) throw RpcError{Code::argument, "an empty stream was used"};
  (void)state_->ask(FrameCode::dev_stream_sync);
}

Value RemoteDevice::attribute(DeviceAttribute attribute) const {
  return Access::link(session_).system(
      FrameCode::dev_get_attr,
      std::vector{on(device_), rpc::arg::integer(static_cast<std::int32_t>(attribute))});
}

bool RemoteDevice::exists() const {
  const auto answer = attribute(DeviceAttribute::exist);
  return !answer.is_none() && answer.as_int() != 0;
}

Tensor RemoteDevice::empty(std::vector<std::int64_t> shape, DataType dtype,
                           std::string_view scope) const {
  const auto& link = Access::shared_link(session_);
  (void)dtype.bytes(element_count(shape));  // refuses what can't be counted before it is sent
  rpc::TensorView wanted;
  wanted.device = {device_.type, device_.id};
  wanted.dtype = {dtype.code, dtype.bits, dtype.lanes};
  wanted.dims = std::as_bytes(std::span{shape});
  const auto data =
      link->system(FrameCode::dev_alloc_data_with_scope,
                   std::vector{rpc::arg::tensor(wanted),
                               scope.empty() ? rpc::arg::none() : rpc::arg::string(scope)});
  auto memory = std::make_shared<const detail::Memory>(link, detail::Memory::Kind::allocated,
                                                       device_, pointer_of(data).value, 0);
  return Access::make_tensor(std::move(memory), std::move(shape), dtype, 0);
}

void RemoteDevice::sync(Pointer stream) const {
  Access::link(session_).system(FrameCode::dev_stream_sync,
                                std::vector{on(device_), rpc::arg::pointer(stream.value)});
}

void RemoteDevice::set() const {
  Access::link(session_).system(FrameCode::dev_set_device, std::vector{on(device_)});
}

Stream RemoteDevice::create_stream() const {
  const auto& link = Access::shared_link(session_);
  const auto stream = link->system(FrameCode::dev_create_stream, std::vector{on(device_)});
  Stream out;
  out.state_ = std::make_shared<const Stream::State>(link, device_, pointer_of(stream).value);
  return out;
}

void RemoteDevice::set_stream(Pointer stream) const {
  Access::link(session_).system(FrameCode::dev_set_stream,
                                std::vector{on(device_), rpc::arg::pointer(stream.value)});
}

Pointer RemoteDevice::current_stream() const {
  return pointer_of(
      Access::link(session_).system(FrameCode::dev_get_current_stream, std::vector{on(device_)}));
}

}  // namespace outpost::client
