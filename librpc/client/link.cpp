#include "client/link.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/assert.h"

namespace outpost::client::detail {
namespace {

constexpr std::size_t kFreeBatch = 256;  // their answers fit every socket buffer
constexpr std::uint64_t kBlobStepBytes = 64 << 20;
constexpr std::uint64_t kBlobReserveBytesMax = 1ULL << 32;

using rpc::arg::device;
using rpc::arg::pointer;

rpc::Device wire(Device d) {
  return {d.type, d.id};
}

}  // namespace

/// The right to use the channel; one thread at a time. What was dropped meanwhile is freed at its
/// end.
class Link::Turn {
 public:
  explicit Turn(Link& link) : link_{link} {
    if (link_.owner_.load() == std::this_thread::get_id())
      throw RpcError{Code::busy, "the session was used from inside its own progress report"};
    link_.turn_.acquire();
    link_.owner_ = std::this_thread::get_id();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    link_.owner_ = std::thread::id{};
    link_.turn_.release();
    link_.sweep();
  }

 private:
  Link& link_;
};

Link::Link(unique_fd socket, LinkOptions options)
    : options_{std::move(options)}, channel_{std::move(socket), options_.stall} {}

Link::~Link() {
  close();
}

void Link::check_open() const {
  if (open_) return;
  const std::lock_guard lock{end_mutex_};
  if (expired_) throw SessionTimeoutError{end_text_};
  throw ConnectionError{Code::closed, end_text_};
}

void Link::end(bool expired, const std::string& text) noexcept {
  const std::lock_guard lock{end_mutex_};
  if (!open_) return;  // the first reason stays
  end_text_ = text;
  expired_ = expired;
  open_ = false;
}

void Link::close() noexcept {
  if (!open_) return;
  if (!turn_.try_acquire()) {  // wakes the thread that waits in a call
    end(false, "the session was closed by this client");
    (void)::shutdown(channel_.socket(), SHUT_RDWR);
    return;
  }
  if (open_) {
    end(false, "the session was closed by this client");
    request_.clear();
    session_.shutdown(request_);
    std::span<const std::byte> part{request_.head};
    (void)channel_.send({&part, 1});
    channel_.close();
  }
  turn_.release();
}

void Link::fail(const Error& error) {
  end(false, fmt::format("the session with {} is lost: {}", options_.peer, error.text));
  (void)::shutdown(channel_.socket(), SHUT_RDWR);
  const std::lock_guard lock{end_mutex_};
  if (expired_) throw SessionTimeoutError{end_text_};
  throw ConnectionError{error.code == outpost::Code::timeout ? Code::timeout : Code::io, end_text_};
}

void Link::expire(const std::string& text) {
  end(true, text);
  (void)::shutdown(channel_.socket(), SHUT_RDWR);
  throw SessionTimeoutError{text};
}

Value Link::round_trip(std::string_view what, const Source* from, const Destination* to) {
  if (!options_.log) {
    send(from);
    return read_answer(to);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto line = [&](std::string_view outcome) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    options_.log(fmt::format("{}: {} {} in {:.3f} ms", options_.peer, what, outcome, took.count()));
  };
  try {
    send(from);
    auto value = read_answer(to);
    line(fmt::format("-> {}", value.kind()));
    return value;
  } catch (const RpcError& e) {
    line(fmt::format("failed: {}", e.what()));
    throw;
  }
}

Result<> Link::send_parts(const Source* from) {
  auto payload = request_.payload;
  if (from != nullptr) payload = from->memory;
  std::span<const std::byte> parts[] = {request_.head, payload, request_.tail};
  rpc::Progress progress;
  if (from != nullptr && from->progress) {
    const auto head = request_.head.size();
    progress = [from, head](std::uint64_t done) {
      if (done > head) from->progress(done - head, from->bytes);
    };
  }
  if (from == nullptr || from->file < 0) return channel_.send(parts, progress);
  OUTPOST_CHECK(channel_.send({parts, 1}));
  rpc::Progress of_file;
  if (from->progress) of_file = [from](std::uint64_t done) { from->progress(done, from->bytes); };
  return channel_.send_file(from->file, from->bytes, of_file);
}

void Link::send(const Source* from) {
  auto sent = send_parts(from);
  if (!sent.has_error()) return;
  if (sent.error().code != outpost::Code::io) fail(sent.error());
  // A server that gives up says why before it closes.
  try {
    (void)read_answer(nullptr);
  } catch (const ConnectionError&) {
    throw ConnectionError{Code::io, end_text_ + " (" + sent.error().text + ")"};
  } catch (const RemoteError& e) {
    fail({outpost::Code::io, e.what()});
  }
  fail(sent.error());
}

Value Link::read_answer(const Destination* to) {
  if (auto waited = channel_.await(options_.answer); waited.has_error()) fail(waited.error());
  for (;;) {
    const auto step = session_.resume(channel_.buffered());
    if (step.has_error()) fail(step.error());
    switch (step->kind) {
      case rpc::Step::Kind::need: {
        channel_.consume(step->consumed);
        if (auto filled = channel_.fill(static_cast<std::size_t>(step->bytes)); filled.has_error())
          fail(filled.error());
        continue;
      }
      case rpc::Step::Kind::payload: {
        channel_.consume(step->consumed);
        return read_payload(step->bytes, to);
      }
      case rpc::Step::Kind::done:
        break;
    }
    const auto& answer = session_.answer();
    const std::string text{answer.text};
    if (answer.kind == rpc::Answer::Kind::expired) expire(text);
    Value value;
    if (answer.kind == rpc::Answer::Kind::value) value = take_value();
    const bool raised = answer.kind == rpc::Answer::Kind::raised;
    channel_.consume(step->consumed);
    if (raised) throw RemoteError{text};
    return value;
  }
}

Value Link::read_payload(std::uint64_t bytes, const Destination* to) {
  Value::Blob blob;
  std::optional<Error> lost;
  rpc::Progress progress;
  if (to != nullptr && to->progress)
    progress = [to, bytes](std::uint64_t done) { to->progress(done, bytes); };
  const bool elsewhere = to != nullptr && (to->memory || to->sink);
  const auto taken =
      elsewhere ? take_payload(bytes, *to, progress, lost) : take_blob(bytes, progress, blob);
  if (taken.has_error()) fail(taken.error());
  session_.payload_done();
  if (lost) throw_error(*std::move(lost));
  return Value{std::move(blob)};
}

/// Grows with what arrives: a length alone costs no memory, beside address space.
Result<> Link::take_blob(std::uint64_t bytes, const rpc::Progress& progress, Value::Blob& blob) {
  try {
    blob.reserve(static_cast<std::size_t>(std::min(bytes, kBlobReserveBytesMax)));
    while (blob.size() < bytes) {
      const auto begin = blob.size();
      const auto step = std::min(bytes - begin, kBlobStepBytes);
      blob.resize(begin + static_cast<std::size_t>(step));
      rpc::Progress of_step;
      if (progress) of_step = [&](std::uint64_t done) { progress(begin + done); };
      OUTPOST_CHECK(channel_.receive(std::span{blob}.subspan(begin), of_step));
    }
  } catch (const std::bad_alloc&) {
    return Error{outpost::Code::limit, fmt::format("no memory for {} bytes", bytes)};
  }
  return {};
}

/// An error of the destination goes to `lost`; the bytes are then read and dropped.
Result<> Link::take_payload(std::uint64_t bytes, const Destination& to,
                            const rpc::Progress& progress, std::optional<Error>& lost) {
  rpc::Sink sink = to.sink;
  if (to.memory) {
    auto memory = to.memory(bytes);
    if (memory.has_value()) return channel_.receive(*memory, progress);
    lost = std::move(memory).error();
    sink = [](Bytes) -> Result<> { return {}; };
  }
  std::uint64_t done = 0;
  bool sink_failed = false;
  const auto drained = channel_.drain(
      bytes,
      [&](Bytes piece) {
        done += piece.size();
        if (progress && !lost) progress(done);
        return sink(piece);
      },
      sink_failed);
  if (drained.has_error() && !sink_failed) return drained;
  if (sink_failed) lost = drained.error();
  return {};
}

std::uint64_t Link::find_global(std::string_view name) {
  const auto handle = system(rpc::FrameCode::get_global_func, std::vector{rpc::arg::string(name)});
  return handle.is_none() ? 0 : handle.as_pointer().value;
}

std::uint64_t Link::kept_global(const std::string& name) {
  {
    const Turn turn{*this};
    check_open();
    if (const auto found = kept_.find(name); found != kept_.end()) return found->second;
  }
  const auto handle = find_global(name);
  if (handle == 0) throw RpcError{Code::unsupported, "the server does not offer '" + name + "'"};
  const Turn turn{*this};
  return kept_[name] = handle;
}

Value Link::call(std::uint64_t function, std::span<const Argument> args) {
  const Turn turn{*this};
  check_open();
  wire_args_.clear();
  for (const auto& a : args) wire_args_.push_back(to_wire(a));
  request_.clear();
  session_.call(request_, function, wire_args_);
  return round_trip("CallFunc", nullptr, nullptr);
}

Value Link::call(std::uint64_t function, std::span<const rpc::Value> args) {
  const Turn turn{*this};
  check_open();
  request_.clear();
  session_.call(request_, function, args);
  return round_trip("CallFunc", nullptr, nullptr);
}

Value Link::call_into(std::uint64_t function, std::span<const rpc::Value> args,
                      const Destination& to) {
  const Turn turn{*this};
  check_open();
  request_.clear();
  session_.call(request_, function, args);
  auto value = round_trip("CallFunc", nullptr, &to);
  if (!std::holds_alternative<Value::Blob>(value.storage()))
    throw TypeError{
        fmt::format("the server answered with {} where bytes were expected", value.kind())};
  return value;
}

void Link::call_from(std::uint64_t function, std::span<const rpc::Value> args, const Source& from) {
  const Turn turn{*this};
  check_open();
  request_.clear();
  session_.call_streamed(request_, function, args, from.bytes);
  (void)round_trip("CallFunc", &from, nullptr);
}

Value Link::system(rpc::FrameCode code, std::span<const rpc::Value> args) {
  const Turn turn{*this};
  check_open();
  request_.clear();
  session_.system(request_, code, args);
  return round_trip(rpc::name(code), nullptr, nullptr);
}

void Link::init(std::span<const rpc::Value> constructor) {
  const Turn turn{*this};
  request_.clear();
  session_.init(request_, constructor);
  (void)round_trip("InitServer", nullptr, nullptr);
}

void Link::copy_to(const rpc::TensorView& to, std::span<const std::byte> data,
                   const rpc::Progress& progress) {
  const Turn turn{*this};
  check_open();
  request_.clear();
  session_.copy_to(request_, to, data);
  Source from;
  from.memory = request_.payload;
  from.bytes = data.size();
  if (progress) from.progress = [&](std::uint64_t done, std::uint64_t) { progress(done); };
  (void)round_trip("CopyToRemote", &from, nullptr);
}

void Link::copy_from(const rpc::TensorView& from, std::span<std::byte> data,
                     const rpc::Progress& progress) {
  const Turn turn{*this};
  check_open();
  request_.clear();
  session_.copy_from(request_, from, data.size());
  Destination to;
  to.memory = [data](std::uint64_t) -> Result<std::span<std::byte>> { return data; };
  if (progress) to.progress = [&](std::uint64_t done, std::uint64_t) { progress(done); };
  (void)round_trip("CopyFromRemote", nullptr, &to);
}

std::uint64_t Link::copy_bytes_max() {
  {
    const Turn turn{*this};
    if (copy_bytes_max_) return *copy_bytes_max_;
  }
  const auto function = find_global("tvm.rpc.server.GetCRTMaxPacketSize");
  std::int64_t limit = 0;
  if (function != 0) {
    limit = call(function, std::span<const rpc::Value>{}).as_int();
    free_handle(function);
    if (limit <= 0)
      throw RpcError{Code::malformed, fmt::format("the server limits copies to {} bytes", limit)};
  }
  const Turn turn{*this};
  copy_bytes_max_ = static_cast<std::uint64_t>(limit);
  return *copy_bytes_max_;
}

void Link::free_handle(std::uint64_t handle) noexcept {
  release({rpc::FrameCode::free_handle, {}, handle});
}
void Link::free_data(Device on, std::uint64_t data) noexcept {
  release({rpc::FrameCode::dev_free_data, on, data});
}
void Link::free_stream(Device on, std::uint64_t stream) noexcept {
  release({rpc::FrameCode::dev_free_stream, on, stream});
}

void Link::release(Garbage garbage) noexcept {
  if (!open_) return;
  {
    const std::lock_guard lock{garbage_mutex_};
    garbage_.push_back(garbage);
  }
  sweep();
}

/// Frees what was dropped, unless someone has the turn, who will do it then.
void Link::sweep() noexcept {
  for (;;) {
    {
      const std::lock_guard lock{garbage_mutex_};
      if (garbage_.empty()) return;
    }
    if (!turn_.try_acquire()) return;
    std::vector<Garbage> batch;
    {
      const std::lock_guard lock{garbage_mutex_};
      const auto size = std::min(garbage_.size(), kFreeBatch);
      batch.assign(garbage_.end() - static_cast<std::ptrdiff_t>(size), garbage_.end());
      garbage_.resize(garbage_.size() - size);
    }
    try {
      if (open_) free_batch(batch);
    } catch (const RpcError&) {  // the session is gone, and the handles with it
    }
    turn_.release();
  }
}

void Link::free_batch(std::span<const Garbage> batch) {
  request_.clear();
  for (const auto& g : batch) {
    std::vector<rpc::Value> args;
    if (g.code != rpc::FrameCode::free_handle) args.push_back(device(wire(g.device)));
    args.push_back(pointer(g.handle));
    session_.system(request_, g.code, args);
  }
  send(nullptr);
  for (std::size_t i = 0; i < batch.size(); ++i) try {
      (void)read_answer(nullptr);
    } catch (const RemoteError&) {  // it is gone already; nobody waits for this answer
    }
}

}  // namespace outpost::client::detail
