#include "core/client_session.h"

#include <algorithm>

#include "base/assert.h"

namespace outpost::rpc {
namespace {

// Below this a copy into the request is cheaper than one more piece for the kernel to gather.
constexpr std::size_t kPayloadBytesMin = 16 * 1024;
constexpr std::size_t kCodeBytes = 4;
constexpr std::string_view kExpired = "RPCSessionTimeoutError: ";
// Count, tag and the longest head of a bytes value: enough to see that a payload follows.
constexpr std::size_t kBytesResultHeadBytes = 4 + 12 + 4 + 4 + 8;

Value of_kind(Kind kind, std::int32_t index) {
  Value v;
  v.kind = kind;
  v.index = index;
  return v;
}

Value of_handle(Kind kind, std::int32_t index, std::uint64_t handle) {
  auto v = of_kind(kind, index);
  v.integer = static_cast<std::int64_t>(handle);
  return v;
}

void write_values(PackedWriter& out, std::span<const Value> values) {
  for (const auto& v : values) out.value(v);
}

std::int32_t count_of(std::span<const Value> values, std::int32_t more = 0) {
  return static_cast<std::int32_t>(values.size()) + more;
}

/// The bytes argument worth sending from where it lies; past the end when there is none.
std::size_t find_payload(std::span<const Value> args) {
  std::size_t best = args.size();
  std::size_t best_bytes = kPayloadBytesMin - 1;
  for (std::size_t i = 0; i < args.size(); ++i)
    if (args[i].kind == Kind::bytes && args[i].data.size() > best_bytes) {
      best = i;
      best_bytes = args[i].data.size();
    }
  return best;
}

}  // namespace

namespace arg {

Value none() {
  return {};
}
Value integer(std::int64_t v) {
  auto out = of_kind(Kind::integer, kInt);
  out.integer = v;
  return out;
}
Value boolean(bool v) {
  auto out = of_kind(Kind::boolean, kBool);
  out.integer = v ? 1 : 0;
  return out;
}
Value real(double v) {
  auto out = of_kind(Kind::real, kFloat);
  out.real = v;
  return out;
}
Value pointer(std::uint64_t v) {
  return of_handle(Kind::pointer, kPointer, v);
}
Value dtype(DType v) {
  auto out = of_kind(Kind::dtype, kDataType);
  out.dtype = v;
  return out;
}
Value device(Device v) {
  auto out = of_kind(Kind::device, kDevice);
  out.device = v;
  return out;
}
Value tensor(const TensorView& v) {
  auto out = of_kind(Kind::tensor, kTensorView);
  out.tensor = v;
  return out;
}
Value string(std::string_view v) {
  if (v.find('\0') != std::string_view::npos) return boxed_string(v);
  auto out = of_kind(Kind::string, kRawString);
  out.data = as_bytes(v);
  return out;
}
Value boxed_string(std::string_view v) {
  constexpr std::size_t kSmallMax = 7;
  auto out = of_kind(Kind::string, v.size() <= kSmallMax ? kSmallString : kString);
  out.boxed = true;
  out.data = as_bytes(v);
  return out;
}
Value bytes(Bytes v) {
  constexpr std::size_t kSmallMax = 7;
  auto out = of_kind(Kind::bytes, v.size() <= kSmallMax ? kSmallBytes : kBytes);
  out.boxed = true;
  out.data = v;
  return out;
}
Value function(std::uint64_t handle) {
  return of_handle(Kind::function, kFunction, handle);
}
Value module(std::uint64_t handle) {
  return of_handle(Kind::module, kModule, handle);
}
Value object(std::uint64_t handle) {
  auto out = of_handle(Kind::object, kRemoteObject, handle);
  out.boxed = true;
  return out;
}

}  // namespace arg

void Request::clear() {
  head.clear();
  payload_bytes = 0;
  payload = {};
  tail.clear();
}

void ClientSession::init(Request& out, std::span<const Value> constructor) {
  ByteWriter w{out.head};
  const auto begin = open_frame(w, FrameCode::init_server);
  w.sized(as_bytes(kProtocolVersion));
  PackedWriter packed{w};
  packed.count(count_of(constructor));
  write_values(packed, constructor);
  close_frame(w, begin);
  expected_.push_back({Form::value, 0});
}

void ClientSession::call(Request& out, std::uint64_t function, std::span<const Value> args) {
  ByteWriter w{out.head};
  const auto begin = open_frame(w, FrameCode::call_func);
  w.le(function);
  PackedWriter packed{w};
  packed.count(count_of(args));
  const auto at = out.payload_bytes == 0 ? find_payload(args) : args.size();
  write_values(packed, args.first(at));
  if (at < args.size()) {
    out.payload = args[at].data;
    out.payload_bytes = args[at].data.size();
    packed.boxed_bytes_head(out.payload_bytes);
    PackedWriter tail{ByteWriter{out.tail}};
    write_values(tail, args.subspan(at + 1));
  }
  close_frame(w, begin, at < args.size() ? out.payload_bytes + out.tail.size() : 0);
  expected_.push_back({Form::call, 0});
}

void ClientSession::call_streamed(Request& out, std::uint64_t function, std::span<const Value> args,
                                  std::uint64_t payload_bytes) {
  OUTPOST_ASSERT(out.payload_bytes == 0);
  ByteWriter w{out.head};
  const auto begin = open_frame(w, FrameCode::call_func);
  w.le(function);
  PackedWriter packed{w};
  packed.count(count_of(args, 1));
  write_values(packed, args);
  packed.boxed_bytes_head(payload_bytes);
  out.payload_bytes = payload_bytes;
  close_frame(w, begin, payload_bytes);
  expected_.push_back({Form::call, 0});
}

void ClientSession::copy_to(Request& out, const TensorView& to, Bytes data) {
  OUTPOST_ASSERT(out.payload_bytes == 0);
  ByteWriter w{out.head};
  const auto begin = open_frame(w, FrameCode::copy_to_remote);
  encode_tensor(w, to);
  w.le<std::uint64_t>(data.size());
  if (data.size() < kPayloadBytesMin) {
    w.bytes(data);
  } else {
    out.payload = data;
    out.payload_bytes = data.size();
  }
  close_frame(w, begin, out.payload_bytes);
  expected_.push_back({Form::value, 0});
}

void ClientSession::copy_from(Request& out, const TensorView& from, std::uint64_t bytes) {
  ByteWriter w{out.head};
  const auto begin = open_frame(w, FrameCode::copy_from_remote);
  encode_tensor(w, from);
  w.le(bytes);
  close_frame(w, begin);
  expected_.push_back({Form::copy, bytes});
}

void ClientSession::system(Request& out, FrameCode code, std::span<const Value> args) {
  OUTPOST_ASSERT(code >= FrameCode::get_global_func);
  ByteWriter w{out.head};
  const auto begin = open_frame(w, code);
  PackedWriter packed{w};
  packed.count(count_of(args));
  write_values(packed, args);
  close_frame(w, begin);
  expected_.push_back({Form::value, 0});
}

void ClientSession::shutdown(Request& out) {
  ByteWriter w{out.head};
  close_frame(w, open_frame(w, FrameCode::shutdown));
}

Step ClientSession::done(std::size_t consumed) {
  expected_.pop_front();
  return {Step::Kind::done, consumed, 0};
}

Result<Step> ClientSession::resume(Bytes received) {
  OUTPOST_ASSERT(!expected_.empty());
  std::size_t skipped = 0;
  OUTPOST_TRY(const auto head, parse_frame_head(received, skipped));
  if (!head) return Step{Step::Kind::need, skipped, FrameHead::kBytes};
  if (head->code == FrameCode::shutdown)
    return Error{Code::io, "the server ended the session (Shutdown)"};
  answer_ = Answer{};
  if (head->code == FrameCode::copy_ack) return read_copy(*head, skipped);
  if (head->code != FrameCode::return_value && head->code != FrameCode::exception)
    return Error{Code::malformed,
                 fmt::format("the server sent {} where an answer was expected", name(head->code))};
  const auto body = received.subspan(skipped + FrameHead::kBytes);
  const std::uint64_t body_bytes = head->body_bytes - kCodeBytes;
  if (expected_.front().form == Form::call && head->code == FrameCode::return_value) {
    const auto look = std::min<std::uint64_t>(body_bytes, kBytesResultHeadBytes);
    if (body.size() < look) return Step{Step::Kind::need, skipped, FrameHead::kBytes + look};
    OUTPOST_TRY(const auto payload,
                read_payload_head(*head, body.first(static_cast<std::size_t>(look)), skipped));
    if (payload) return *payload;
  }
  if (body_bytes > limits_.frame_bytes_max)
    return Error{Code::limit, fmt::format("answer of {} bytes exceeds frame_bytes_max {}",
                                          body_bytes, limits_.frame_bytes_max)};
  if (body.size() < body_bytes)
    return Step{Step::Kind::need, skipped, FrameHead::kBytes + body_bytes};
  OUTPOST_CHECK(read_whole(*head, body.first(static_cast<std::size_t>(body_bytes))));
  return done(skipped + FrameHead::kBytes + static_cast<std::size_t>(body_bytes));
}

Result<Step> ClientSession::read_copy(const FrameHead& head, std::size_t skipped) {
  const auto& expected = expected_.front();
  const std::uint64_t bytes = head.body_bytes - kCodeBytes;
  if (expected.form != Form::copy)
    return Error{Code::malformed, "the server sent CopyAck where no copy was asked for"};
  if (bytes != expected.copy_bytes)
    return Error{Code::malformed,
                 fmt::format("the server sent {} bytes of a copy, {} were asked for", bytes,
                             expected.copy_bytes)};
  answer_.kind = Answer::Kind::payload;
  return Step{Step::Kind::payload, skipped + FrameHead::kBytes, bytes};
}

Result<std::optional<Step>> ClientSession::read_payload_head(const FrameHead& head, Bytes body,
                                                             std::size_t skipped) {
  ByteReader in{body};
  constexpr std::int32_t kTagAndBytes = 2;
  const auto count = in.le<std::int32_t>("count");
  const auto tag_index = in.le<std::int32_t>("tag's type");
  const auto tag = in.le<std::int64_t>("tag");
  if (!count || !tag_index || !tag || *count != kTagAndBytes || *tag_index != kInt ||
      (*tag != kBytes && *tag != kSmallBytes))
    return std::optional<Step>{};
  OUTPOST_TRY(const auto payload, decode_payload_head(in));
  if (!payload || payload->kind != Kind::bytes)
    return Error{Code::malformed, fmt::format("result of type {} is not followed by bytes", *tag)};
  const std::uint64_t left = head.body_bytes - kCodeBytes - in.offset();
  if (payload->bytes != left)
    return Error{Code::malformed, fmt::format("bytes result says {} bytes, its frame holds {}",
                                              payload->bytes, left)};
  answer_.kind = Answer::Kind::payload;
  answer_.tag = static_cast<std::int32_t>(*tag);
  return std::optional{
      Step{Step::Kind::payload, skipped + FrameHead::kBytes + in.offset(), payload->bytes}};
}

void ClientSession::payload_done() {
  OUTPOST_ASSERT(!expected_.empty());
  expected_.pop_front();
}

Result<> ClientSession::read_whole(const FrameHead& head, Bytes body) {
  if (head.code == FrameCode::exception) return read_exception(body);
  const auto form = expected_.front().form;
  if (form == Form::copy)
    return Error{Code::malformed, "the server sent Return where CopyAck was expected"};
  OUTPOST_CHECK(decode_packed(body, {limits_.values_max, limits_.ndim_max}, values_));
  if (values_.empty()) return Error{Code::malformed, "the server sent a Return without a value"};
  if (form == Form::call) return read_call_result();
  answer_.value = values_.front();
  return {};
}

Result<> ClientSession::read_exception(Bytes body) {
  OUTPOST_CHECK(decode_packed(body, {limits_.values_max, limits_.ndim_max}, values_));
  if (values_.empty() || values_.front().kind != Kind::string)
    return Error{Code::malformed, "the server sent an Exception without a text"};
  answer_.text = as_text(values_.front().data);
  answer_.kind = answer_.text.starts_with(kExpired) ? Answer::Kind::expired : Answer::Kind::raised;
  return {};
}

Result<> ClientSession::read_call_result() {
  const auto& tag = values_.front();
  if (tag.kind != Kind::integer || tag.integer < 0 || tag.integer > 0xffff || values_.size() < 2)
    return Error{Code::malformed,
                 fmt::format("call result of {} values that begins with {} is not tagged",
                             values_.size(), name(tag.kind))};
  answer_.tag = static_cast<std::int32_t>(tag.integer);
  answer_.value = values_[1];
  if (answer_.tag == kTensor || answer_.tag == kTensorView) return read_tensor_result();
  if (values_.size() != 2)
    return Error{Code::malformed,
                 fmt::format("call result of type {} has {} values", answer_.tag, values_.size())};
  const bool kept = answer_.tag >= kObjectBegin && answer_.tag != kString && answer_.tag != kBytes;
  if (kept && answer_.value.kind != Kind::pointer && answer_.value.kind != Kind::none)
    return Error{Code::malformed, fmt::format("call result of type {} comes as {}, not as a handle",
                                              answer_.tag, name(answer_.value.kind))};
  return {};
}

Result<> ClientSession::read_tensor_result() {
  if (answer_.value.kind != Kind::tensor || values_.size() > 3)
    return Error{Code::malformed, fmt::format("tensor result comes as {} with {} values",
                                              name(answer_.value.kind), values_.size())};
  // The peer hands an argument that came straight back without an owner.
  if (values_.size() == 2 && answer_.tag == kTensorView) return {};
  if (values_.size() != 3 || (values_[2].kind != Kind::pointer && values_[2].kind != Kind::none))
    return Error{Code::malformed, "tensor result has no owner"};
  answer_.owner = values_[2].kind == Kind::pointer ? values_[2].handle() : 0;
  return {};
}

}  // namespace outpost::rpc
