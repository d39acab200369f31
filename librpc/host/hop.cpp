#include "host/hop.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/utf8.h"
#include "dial/dial.h"
#include "wire/frame.h"

namespace outpost::host {
using rpc::FrameCode;
namespace {

constexpr std::chrono::seconds kDialTimeout{10};
constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kInitAnswerBytesMax = 1U << 20;

Result<const rpc::Value*> expect(std::span<const rpc::Value> arguments, std::size_t index,
                                 rpc::Kind kind, std::string_view what) {
  if (index >= arguments.size() || arguments[index].kind != kind)
    return Error{Code::unsupported, fmt::format("{} wants a {} as its argument {} ({})",
                                                kHopConstructor, name(kind), index, what)};
  return &arguments[index];
}

/// The head of the next frame, not consumed; empty when the stream ends first.
Result<std::optional<rpc::FrameHead>> peek_head(Channel& from, Io& io) {
  for (;;) {
    std::size_t skipped = 0;
    OUTPOST_TRY(auto head, rpc::parse_frame_head(from.buffered(), skipped));
    from.consume(skipped);
    if (head) return std::optional{*head};
    io = from.need(from.buffered().size() + 1);
    if (io != Io::ok) return std::optional<rpc::FrameHead>{};
  }
}

/// Moves one whole frame, head included.
Io pump(Channel& from, Channel& to, std::uint64_t frame_bytes, std::span<std::byte> piece) {
  Io read = Io::ok;
  const auto written = to.flush_with_pieces(frame_bytes, piece, [&](std::span<std::byte> part) {
    read = from.read_into(part.data(), part.size());
    return read == Io::ok;
  });
  return read != Io::ok ? read : written;
}

void put_exception(Channel& to, std::string_view text) {
  ByteWriter out{to.answer()};
  const auto begin = rpc::open_frame(out, FrameCode::exception);
  rpc::PackedWriter packed{out};
  packed.count(1);
  packed.raw_string(text);
  rpc::close_frame(out, begin);
  (void)to.flush();
}

Result<> initialise(int inner, std::span<const rpc::Value> arguments) {
  SessionPage page;
  Channel channel{inner, page, std::chrono::microseconds{0}};
  ByteWriter out{channel.answer()};
  const auto begin = rpc::open_frame(out, FrameCode::init_server);
  out.sized(as_bytes(rpc::kProtocolVersion));
  rpc::PackedWriter packed{out};
  packed.count(static_cast<std::int32_t>(arguments.size()));
  for (const auto& value : arguments) packed.value(value);
  rpc::close_frame(out, begin);
  Io io = channel.flush();
  if (io != Io::ok) return Error{Code::io, "it closed the connection"};
  OUTPOST_TRY(const auto head, peek_head(channel, io));
  if (!head) return Error{Code::io, "it closed the connection before it answered InitServer"};
  if (head->body_bytes > kInitAnswerBytesMax)
    return Error{Code::limit,
                 fmt::format("its answer to InitServer has {} bytes", head->body_bytes)};
  std::vector<std::byte> frame(kLengthBytes + static_cast<std::size_t>(head->body_bytes));
  if (channel.read_into(frame.data(), frame.size()) != Io::ok)
    return Error{Code::io, "it closed the connection before it answered InitServer"};
  if (head->code == FrameCode::return_value) return {};
  std::vector<rpc::Value> values;
  OUTPOST_CHECK(rpc::decode_packed(Bytes{frame}.subspan(rpc::FrameHead::kBytes), {}, values));
  if (head->code != FrameCode::exception || values.empty())
    return Error{Code::malformed, fmt::format("it answered InitServer with {}", name(head->code))};
  return Error{Code::denied, std::string{as_text(values[0].data)}};
}

}  // namespace

Result<unique_fd> open_hop(std::span<const rpc::Value> arguments, const SessionLimits& limits) {
  const auto hops = std::count_if(arguments.begin(), arguments.end(), [](const rpc::Value& v) {
    return v.kind == rpc::Kind::string && as_text(v.data) == kHopConstructor;
  });
  if (hops >= static_cast<std::ptrdiff_t>(limits.hops_max))
    return Error{Code::limit,
                 fmt::format("{} nested sessions exceed hops_max {}", hops + 1, limits.hops_max)};
  OUTPOST_TRY(const auto* url, expect(arguments, 0, rpc::Kind::string, "host"));
  OUTPOST_TRY(const auto* port, expect(arguments, 1, rpc::Kind::integer, "port"));
  OUTPOST_TRY(const auto* key, expect(arguments, 2, rpc::Kind::string, "key"));
  if (port->integer < 1 || port->integer > 65535)
    return Error{Code::malformed,
                 fmt::format("{}: port {} is not in 1 to 65535", kHopConstructor, port->integer)};
  const std::string host{as_text(url->data)};
  const auto purpose = fmt::format("session constructor '{}' failed for {}:{}", kHopConstructor,
                                   printable(host), port->integer);
  auto inner = rpc::dial_session(host, static_cast<std::uint16_t>(port->integer),
                                 as_text(key->data), kDialTimeout);
  if (inner.has_error()) return wrap(std::move(inner).error(), purpose);
  const auto rest = arguments.size() > 4 ? arguments.subspan(4) : std::span<const rpc::Value>{};
  if (auto ready = initialise(inner->get(), rest); ready.has_error()) {
    auto error = std::move(ready).error();
    error.text.insert(0, purpose + ":\n");
    return error;
  }
  return std::move(*inner);
}

SessionEnd run_hop(Channel& client, unique_fd inner, SessionPage& page) {
  SessionPage inner_page;
  Channel server{inner.get(), inner_page, std::chrono::microseconds{0}};
  std::vector<std::byte> piece(kPieceBytes);
  for (;;) {
    Io io = Io::ok;
    const auto request = peek_head(client, io);
    if (request.has_error()) {
      put_exception(client, request.error().text);
      return SessionEnd::protocol;
    }
    if (!*request) return io == Io::taken ? SessionEnd::unknown : SessionEnd::closed;
    page.requests.fetch_add(1, std::memory_order_relaxed);
    const auto& head = **request;
    io = pump(client, server, kLengthBytes + head.body_bytes, piece);
    if (head.code == FrameCode::shutdown) return SessionEnd::shutdown;
    if (io == Io::ok) {
      const auto answer = peek_head(server, io);
      if (answer.has_value() && *answer)
        io = pump(server, client, kLengthBytes + (*answer)->body_bytes, piece);
      else
        io = io == Io::ok ? Io::failed : io;
      if (io == Io::ok) continue;
      if (answer.has_value() && *answer)
        return SessionEnd::cut;  // inside a frame: nothing can be said
    }
    put_exception(client, "the inner server of rpc.Connect ended the session or is gone");
    client.finish();
    return SessionEnd::io;
  }
}

}  // namespace outpost::host
