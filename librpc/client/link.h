#pragma once
#include <outpost/rpc/client.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/channel.h"
#include "core/client_session.h"

namespace outpost::client::detail {

/// What a link needs of ConnectOptions.
struct LinkOptions {
  rpc::Timeout answer{0};
  rpc::Timeout stall{60'000};
  std::function<void(std::string_view)> log;  ///< empty: no log
  std::string peer;                           ///< for error texts
  std::string server_key;
  std::shared_ptr<void> companion;  ///< let go after the socket is closed
};

/// Where the bytes of a result go: to `memory`, else to `sink`, else into the value.
struct Destination {
  rpc::Sink sink;
  /// Called with the size; memory for all of it, or an error, which loses only the bytes.
  std::function<Result<std::span<std::byte>>(std::uint64_t bytes)> memory;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// The bytes at the end of a streamed call.
struct Source {
  std::span<const std::byte> memory;
  int file = -1;  ///< when not -1: `bytes` of this file from its position
  std::uint64_t bytes = 0;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// One session as seen from the blocking face: runs ClientSession over a Channel, one request at a
/// time, whichever thread asks. Everything throws RpcError; a transport error closes the link for
/// good. Shared by all that came from the session.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(unique_fd socket, LinkOptions options);
  ~Link();

  void init(std::span<const rpc::Value> constructor);
  void close() noexcept;
  bool is_open() const { return open_.load(); }
  const std::string& server_key() const { return options_.server_key; }

  /// 0 when the server has no such function. @param kept  asked once, then remembered and never
  /// freed: for the functions of the server itself
  std::uint64_t find_global(std::string_view name);
  std::uint64_t kept_global(const std::string& name);

  Value call(std::uint64_t function, std::span<const Argument> args);
  Value call(std::uint64_t function, std::span<const rpc::Value> args);
  /// A call whose result is bytes. TypeError when it is anything else.
  Value call_into(std::uint64_t function, std::span<const rpc::Value> args, const Destination& to);
  /// A call with a last argument that is not copied.
  void call_from(std::uint64_t function, std::span<const rpc::Value> args, const Source& from);
  Value system(rpc::FrameCode code, std::span<const rpc::Value> args);
  void copy_to(const rpc::TensorView& to, std::span<const std::byte> data,
               const rpc::Progress& progress);
  void copy_from(const rpc::TensorView& from, std::span<std::byte> data,
                 const rpc::Progress& progress);
  /// The largest body of a copy that the server takes; 0: no limit.
  std::uint64_t copy_bytes_max();

  /// Frees what the server keeps; now, or after the request that is on its way. Never throws.
  void free_handle(std::uint64_t handle) noexcept;
  void free_data(Device device, std::uint64_t data) noexcept;
  void free_stream(Device device, std::uint64_t stream) noexcept;

 private:
  class Turn;
  struct Garbage {
    rpc::FrameCode code;
    Device device;
    std::uint64_t handle;
  };

  // All of these run with the turn taken.
  void check_open() const;
  Value round_trip(std::string_view what, const Source* from, const Destination* to);
  void send(const Source* from);
  Result<> send_parts(const Source* from);
  /// Reads until the oldest request is answered; throws what the server raised.
  Value read_answer(const Destination* to);
  Value read_payload(std::uint64_t bytes, const Destination* to);
  Result<> take_blob(std::uint64_t bytes, const rpc::Progress& progress, Value::Blob& blob);
  Result<> take_payload(std::uint64_t bytes, const Destination& to, const rpc::Progress& progress,
                        std::optional<Error>& lost);
  Value take_value();
  Value take_object(std::int32_t tag, std::uint64_t handle);
  Value take_tensor();
  /// The wire form of an argument; checks that it belongs to this link.
  rpc::Value to_wire(const Argument& argument) const;
  /// Closes for good and throws ConnectionError.
  [[noreturn]] void fail(const Error& error);
  [[noreturn]] void expire(const std::string& text);
  void end(bool expired, const std::string& text) noexcept;
  void release(Garbage garbage) noexcept;
  void sweep() noexcept;
  void free_batch(std::span<const Garbage> batch);

  LinkOptions options_;
  rpc::Channel channel_;
  rpc::ClientSession session_;
  rpc::Request request_;
  std::vector<rpc::Value> wire_args_;
  std::map<std::string, std::uint64_t, std::less<>> kept_;
  std::optional<std::uint64_t> copy_bytes_max_;

  std::binary_semaphore turn_{1};  // not a mutex: the owner may ask whether it is taken
  std::atomic<std::thread::id> owner_{};
  std::atomic<bool> open_{true};
  mutable std::mutex end_mutex_;
  bool expired_ = false;
  std::string end_text_;  // why the link closed
  std::mutex garbage_mutex_;
  std::vector<Garbage> garbage_;
};

/// A handle of the server with its link; frees itself.
struct Reference {
  std::shared_ptr<Link> link;
  std::uint64_t handle = 0;
  std::int32_t type_index = 0;
  Reference(std::shared_ptr<Link> l, std::uint64_t h, std::int32_t t)
      : link{std::move(l)}, handle{h}, type_index{t} {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() { link->free_handle(handle); }
};

/// Memory of a tensor; freed as it came: allocated memory as data, a result by its owner.
struct Memory {
  enum class Kind : std::uint8_t { allocated, owned, borrowed };
  std::shared_ptr<Link> link;
  Kind kind;
  Device device;
  std::uint64_t data = 0;
  std::uint64_t owner = 0;
  Memory(std::shared_ptr<Link> l, Kind k, Device d, std::uint64_t at, std::uint64_t own)
      : link{std::move(l)}, kind{k}, device{d}, data{at}, owner{own} {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (kind == Kind::allocated) link->free_data(device, data);
    if (kind == Kind::owned) link->free_handle(owner);
  }
};

/// Keeps what a callback of the user throws until the transfer is through, since bytes that are on
/// their way must be taken off the stream.
class Guard {
 public:
  /// The same callback; it is not called again once it has thrown.
  template <class... Args>
  std::function<void(Args...)> keep(const std::function<void(Args...)>& callback) {
    if (!callback) return {};
    return [this, &callback](Args... args) {
      if (thrown_) return;
      try {
        callback(args...);
      } catch (...) {
        thrown_ = std::current_exception();
      }
    };
  }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  std::exception_ptr thrown_;
};

/// The one place that looks into the public classes.
class Access {
 public:
  template <class T>
  static T make(std::shared_ptr<const Reference> held) {
    T out;
    out.held_ = std::move(held);
    return out;
  }
  static Tensor make_tensor(std::shared_ptr<const Memory> memory, std::vector<std::int64_t> shape,
                            DataType dtype, std::uint64_t byte_offset);
  static Session make_session(std::shared_ptr<Link> link);
  static TimeEvaluator make_evaluator(Function function);
  template <class T>
  static const std::shared_ptr<const Reference>& held(const T& thing) {
    return thing.held_;
  }
  static const std::shared_ptr<const Memory>& memory(const Tensor& tensor) {
    return tensor.memory_;
  }
  /// Throws RpcError(argument) for an empty tensor.
  static const Memory& memory_of(const Tensor& tensor);
  /// Throws RpcError(argument) for an empty session.
  static Link& link(const Session& session);
  static const std::shared_ptr<Link>& shared_link(const Session& session);
  /// Throws RpcError(argument) for an empty reference.
  template <class T>
  static const Reference& reference(const T& thing) {
    if (thing.held_ == nullptr) refuse_empty();
    return *thing.held_;
  }

 private:
  [[noreturn]] static void refuse_empty();
};

/// The wire form of a tensor, which must outlive it.
rpc::TensorView view_of(const Tensor& tensor);

/// Throws the public exception for an error of the layers below.
[[noreturn]] void throw_error(Error error);

}  // namespace outpost::client::detail
