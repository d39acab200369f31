#include <algorithm>
#include <cmath>
#include <cstdio>

#include "client/link.h"
#include "dial/dial.h"

namespace outpost::client {
namespace {

using detail::Access;
using detail::Link;

rpc::Value constructor_value(const ConstructorArgument& argument) {
  struct Visitor {
    rpc::Value operator()(std::int64_t v) const { return rpc::arg::integer(v); }
    rpc::Value operator()(bool v) const { return rpc::arg::boolean(v); }
    rpc::Value operator()(double v) const { return rpc::arg::real(v); }
    rpc::Value operator()(const std::string& v) const { return rpc::arg::boxed_string(v); }
    rpc::Value operator()(const std::vector<std::byte>& v) const { return rpc::arg::bytes(v); }
  };
  return std::visit(Visitor{}, argument);
}

/// Match key and options as the handshake has them.
std::string handshake_key(const ConnectOptions& options) {
  const double seconds = options.session_timeout.count();
  if (!std::isfinite(seconds) || seconds < 0)
    throw RpcError{Code::argument, fmt::format("session time-out of {} s", seconds)};
  if (seconds == 0) return options.key;
  return fmt::format("{} -timeout={}", options.key, seconds);
}

void log_to_stderr(std::string_view line) {
  std::fprintf(stderr, "outpost: %.*s\n", static_cast<int>(line.size()), line.data());
}

Session start(unique_fd socket, const ConnectOptions& options, std::string peer,
              std::string server_key, std::shared_ptr<void> companion = nullptr) {
  detail::LinkOptions link;
  link.answer = options.timeouts.answer;
  link.stall = options.timeouts.stall;
  link.peer = std::move(peer);
  link.server_key = std::move(server_key);
  link.companion = std::move(companion);
  if (options.enable_logging) link.log = options.log ? options.log : &log_to_stderr;
  auto shared = std::make_shared<Link>(std::move(socket), std::move(link));
  std::vector<rpc::Value> constructor;
  for (const auto& a : options.session_constructor_args)
    constructor.push_back(constructor_value(a));
  shared->init(constructor);
  return Access::make_session(std::move(shared));
}

template <class T>
T checked(Result<T> result) {
  if (result.has_error()) detail::throw_error(std::move(result).error());
  return *std::move(result);
}

}  // namespace

Session connect(const std::string& host, std::uint16_t port, const ConnectOptions& options) {
  const auto key = handshake_key(options);
  const auto peer = rpc::address_text(host, port);
  auto socket = checked(rpc::connect_tcp(host, port, options.timeouts.connect));
  auto greeting = rpc::greet(socket.get(), key, peer, options.timeouts.handshake);
  return start(std::move(socket), options, peer, checked(std::move(greeting)).server_key);
}

Session adopt(int socket, const ConnectOptions& options, std::shared_ptr<void> companion) {
  return start(unique_fd{socket}, options, "the adopted socket", "", std::move(companion));
}

void Session::close() {
  if (link_) link_->close();
}

bool Session::is_open() const {
  return link_ && link_->is_open();
}

bool Session::answers() const {
  try {
    (void)cpu().exists();
  } catch (const RemoteError&) {  // which is an answer
  } catch (const RpcError&) {
    return false;
  }
  return true;
}

std::string Session::server_key() const {
  return Access::link(*this).server_key();
}

Function Session::find_function(std::string_view name) const {
  const auto& link = Access::shared_link(*this);
  const auto handle = link->find_global(name);
  if (handle == 0) return {};
  return Access::make<Function>(
      std::make_shared<const detail::Reference>(link, handle, rpc::kFunction));
}

Function Session::get_function(std::string_view name) const {
  auto found = find_function(name);
  if (!found) throw RpcError{Code::not_found, fmt::format("the server has no function '{}'", name)};
  return found;
}

Module Session::system_lib(std::string_view prefix) const {
  const auto make = get_function("ffi.SystemLib");
  return (prefix.empty() ? make() : make(prefix)).as_module();
}

RemoteDevice Session::device(std::string_view type, std::int32_t id) const {
  return {*this, Device{device_type(type), id}};
}
RemoteDevice Session::device(std::int32_t type, std::int32_t id) const {
  return {*this, Device{type, id}};
}
RemoteDevice Session::cpu(std::int32_t id) const {
  return device("cpu", id);
}
RemoteDevice Session::cuda(std::int32_t id) const {
  return device("cuda", id);
}
RemoteDevice Session::cl(std::int32_t id) const {
  return device("opencl", id);
}
RemoteDevice Session::vulkan(std::int32_t id) const {
  return device("vulkan", id);
}
RemoteDevice Session::metal(std::int32_t id) const {
  return device("metal", id);
}
RemoteDevice Session::rocm(std::int32_t id) const {
  return device("rocm", id);
}
RemoteDevice Session::ext_dev(std::int32_t id) const {
  return device("ext_dev", id);
}
RemoteDevice Session::hexagon(std::int32_t id) const {
  return device("hexagon", id);
}
RemoteDevice Session::webgpu(std::int32_t id) const {
  return device("webgpu", id);
}

// Modules

Function Module::find_function(std::string_view name, bool query_imports) const {
  const auto& held = Access::reference(*this);
  const auto get = held.link->kept_global("tvm.rpc.server.ModuleGetFunction");
  const auto found =
      held.link->call(get, std::vector{rpc::arg::module(held.handle), rpc::arg::string(name),
                                       rpc::arg::boolean(query_imports)});
  return found.is_none() ? Function{} : found.as_function();
}

Function Module::get_function(std::string_view name, bool query_imports) const {
  auto found = find_function(name, query_imports);
  if (!found) throw RpcError{Code::not_found, fmt::format("the module has no function '{}'", name)};
  return found;
}

void Module::import_module(const Module& other) const {
  const auto& held = Access::reference(*this);
  const auto& child = Access::reference(other);
  if (held.link != child.link)
    throw RpcError{Code::argument, "a module can only import one of the same session"};
  const auto import = held.link->kept_global("tvm.rpc.server.ImportModule");
  held.link->call(import,
                  std::vector{rpc::arg::module(held.handle), rpc::arg::module(child.handle)});
}

// References

Value Function::call(std::span<const Argument> args) const {
  const auto& held = Access::reference(*this);
  return held.link->call(held.handle, args);
}

std::int32_t Object::type_index() const {
  return Access::reference(*this).type_index;
}

}  // namespace outpost::client
