#include "host/remote_session.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "device/tensor.h"
#include "host/channel.h"
#include "host/hop.h"
#include "host/objects.h"
#include "wire/frame.h"

namespace outpost::host {
namespace ffi = tvm::ffi;
using rpc::FrameCode;
namespace {

constexpr std::uint64_t kAnswerBytesMax = 1ULL << 30;
constexpr std::size_t kLengthBytes = 8;

/// The connection, shared by everything that came over it; closed with the last of them.
class Link {
 public:
  explicit Link(unique_fd socket)
      : socket_{std::move(socket)}, channel_{socket_.get(), page_, std::chrono::microseconds{0}} {}
  ~Link() {
    ByteWriter out{channel_.answer()};
    rpc::close_frame(out, rpc::open_frame(out, FrameCode::shutdown));
    (void)channel_.flush();
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  struct Answer {
    std::vector<std::byte> frame;
    std::vector<rpc::Value> values;  ///< borrowed from `frame`
    Bytes body() const { return Bytes{frame}.subspan(rpc::FrameHead::kBytes); }
  };

  /// Sends a request whose body `write(ByteWriter&)` makes; throws the server's error.
  template <class Write>
  Answer ask(FrameCode code, Write write) {
    ByteWriter out{channel_.answer()};
    const auto begin = rpc::open_frame(out, code);
    write(out);
    rpc::close_frame(out, begin);
    return receive();
  }

  /// Quietly, since it runs in destructors.
  void free(std::uint64_t handle) noexcept {
    try {
      ask(FrameCode::free_handle, [&](ByteWriter& out) {
        rpc::PackedWriter packed{out};
        packed.count(1);
        packed.pointer(handle);
      });
    } catch (const ffi::Error&) {  // the session is gone, and the object with it
    }
  }

 private:
  Answer receive() {
    Answer out;
    std::size_t skipped = 0;
    std::optional<rpc::FrameHead> head;
    while (!head) {
      auto parsed = rpc::parse_frame_head(channel_.buffered(), skipped);
      if (parsed.has_error()) TVM_FFI_THROW(RPCError) << parsed.error().text;
      channel_.consume(skipped);
      head = *parsed;
      if (!head && channel_.need(channel_.buffered().size() + 1) != Io::ok)
        TVM_FFI_THROW(RPCError) << "the remote session is gone";
    }
    if (head->body_bytes > kAnswerBytesMax)
      TVM_FFI_THROW(RPCError) << "the remote answer has " << head->body_bytes << " bytes";
    out.frame.resize(kLengthBytes + static_cast<std::size_t>(head->body_bytes));
    if (channel_.read_into(out.frame.data(), out.frame.size()) != Io::ok)
      TVM_FFI_THROW(RPCError) << "the remote session is gone";
    if (head->code == FrameCode::copy_ack) return out;
    if (auto r = rpc::decode_packed(out.body(), {}, out.values); r.has_error())
      TVM_FFI_THROW(RPCError) << "the remote answer is malformed: " << r.error().text;
    if (head->code == FrameCode::exception)
      TVM_FFI_THROW(RPCError) << (out.values.empty() ? std::string_view{}
                                                     : as_text(out.values[0].data));
    if (head->code != FrameCode::return_value || out.values.empty())
      TVM_FFI_THROW(RPCError) << "the remote answered with " << name(head->code);
    return out;
  }

  unique_fd socket_;
  SessionPage page_;
  Channel channel_;
};

/// One reference on the other server, given back at the end.
class RemoteHandle {
 public:
  RemoteHandle(std::shared_ptr<Link> link, std::uint64_t handle)
      : link_{std::move(link)}, handle_{handle} {}
  ~RemoteHandle() {
    if (handle_ != 0) link_->free(handle_);
  }
  RemoteHandle(const RemoteHandle&) = delete;
  RemoteHandle& operator=(const RemoteHandle&) = delete;
  const std::shared_ptr<Link>& link() const { return link_; }
  std::uint64_t get() const { return handle_; }

 private:
  std::shared_ptr<Link> link_;
  std::uint64_t handle_;
};
using SharedHandle = std::shared_ptr<RemoteHandle>;

class RemoteObjectObj : public ffi::Object {
 public:
  explicit RemoteObjectObj(SharedHandle h) : handle{std::move(h)} {}
  SharedHandle handle;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("outpost.RemoteObject", RemoteObjectObj, ffi::Object);
};

class RemoteModuleObj : public ffi::ModuleObj {
 public:
  explicit RemoteModuleObj(SharedHandle h) : handle{std::move(h)} {}
  const char* kind() const final { return "rpc"; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final;
  SharedHandle handle;  ///< 0 is the session itself
};

ffi::Any to_local(const std::shared_ptr<Link>& link, const Link::Answer& answer);

void write_argument(rpc::PackedWriter& out, const std::shared_ptr<Link>& link, ffi::AnyView value) {
  const auto raw = value.CopyToTVMFFIAny();
  switch (raw.type_index) {
    case kTVMFFINone:
      return out.none();
    case kTVMFFIInt:
      return out.integer(raw.v_int64);
    case kTVMFFIBool:
      return out.boolean(raw.v_int64 != 0);
    case kTVMFFIFloat:
      return out.real(raw.v_float64);
    case kTVMFFIDataType:
      return out.dtype(to_wire(raw.v_dtype));
    case kTVMFFIDevice:
      return out.device(to_wire(raw.v_device));
    default:
      break;
  }
  if (const auto text = value.try_cast<ffi::String>())
    return out.boxed_string({text->data(), text->size()});
  if (const auto bytes = value.try_cast<ffi::Bytes>())
    return out.boxed_bytes(as_bytes({bytes->data(), bytes->size()}));
  if (const auto* object = value.as<RemoteObjectObj>();
      object != nullptr && object->handle->link() == link)
    return out.object(object->handle->get());
  if (const auto* module = value.as<RemoteModuleObj>();
      module != nullptr && module->handle->link() == link)
    return out.module(module->handle->get());
  TVM_FFI_THROW(TypeError)
      << "a value of type " << value.GetTypeKey()
      << " of this process cannot be passed to a remote session; open the session with "
         "the constructor rpc.Connect to work with remote tensors and functions";
}

ffi::Function remote_function(SharedHandle handle) {
  return ffi::Function::FromPacked(
      [handle](const ffi::AnyView* args, std::int32_t count, ffi::Any* result) {
        const auto& link = handle->link();
        const auto answer = link->ask(FrameCode::call_func, [&](ByteWriter& out) {
          out.le(handle->get());
          rpc::PackedWriter packed{out};
          packed.count(count);
          for (std::int32_t i = 0; i < count; ++i) write_argument(packed, link, args[i]);
        });
        *result = to_local(link, answer);
      });
}

/// The remote's tensor as a copy in this process.
ffi::Tensor fetch(const std::shared_ptr<Link>& link, const rpc::TensorView& view) {
  std::vector<std::int64_t> shape;
  for (std::int32_t i = 0; i < view.ndim(); ++i) shape.push_back(view.dim(i));
  auto tensor = vm::empty({shape.data(), shape.size()}, to_dlpack(view.dtype), {kDLCPU, 0});
  const auto bytes = vm::checked_bytes(*tensor.GetDLTensorPtr());
  const auto answer = link->ask(FrameCode::copy_from_remote, [&](ByteWriter& out) {
    rpc::encode_tensor(out, view);
    out.le(bytes);
  });
  const auto body = answer.body();
  if (body.size() != bytes)
    TVM_FFI_THROW(RPCError) << "the remote sent " << body.size() << " bytes of a tensor of "
                            << bytes;
  std::copy(body.begin(), body.end(), static_cast<std::byte*>(tensor.GetDLTensorPtr()->data));
  return tensor;
}

ffi::Any to_local(const std::shared_ptr<Link>& link, const Link::Answer& answer) {
  if (answer.values.size() < 2 || answer.values[0].kind != rpc::Kind::integer)
    TVM_FFI_THROW(RPCError) << "the remote's result has no type";
  const auto& value = answer.values[1];
  switch (value.kind) {
    case rpc::Kind::none:
      return nullptr;
    case rpc::Kind::integer:
      return value.integer;
    case rpc::Kind::boolean:
      return value.integer != 0;
    case rpc::Kind::real:
      return value.real;
    case rpc::Kind::dtype:
      return to_dlpack(value.dtype);
    case rpc::Kind::device:
      return to_dlpack(value.device);
    case rpc::Kind::string:
      return ffi::String(as_text(value.data).data(), value.data.size());
    case rpc::Kind::bytes:
      return ffi::Bytes(as_text(value.data).data(), value.data.size());
    case rpc::Kind::tensor: {
      const RemoteHandle owner{link, answer.values.size() > 2 ? answer.values[2].handle() : 0};
      return fetch(link, value.tensor);
    }
    case rpc::Kind::pointer:
    case rpc::Kind::function:
    case rpc::Kind::module:
    case rpc::Kind::object:
      break;
  }
  auto handle = std::make_shared<RemoteHandle>(link, value.handle());
  const auto type = answer.values[0].integer;
  if (type == kTVMFFIFunction) return remote_function(std::move(handle));
  if (type == kTVMFFIModule)
    return ffi::Module(ffi::make_object<RemoteModuleObj>(std::move(handle)));
  return ffi::ObjectRef(ffi::make_object<RemoteObjectObj>(std::move(handle)));
}

SharedHandle global_function(const std::shared_ptr<Link>& link, std::string_view name) {
  const auto answer = link->ask(FrameCode::get_global_func, [&](ByteWriter& out) {
    rpc::PackedWriter packed{out};
    packed.count(1);
    packed.raw_string(name);
  });
  return std::make_shared<RemoteHandle>(link, answer.values[0].handle());
}

ffi::Optional<ffi::Function> RemoteModuleObj::GetFunction(const ffi::String& name) {
  if (handle->get() == 0) {
    auto found = global_function(handle->link(), {name.data(), name.size()});
    if (found->get() == 0) return std::nullopt;
    return remote_function(std::move(found));
  }
  const auto lookup =
      remote_function(global_function(handle->link(), "tvm.rpc.server.ModuleGetFunction"));
  return lookup(ffi::GetRef<ffi::Module>(this), name, true).cast<ffi::Optional<ffi::Function>>();
}

/// The process itself behind the same face.
class LocalModuleObj : public ffi::ModuleObj {
 public:
  const char* kind() const final { return "rpc"; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (auto found = ffi::Function::GetGlobal(name)) return *std::move(found);
    return std::nullopt;
  }
};

}  // namespace

ffi::Module remote_session(unique_fd initialised_socket) {
  auto link = std::make_shared<Link>(std::move(initialised_socket));
  return ffi::Module(
      ffi::make_object<RemoteModuleObj>(std::make_shared<RemoteHandle>(std::move(link), 0)));
}

void register_session_functions() {
  static const bool once = [] {
    ffi::Function::SetGlobal(kLocalConstructor, ffi::Function::FromTyped([] {
                               return ffi::Module(ffi::make_object<LocalModuleObj>());
                             }));
    ffi::Function::SetGlobal(
        kHopConstructor, ffi::Function::FromPacked(
                             [](const ffi::AnyView* args, std::int32_t count, ffi::Any* result) {
                               std::vector<std::byte> raw;
                               ByteWriter out{raw};
                               rpc::PackedWriter packed{out};
                               packed.count(count);
                               for (std::int32_t i = 0; i < count; ++i)
                                 write_argument(packed, nullptr, args[i]);
                               std::vector<rpc::Value> values;
                               auto done = rpc::decode_packed(raw, {}, values);
                               auto inner = done.has_error() ? Result<unique_fd>{done.error()}
                                                             : open_hop(values, SessionLimits{});
                               if (inner.has_error()) TVM_FFI_THROW(RPCError) << inner.error().text;
                               *result = remote_session(std::move(*inner));
                             }));
    return true;
  }();
  (void)once;
}

}  // namespace outpost::host
