#include "host/session.h"

#include <algorithm>

#include "base/utf8.h"
#include "host/call.h"
#include "host/hop.h"

namespace outpost::host {
namespace ffi = tvm::ffi;
using rpc::FrameCode;
namespace {

constexpr std::size_t kHeadBytes = rpc::FrameHead::kBytes;
constexpr std::size_t kCodeBytes = 4;

void bump(std::atomic<std::uint64_t>& counter) {  // one writer, so no locked instruction
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void set_end_text(SessionPage& page, std::string_view text) {
  const auto n = std::min(text.size(), sizeof page.end_text - 1);
  text.copy(page.end_text, n);
  page.end_text[n] = '\0';
}

}  // namespace

Session::Session(Channel& channel, const SessionOptions& options, SessionPage& page, Folder folder)
    : channel_{channel},
      options_{options},
      page_{page},
      packed_limits_{options.limits.arguments_max, options.limits.ndim_max},
      objects_{options.limits},
      functions_{std::move(folder), LinkOptions{options.link_timeout},
                 std::min(options.copy_bytes_max, options.limits.copy_bytes_max())} {}

SessionEnd Session::run() {
  for (;;) {
    const auto step = next_request();
    if (!step.go_on) return step.end;
    if (hop_) return run_hop(channel_, std::move(hop_), page_);
  }
}

Session::Step Session::on_io(Io io, bool inside_frame) {
  switch (io) {
    case Io::ok:
      return go();
    case Io::closed:
      return stop(inside_frame ? SessionEnd::cut : SessionEnd::closed);
    case Io::taken:
      return stop(SessionEnd::unknown);
    case Io::failed:
      break;
  }
  set_end_text(page_, "the socket failed");
  return stop(SessionEnd::io);
}

Session::Step Session::next_request() {
  for (;;) {
    std::size_t skipped = 0;
    auto head = rpc::parse_frame_head(channel_.buffered(), skipped);
    channel_.consume(skipped);
    if (head.has_error()) return fatal(head.error());
    if (*head) {
      channel_.consume(kHeadBytes);
      bump(page_.requests);
      return dispatch(**head);
    }
    const auto io = channel_.need(channel_.buffered().size() + 1);
    if (io != Io::ok) return on_io(io, !channel_.buffered().empty());
  }
}

Session::Step Session::dispatch(rpc::FrameHead head) {
  const auto left = head.body_bytes - kCodeBytes;
  switch (head.code) {
    case FrameCode::shutdown:
      (void)channel_.flush();
      return stop(SessionEnd::shutdown);
    case FrameCode::return_value:
    case FrameCode::exception:
    case FrameCode::copy_ack:
      return fatal({Code::malformed, fmt::format("{} is not a request", name(head.code))});
    case FrameCode::copy_to_remote:
    case FrameCode::copy_from_remote:
      if (!initialised_) break;
      if (head.body_bytes > options_.limits.copy_bytes_max())
        return fatal(
            {Code::limit,
             fmt::format("{} request of {} bytes exceeds the limit of {} for copies",
                         name(head.code), head.body_bytes, options_.limits.copy_bytes_max())});
      return head.code == FrameCode::copy_to_remote ? copy_to_remote(left) : copy_from_remote(left);
    case FrameCode::init_server:
      return with_body(head);
    case FrameCode::call_func:
      if (!initialised_) break;
      if (left >= 8) {
        if (const auto io = channel_.need(8); io != Io::ok) return on_io(io, true);
        if (is_upload(channel_.buffered().first(8))) return upload(left);
      }
      return with_body(head);
    case FrameCode::get_global_func:
    case FrameCode::free_handle:
    case FrameCode::dev_set_device:
    case FrameCode::dev_get_attr:
    case FrameCode::dev_alloc_data:
    case FrameCode::dev_free_data:
    case FrameCode::dev_stream_sync:
    case FrameCode::copy_among_remote:
    case FrameCode::dev_alloc_data_with_scope:
    case FrameCode::dev_create_stream:
    case FrameCode::dev_free_stream:
    case FrameCode::dev_set_stream:
    case FrameCode::dev_get_current_stream:
      if (!initialised_) break;
      return with_body(head);
    default:
      return fatal({Code::malformed, fmt::format("{} is not a request of protocol {}",
                                                 name(head.code), rpc::kProtocolVersion)});
  }
  return refuse(left, {Code::denied, fmt::format("{} before InitServer: the session is not "
                                                 "initialised yet",
                                                 name(head.code))});
}

Session::Step Session::with_body(rpc::FrameHead head) {
  const auto left = head.body_bytes - kCodeBytes;
  if (left <= Channel::kBufferBytes) {
    const auto bytes = static_cast<std::size_t>(left);
    if (const auto io = channel_.need(bytes); io != Io::ok) return on_io(io, true);
    const auto step = on_body(head.code, channel_.buffered().first(bytes));
    channel_.consume(bytes);
    return step;
  }
  if (head.body_bytes > options_.limits.frame_bytes_max)
    return fatal({Code::limit,
                  fmt::format("{} request of {} bytes exceeds frame_bytes_max {}", name(head.code),
                              head.body_bytes, options_.limits.frame_bytes_max)});
  std::vector<std::byte> body;  // grows with what came, not with what the length promises
  while (body.size() < left) {
    const auto have = body.size();
    const auto want = std::min<std::uint64_t>(left - have, std::max<std::size_t>(have, 1U << 20));
    body.resize(have + static_cast<std::size_t>(want));
    const auto io = channel_.read_into(body.data() + have, static_cast<std::size_t>(want));
    if (io != Io::ok) return on_io(io, true);
  }
  return on_body(head.code, body);
}

Session::Step Session::on_body(FrameCode code, Bytes body) {
  const auto begin = channel_.answer().size();
  Result<> done;
  switch (code) {
    case FrameCode::init_server:
      done = init_server(body);
      break;
    case FrameCode::call_func:
      bump(page_.calls);
      if (body.size() >= 8) {
        ByteReader in{body};
        const auto found = objects_.find(*in.le<std::uint64_t>("function handle"));
        if (found && (*found)->streamed != Streamed::no)
          return download((*found)->streamed, body.subspan(8));
      }
      done = call_func(body);
      break;
    default:
      done = rpc::decode_packed(body, packed_limits_, values_);
      done = done.has_error() ? Result<>{wrap(std::move(done).error(), name(code))}
                              : system_call(code);
      break;
  }
  if (done.has_error()) {
    channel_.answer().resize(begin);
    answer_exception(done.error().text);
  }
  return go();
}

Result<> Session::init_server(Bytes body) {
  ByteReader in{body};
  OUTPOST_TRY(const auto version, in.sized("protocol version"));
  OUTPOST_CHECK(rpc::decode_packed(body.subspan(in.offset()), packed_limits_, values_));
  if (initialised_) return Error{Code::denied, "the session is already initialised"};
  if (as_text(version) != rpc::kProtocolVersion)
    return Error{Code::unsupported,
                 fmt::format("protocol versions differ: server protocol={}, client protocol={}",
                             rpc::kProtocolVersion, printable(as_text(version)))};
  if (values_.empty()) {
    initialised_ = true;
    answer_none();
    return {};
  }
  if (values_[0].kind != rpc::Kind::string)
    return Error{Code::unsupported, "session constructor: its name must be a string"};
  const auto constructor = as_text(values_[0].data);
  if (constructor == kLocalConstructor) {
    initialised_ = true;
    answer_none();
    return {};
  }
  if (constructor != kHopConstructor)
    return Error{Code::not_found,
                 fmt::format("session constructor '{}' not found; this server has {} and {}",
                             printable(constructor), kHopConstructor, kLocalConstructor)};
  OUTPOST_TRY(auto inner, open_hop(std::span{values_}.subspan(1), options_.limits));
  initialised_ = true;
  answer_none();
  hop_ = std::move(inner);
  return {};
}

Result<> Session::call_func(Bytes body) {
  ByteReader in{body};
  OUTPOST_TRY(const auto handle, in.le<std::uint64_t>("function handle"));
  OUTPOST_CHECK(rpc::decode_packed(body.subspan(in.offset()), packed_limits_, values_));
  OUTPOST_TRY(const Entry* entry, objects_.find(handle));
  const auto* function = entry->object.as<ffi::FunctionObj>();
  if (function == nullptr)
    return Error{Code::malformed, fmt::format("handle 0x{:x} is no function", handle)};
  // Held during the call, which may free the handle that named it.
  const auto callee = entry->object.cast<ffi::Function>();
  ffi::Any result;
  auto done = objects_.to_arguments(values_, arguments_, kept_, views_);
  if (!done.has_error()) done = call_function(callee, arguments_, result);
  if (!done.has_error()) {
    Bytes payload;
    ByteWriter out{channel_.answer()};
    const auto begin = rpc::open_frame(out, FrameCode::return_value);
    rpc::PackedWriter packed{out};
    done = objects_.write_result(packed, result, payload);
    rpc::close_frame(out, begin, payload.size());
    if (!done.has_error() && !payload.empty()) (void)channel_.flush_with(payload);
  }
  kept_.clear();
  return done;
}

Result<> Session::system_call(FrameCode code) {
  if (code == FrameCode::get_global_func) return get_global_func();
  if (code == FrameCode::free_handle) return free_handle();
  return device_call(code);
}

Result<const rpc::Value*> Session::argument(std::size_t index, rpc::Kind kind,
                                            std::string_view what) {
  if (index >= values_.size())
    return Error{Code::malformed,
                 fmt::format("argument {} ({}) is missing, {} given", index, what, values_.size())};
  const auto& value = values_[index];
  if (value.kind != kind)
    return Error{Code::malformed, fmt::format("argument {} ({}) is a {}, expected a {}", index,
                                              what, name(value.kind), name(kind))};
  return &value;
}

Result<> Session::get_global_func() {
  OUTPOST_TRY(const auto* value, argument(0, rpc::Kind::string, "function name"));
  auto found = functions_.find(as_text(value->data));
  if (!found) {
    answer_pointer(0);
    return {};
  }
  OUTPOST_TRY(const auto handle, objects_.add(Entry{.kind = Entry::Kind::object,
                                                    .streamed = found->streamed,
                                                    .object = std::move(found->function)}));
  answer_pointer(static_cast<std::uint64_t>(handle));
  return {};
}

Result<> Session::free_handle() {
  if (!values_.empty() && values_[0].kind == rpc::Kind::none) {
    answer_none();
    return {};
  }
  OUTPOST_TRY(const auto* value, argument(0, rpc::Kind::pointer, "handle"));
  if (value->handle() != 0) {
    OUTPOST_TRY(const Entry* entry, objects_.find(value->handle()));
    if (entry->allocated || entry->kind == Entry::Kind::stream)
      return Error{Code::malformed,
                   fmt::format("handle 0x{:x} is device memory or a stream, not an "
                               "object: free it with its own request",
                               value->handle())};
    OUTPOST_TRY(auto taken, objects_.take(value->handle()));
    // The destructor may run foreign code, so it runs last, when the table is consistent.
    OUTPOST_CHECK(guarded([&] { taken = Entry{}; }));
  }
  answer_none();
  return {};
}

void Session::answer_none() {
  answer([](rpc::PackedWriter out) {
    out.count(1);
    out.none();
  });
}

void Session::answer_pointer(std::uint64_t pointer) {
  answer([&](rpc::PackedWriter out) {
    out.count(1);
    out.pointer(pointer);
  });
}

void Session::answer_exception(std::string_view text) {
  ByteWriter out{channel_.answer()};
  const auto begin = rpc::open_frame(out, FrameCode::exception);
  rpc::PackedWriter packed{out};
  packed.count(1);
  packed.raw_string(text);
  rpc::close_frame(out, begin);
}

Session::Step Session::fatal(const Error& error) {
  answer_exception(error.text);
  const bool sent = channel_.flush() == Io::ok;
  set_end_text(page_, error.text);
  if (sent) channel_.finish();
  return stop(error.code == Code::limit ? SessionEnd::limit : SessionEnd::protocol);
}

Session::Step Session::refuse(std::uint64_t bytes_left, const Error& error) {
  const auto step = on_io(channel_.skip(bytes_left), true);
  if (step.go_on) answer_exception(error.text);
  return step;
}

}  // namespace outpost::host
