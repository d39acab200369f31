#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <outpost/rpc/error.h>
#include <outpost/rpc/evaluator.h>
#include <outpost/rpc/export.h>
#include <outpost/rpc/types.h>
#include <outpost/rpc/value.h>

namespace outpost::client {

class RemoteDevice;

/// Takes the next piece of a download.
using ByteSink = std::function<void(std::span<const std::byte> piece)>;

/// One argument of a session constructor, owned.
using ConstructorArgument =
    std::variant<std::int64_t, bool, double, std::string, std::vector<std::byte>>;

/// Time limits of a session. Zero waits without a limit.
struct Timeouts {
  std::chrono::milliseconds connect{10'000};  ///< until the TCP connection stands
  /// Until the server has greeted; a server that serves others lets its next clients wait here.
  std::chrono::milliseconds handshake{0};
  /// From the end of a request to the first byte of its answer: bounds every remote call.
  std::chrono::milliseconds answer{0};
  /// Between two pieces of one message, in either direction.
  std::chrono::milliseconds stall{60'000};
};

struct ConnectOptions {
  std::string key;  ///< the server's key, or a tracker's match key
  /// The server ends the session after this time; 0: never.
  std::chrono::duration<double> session_timeout{0};
  /// What the server puts behind the session: empty for itself, or for example
  /// {"rpc.Connect", host, port, key, false} for a second hop.
  std::vector<ConstructorArgument> session_constructor_args;
  /// Logs each request as one line, to `log` or, without it, to standard error.
  bool enable_logging = false;
  std::function<void(std::string_view)> log;
  Timeouts timeouts;
};

/// What a device can be asked (DLPack's runtimes; a device that does not know answers None).
enum class DeviceAttribute : std::int32_t {
  exist = 0,
  max_threads_per_block = 1,
  warp_size = 2,
  max_shared_memory_per_block = 3,
  compute_version = 4,
  device_name = 5,
  max_clock_rate = 6,
  multi_processor_count = 7,
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

/// A session with one RPC server. Copies share it; it ends with close() or with the last copy and
/// the last thing that came from it. Calls block. Several threads may use one session: they take
/// turns. Every function throws RemoteError, SessionTimeoutError or ConnectionError besides what it
/// names itself.
class OUTPOST_CLIENT_API Session {
 public:
  /// Empty; using it throws RpcError(argument).
  Session() = default;
  explicit operator bool() const { return link_ != nullptr; }

  /// Ends the session now. What came from it may be dropped later, but not used.
  void close();
  /// False once this client knows of the end; see answers().
  bool is_open() const;
  /// Asks the server something cheap: false when the session is lost. Never throws RpcError.
  bool answers() const;
  /// What the server called itself in the handshake, "server:<key>".
  std::string server_key() const;

  /// The modules linked into the server under that prefix.
  Module system_lib(std::string_view prefix = "") const;
  /// A global function; RpcError(not_found) when the server has none of that name.
  Function get_function(std::string_view name) const;
  /// The same, but empty when there is none.
  Function find_function(std::string_view name) const;
  /// Measures a global function on the server.
  TimeEvaluator time_evaluator(std::string_view name, const EvaluatorOptions& options) const;

  /// By name ("cuda") or number. RpcError(argument) for an unknown name.
  RemoteDevice device(std::string_view type, std::int32_t id = 0) const;
  RemoteDevice device(std::int32_t type, std::int32_t id = 0) const;
  RemoteDevice cpu(std::int32_t id = 0) const;
  RemoteDevice cuda(std::int32_t id = 0) const;
  RemoteDevice cl(std::int32_t id = 0) const;
  RemoteDevice vulkan(std::int32_t id = 0) const;
  RemoteDevice metal(std::int32_t id = 0) const;
  RemoteDevice rocm(std::int32_t id = 0) const;
  RemoteDevice ext_dev(std::int32_t id = 0) const;
  RemoteDevice hexagon(std::int32_t id = 0) const;
  RemoteDevice webgpu(std::int32_t id = 0) const;

  // Files of the session's folder on the server.

  /// Writes `data` to `target`.
  void upload(std::span<const std::byte> data, std::string_view target,
              const TransferOptions& options = {}) const;
  /// Sends a local file, straight from the disk; its own name is the target unless one is given.
  void upload_file(const std::string& path, std::string_view target = "",
                   const TransferOptions& options = {}) const;
  std::vector<std::byte> download(std::string_view path, const TransferOptions& options = {}) const;
  /// Into memory of the caller; returns how many bytes the file has. RpcError(limit) when they do
  /// not fit.
  std::size_t download(std::string_view path, std::span<std::byte> into,
                       const TransferOptions& options = {}) const;
  /// Piece by piece, in order, as the bytes arrive.
  void download_to(std::string_view path, const ByteSink& sink,
                   const TransferOptions& options = {}) const;
  /// Writes a local file that appears under its name only when it is whole.
  void download_file(std::string_view path, const std::string& local_path,
                     const TransferOptions& options = {}) const;
  void remove(std::string_view path) const;
  std::vector<std::string> listdir(std::string_view path = ".") const;
  Module load_module(std::string_view path) const;
  /// Links an uploaded object or archive on the server and brings the library back.
  std::vector<std::byte> download_linked_module(std::string_view path,
                                                const TransferOptions& options = {}) const;
  /// The same, into a local file that appears under its name only when it is whole.
  void download_linked_module_file(std::string_view path, const std::string& local_path,
                                   const TransferOptions& options = {}) const;

 private:
  friend detail::Access;
  std::shared_ptr<detail::Link> link_;
};

/// A stream of a device; freed with the last copy.
class OUTPOST_CLIENT_API Stream {
 public:
  Stream() = default;
  Pointer pointer() const;
  /// Makes it the stream of the device for what follows.
  void set() const;
  /// Waits until its work is done.
  void sync() const;

 private:
  friend detail::Access;
  friend RemoteDevice;
  struct State;
  std::shared_ptr<const State> state_;
};

/// A device of the server.
class OUTPOST_CLIENT_API RemoteDevice {
 public:
  RemoteDevice(Session session, Device device) : session_{std::move(session)}, device_{device} {}
  Device device() const { return device_; }
  // So that a remote device can stand where a plain one is wanted.
  operator Device() const { return device_; }

  bool exists() const;
  /// None when the device does not know.
  Value attribute(DeviceAttribute attribute) const;
  /// Uninitialised memory. @param scope  a memory scope of the device; empty for the usual one
  Tensor empty(std::vector<std::int64_t> shape, DataType dtype, std::string_view scope = "") const;
  /// A tensor with these elements.
  template <class T>
  Tensor tensor(std::vector<std::int64_t> shape, std::span<const T> elements) const {
    auto out = empty(std::move(shape), data_type_of<T>());
    out.assign(elements);
    return out;
  }
  /// Waits until the work of a stream, by default the usual one, is done.
  void sync(Pointer stream = {}) const;
  /// Makes it the current device of the server's session.
  void set() const;
  Stream create_stream() const;
  void set_stream(Pointer stream) const;
  Pointer current_stream() const;

 private:
  Session session_;
  Device device_;
};

/// Connects to an RPC server (or proxy). Errors: RpcError(not_found) for an unknown host or key,
/// RpcError(busy), ConnectionError, RemoteError when the session constructor fails.
OUTPOST_CLIENT_API Session connect(const std::string& host, std::uint16_t port,
                                   const ConnectOptions& options = {});

/// A session over a stream socket that is connected and past the handshake. Takes `socket` over
/// and closes it, also on an error. `key` and the connect and handshake limits are not used.
/// @param companion  kept until the session has ended and all that came from it is gone
OUTPOST_CLIENT_API Session adopt(int socket, const ConnectOptions& options = {},
                                 std::shared_ptr<void> companion = nullptr);

}  // namespace outpost::client
