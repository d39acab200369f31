#pragma once
#include <tvm/ffi/function.h>

#include <vector>

#include "host/channel.h"
#include "host/functions.h"
#include "host/objects.h"
#include "host/serve.h"
#include "wire/frame.h"
#include "wire/value.h"

namespace outpost::host {

/// One session with its client: reads a request, does it, answers. A bad request in a good frame is
/// answered with an Exception and the session goes on; a frame that cannot be trusted is answered
/// with one and the connection closed.
class Session {
 public:
  Session(Channel& channel, const SessionOptions& options, SessionPage& page, Folder folder);

  /// Until the client leaves or cannot be followed any more.
  SessionEnd run();

 private:
  /// What a request leads to: go on, or the reason to stop.
  struct [[nodiscard]] Step {
    bool go_on = true;
    SessionEnd end = SessionEnd::unknown;
  };
  static Step go() { return {}; }
  static Step stop(SessionEnd end) { return {false, end}; }

  Step next_request();
  Step dispatch(rpc::FrameHead head);
  Step with_body(rpc::FrameHead head);
  Step on_body(rpc::FrameCode code, Bytes body);
  Step on_io(Io io, bool inside_frame);

  // Requests whose body is in memory; an error becomes an Exception.
  Result<> init_server(Bytes body);
  Result<> call_func(Bytes body);
  Result<> system_call(rpc::FrameCode code);
  Result<> get_global_func();
  Result<> free_handle();
  // device_calls.cpp
  Result<> device_call(rpc::FrameCode code);
  Result<> set_device(DLDevice device);
  Result<> get_attribute(DLDevice device);
  Result<> alloc_data(DLDevice device);
  Result<> alloc_with_scope();
  Result<> free_data(DLDevice device);
  Result<> copy_among();
  Result<> stream_call(rpc::FrameCode code, DLDevice device);
  Result<vm::DeviceApi::Stream> stream_argument(std::size_t index, DLDevice device);
  // transfer.cpp: requests whose payload is streamed
  Step copy_to_remote(std::uint64_t body_bytes);
  Step copy_from_remote(std::uint64_t body_bytes);
  Step receive_tensor(const Objects::Span& span, std::uint64_t bytes);
  Step send_tensor(const Objects::Span& span, std::uint64_t bytes);
  Step upload(std::uint64_t body_bytes);
  Step receive_file(std::string_view name, std::uint64_t bytes);
  Result<unique_fd> download_source(Streamed which);
  Step download(Streamed which, Bytes body);
  bool is_upload(Bytes handle_bytes);

  // Checked access to the arguments of a system call.
  Result<const rpc::Value*> argument(std::size_t index, rpc::Kind kind, std::string_view what);
  Result<DLDevice> device_argument(std::size_t index);

  // Answers.
  template <class Write>
  void answer(Write write);
  void answer_none();
  void answer_pointer(std::uint64_t pointer);
  void answer_exception(std::string_view text);
  /// An Exception, then the end: the stream of frames is lost or a limit broken.
  Step fatal(const Error& error);
  /// Skips what is left of a request and answers with an Exception.
  Step refuse(std::uint64_t bytes_left, const Error& error);

  Channel& channel_;
  const SessionOptions& options_;
  SessionPage& page_;
  rpc::PackedLimits packed_limits_;
  Objects objects_;
  SessionFunctions functions_;
  bool initialised_ = false;
  unique_fd hop_;  ///< the inner server's socket once `rpc.Connect` was asked for
  // Kept between requests so that a small call allocates nothing.
  std::vector<rpc::Value> values_;
  std::vector<TVMFFIAny> arguments_;
  std::vector<tvm::ffi::Any> kept_;
  std::vector<TVMFFIByteArray> views_;
};

template <class Write>
void Session::answer(Write write) {
  ByteWriter out{channel_.answer()};
  const auto begin = rpc::open_frame(out, rpc::FrameCode::return_value);
  write(rpc::PackedWriter{out});
  rpc::close_frame(out, begin);
}

}  // namespace outpost::host
