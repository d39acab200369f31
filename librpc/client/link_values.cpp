// Between the values of the wire and those of the public headers.
#include <bit>

#include "client/link.h"

namespace outpost::client::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "shapes go to the wire as they lie");

rpc::Device wire(Device d) {
  return {d.type, d.id};
}
rpc::DType wire(DataType t) {
  return {t.code, t.bits, t.lanes};
}
DataType from_wire(rpc::DType t) {
  return {t.code, t.bits, t.lanes};
}
Device from_wire(rpc::Device d) {
  return {d.type, d.id};
}

constexpr std::string_view kElsewhere = "belongs to another session: only this one can use it";

template <class T>
std::uint64_t handle_of(const T& thing, const Link* link, std::string_view what) {
  const auto& reference = Access::reference(thing);
  if (reference.link.get() != link)
    throw RpcError{Code::argument, fmt::format("a {} argument {}", what, kElsewhere)};
  return reference.handle;
}

}  // namespace

Value Link::take_value() {
  const auto& answer = session_.answer();
  const auto& v = answer.value;
  switch (v.kind) {
    case rpc::Kind::none:
      return {};
    case rpc::Kind::integer:
      return Value{v.integer};
    case rpc::Kind::boolean:
      return Value{v.integer != 0};
    case rpc::Kind::real:
      return Value{v.real};
    case rpc::Kind::pointer:
      if (answer.tag >= rpc::kObjectBegin) return take_object(answer.tag, v.handle());
      return Value{Pointer{v.handle()}};
    case rpc::Kind::dtype:
      return Value{from_wire(v.dtype)};
    case rpc::Kind::device:
      return Value{from_wire(v.device)};
    case rpc::Kind::tensor:
      return take_tensor();
    case rpc::Kind::string:
      return Value{std::string{as_text(v.data)}};
    case rpc::Kind::bytes:
      return Value{Value::Blob{v.data.begin(), v.data.end()}};
    case rpc::Kind::function:
    case rpc::Kind::module:
    case rpc::Kind::object:
      return take_object(v.kind == rpc::Kind::module ? rpc::kModule : answer.tag, v.handle());
  }
  return {};
}

Value Link::take_object(std::int32_t tag, std::uint64_t handle) {
  if (handle == 0) return {};
  const auto held = std::make_shared<const Reference>(shared_from_this(), handle, tag);
  if (tag == rpc::kFunction) return Value{Access::make<Function>(held)};
  if (tag == rpc::kModule) return Value{Access::make<Module>(held)};
  return Value{Access::make<Object>(held)};
}

Value Link::take_tensor() {
  const auto& answer = session_.answer();
  const auto& view = answer.value.tensor;
  std::vector<std::int64_t> shape;
  for (std::int32_t i = 0; i < view.ndim(); ++i) shape.push_back(view.dim(i));
  const auto kind = answer.owner != 0 ? Memory::Kind::owned : Memory::Kind::borrowed;
  auto memory = std::make_shared<const Memory>(shared_from_this(), kind, from_wire(view.device),
                                               view.data, answer.owner);
  (void)from_wire(view.dtype).bytes(element_count(shape));  // refuses a size that no memory has
  return Value{Access::make_tensor(std::move(memory), std::move(shape), from_wire(view.dtype),
                                   view.byte_offset)};
}

rpc::Value Link::to_wire(const Argument& argument) const {
  struct Visitor {
    const Link* link;
    rpc::Value operator()(std::monostate) const { return rpc::arg::none(); }
    rpc::Value operator()(std::int64_t v) const { return rpc::arg::integer(v); }
    rpc::Value operator()(bool v) const { return rpc::arg::boolean(v); }
    rpc::Value operator()(double v) const { return rpc::arg::real(v); }
    rpc::Value operator()(Pointer v) const { return rpc::arg::pointer(v.value); }
    rpc::Value operator()(DataType v) const { return rpc::arg::dtype(wire(v)); }
    rpc::Value operator()(Device v) const { return rpc::arg::device(wire(v)); }
    rpc::Value operator()(std::string_view v) const { return rpc::arg::string(v); }
    rpc::Value operator()(Argument::Blob v) const { return rpc::arg::bytes(v); }
    rpc::Value operator()(const Tensor* v) const {
      if (const auto& memory = Access::memory(*v); memory && memory->link.get() != link)
        throw RpcError{Code::argument, fmt::format("a tensor argument {}", kElsewhere)};
      return rpc::arg::tensor(view_of(*v));
    }
    rpc::Value operator()(const Function* v) const {
      return rpc::arg::function(handle_of(*v, link, "function"));
    }
    rpc::Value operator()(const Module* v) const {
      return rpc::arg::module(handle_of(*v, link, "module"));
    }
    rpc::Value operator()(const Object* v) const {
      return rpc::arg::object(handle_of(*v, link, "object"));
    }
  };
  return std::visit(Visitor{this}, argument.storage());
}

Tensor Access::make_tensor(std::shared_ptr<const Memory> memory, std::vector<std::int64_t> shape,
                           DataType dtype, std::uint64_t byte_offset) {
  Tensor out;
  out.memory_ = std::move(memory);
  out.shape_ = std::move(shape);
  out.dtype_ = dtype;
  out.byte_offset_ = byte_offset;
  return out;
}

Session Access::make_session(std::shared_ptr<Link> link) {
  Session out;
  out.link_ = std::move(link);
  return out;
}

TimeEvaluator Access::make_evaluator(Function function) {
  TimeEvaluator out;
  out.function_ = std::move(function);
  return out;
}

Link& Access::link(const Session& session) {
  return *shared_link(session);
}

const std::shared_ptr<Link>& Access::shared_link(const Session& session) {
  if (session.link_ == nullptr) refuse_empty();
  return session.link_;
}

void Access::refuse_empty() {
  throw RpcError{Code::argument, "an empty session, tensor, function, module or object was used"};
}

const Memory& Access::memory_of(const Tensor& tensor) {
  if (tensor.memory_ == nullptr) refuse_empty();
  return *tensor.memory_;
}

rpc::TensorView view_of(const Tensor& tensor) {
  const auto& memory = Access::memory_of(tensor);
  rpc::TensorView out;
  out.data = memory.data;
  out.device = wire(memory.device);
  out.dtype = wire(tensor.dtype());
  out.dims = std::as_bytes(std::span{tensor.shape()});
  out.byte_offset = tensor.byte_offset();
  return out;
}

void throw_error(Error error) {
  switch (error.code) {
    case outpost::Code::timeout:
      throw ConnectionError{Code::timeout, error.text};
    case outpost::Code::io:
      throw ConnectionError{Code::io, error.text};
    case outpost::Code::malformed:
      throw ConnectionError{Code::malformed, error.text};
    case outpost::Code::limit:
      throw RpcError{Code::limit, error.text};
    case outpost::Code::unsupported:
      throw RpcError{Code::unsupported, error.text};
    case outpost::Code::not_found:
      throw RpcError{Code::not_found, error.text};
    case outpost::Code::denied:
      throw RpcError{Code::denied, error.text};
    case outpost::Code::busy:
      throw RpcError{Code::busy, error.text};
    case outpost::Code::internal:
      throw RpcError{Code::internal, error.text};
  }
  throw RpcError{Code::internal, error.text};
}

}  // namespace outpost::client::detail
