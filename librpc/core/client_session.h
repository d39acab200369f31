#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wire/frame.h"
#include "wire/value.h"

namespace outpost::rpc {

/// Values as a client writes them (rpc-wire.md, Packed sequence). Text and bytes are borrowed.
namespace arg {
Value none();
Value integer(std::int64_t v);
Value boolean(bool v);
Value real(double v);
Value pointer(std::uint64_t v);
Value dtype(DType v);
Value device(Device v);
Value tensor(const TensorView& v);
/// Raw, as stock clients send it; boxed when it holds a NUL, which would cut a raw one.
Value string(std::string_view v);
/// Boxed, the form that arguments of InitServer have.
Value boxed_string(std::string_view v);
Value bytes(Bytes v);
Value function(std::uint64_t handle);
Value module(std::uint64_t handle);
Value object(std::uint64_t handle);
}  // namespace arg

/// One request on its way out: one frame, or several small ones. Send head, payload, tail.
struct Request {
  std::vector<std::byte> head;
  std::uint64_t payload_bytes = 0;  ///< between head and tail; the driver has or makes them
  Bytes payload;                    ///< those bytes when they lie in memory, else empty
  std::vector<std::byte> tail;

  /// Empties it for the next request, keeping its memory.
  void clear();
};

/// What a client accepts from a server.
struct ClientLimits {
  std::uint64_t frame_bytes_max = 1ULL << 30;  ///< an answer that is kept in memory as a whole
  std::int32_t values_max = 4096;
  std::int32_t ndim_max = 64;
};

/// The answer to one request. Text, bytes and dims are borrowed from the bytes given to resume().
struct Answer {
  enum class Kind : std::uint8_t {
    value,    ///< `value`, and `tag` and `owner` for CallFunc
    payload,  ///< the bytes that a payload step announced
    raised,   ///< the server raised `text`
    expired,  ///< the session's time is over: `text`; nothing more can be asked
  };
  Kind kind = Kind::value;
  std::int32_t tag = kNone;  ///< type index of a CallFunc result
  Value value;
  std::uint64_t owner = 0;  ///< handle to free for a tensor result; 0: none
  std::string_view text;
};

/// What resume() made of the bytes so far. The first `consumed` of them are done with.
struct Step {
  enum class Kind : std::uint8_t {
    need,     ///< call again with at least `bytes` bytes, counted behind `consumed`
    payload,  ///< the next `bytes` on the stream, behind `consumed`, are the payload of the answer:
              ///< take them away, then call payload_done()
    done,     ///< answer() holds until the bytes go away
  };
  Kind kind = Kind::need;
  std::size_t consumed = 0;
  std::uint64_t bytes = 0;
};

/// Client side of one session after the handshake, without I/O: requests in, bytes out; bytes in,
/// answers out, in the order of the requests (rpc-wire.md, Frames). An error from resume() is
/// final: the stream can't be trusted any more, so close the connection.
class ClientSession {
 public:
  explicit ClientSession(ClientLimits limits = {}) : limits_{limits} {}

  // Each appends one frame to `out` and expects one answer, except shutdown.
  void init(Request& out, std::span<const Value> constructor);
  /// The largest of the bytes arguments is not copied: it becomes the payload.
  void call(Request& out, std::uint64_t function, std::span<const Value> args);
  /// A call whose last argument, after `args`, is `payload_bytes` bytes that the driver provides.
  void call_streamed(Request& out, std::uint64_t function, std::span<const Value> args,
                     std::uint64_t payload_bytes);
  void copy_to(Request& out, const TensorView& to, Bytes data);
  void copy_from(Request& out, const TensorView& from, std::uint64_t bytes);
  /// GetGlobalFunc, FreeHandle and the device requests, with the arguments of the wire page.
  void system(Request& out, FrameCode code, std::span<const Value> args);
  void shutdown(Request& out);

  /// What the bytes received behind the last `consumed` mean for the oldest open request.
  /// Errors: malformed, limit, io (the server ended the session).
  Result<Step> resume(Bytes received);
  void payload_done();
  const Answer& answer() const { return answer_; }
  /// Requests that have no answer yet.
  std::size_t open_requests() const { return expected_.size(); }

 private:
  enum class Form : std::uint8_t { value, call, copy };
  struct Expected {
    Form form;
    std::uint64_t copy_bytes;
  };

  Result<Step> read_copy(const FrameHead& head, std::size_t skipped);
  Result<std::optional<Step>> read_payload_head(const FrameHead& head, Bytes body,
                                                std::size_t skipped);
  Result<> read_whole(const FrameHead& head, Bytes body);
  Result<> read_exception(Bytes body);
  Result<> read_call_result();
  Result<> read_tensor_result();
  Step done(std::size_t consumed);

  ClientLimits limits_;
  std::deque<Expected> expected_;
  Answer answer_;
  std::vector<Value> values_;
};

}  // namespace outpost::rpc
