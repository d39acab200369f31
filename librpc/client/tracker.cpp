#include <netinet/in.h>
#include <netinet/tcp.h>
#include <outpost/rpc/tracker_client.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "client/channel.h"
#include "client/link.h"
#include "dial/dial.h"
#include "wire/tracker_message.h"

namespace outpost::client {
namespace {

constexpr std::chrono::milliseconds kHandshakeLimit{60'000};

template <class T>
T checked(Result<T> result) {
  if (result.has_error()) detail::throw_error(std::move(result).error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Throws `last` again, of the same class, with another text.
[[noreturn]] void throw_as(const RpcError& last, const std::string& text) {
  if (dynamic_cast<const ConnectionError*>(&last) != nullptr)
    throw ConnectionError{last.code(), text};
  throw RpcError{last.code(), text};
}

std::string without_role(std::string_view key) {
  constexpr std::string_view kRole = "server:";
  return std::string{key.starts_with(kRole) ? key.substr(kRole.size()) : key};
}

}  // namespace

class Tracker::Impl {
 public:
  Impl(std::string host, std::uint16_t port, const TrackerOptions& options)
      : host_{std::move(host)}, port_{port}, options_{options} {}

  void open();
  void close() {
    channel_.reset();
    closed_ = true;
  }
  /// Sends one message and waits for its answer's text; once more on a new connection when the old
  /// one turns out to be lost.
  std::string ask(const rpc::TrackerRequest& request, std::chrono::milliseconds limit);
  rpc::DeviceAnswer wait_for_device(const std::string& key, const RequestOptions& options);
  std::chrono::milliseconds answer_limit() const { return options_.answer; }
  std::string where() const { return rpc::address_text(host_, port_); }

 private:
  Result<std::string> exchange(const std::string& message, std::chrono::milliseconds limit);
  Result<> read(std::size_t bytes, std::chrono::milliseconds limit);

  std::string host_;
  std::uint16_t port_;
  TrackerOptions options_;
  std::optional<rpc::Channel> channel_;
  bool closed_ = false;
};

void Tracker::Impl::open() {
  auto socket = checked(rpc::connect_tcp(host_, port_, options_.connect));
  channel_.emplace(std::move(socket), options_.answer);
  const auto magic = rpc::encode_tracker_magic();
  std::span<const std::byte> part = as_bytes(magic);
  auto greeted = channel_->send({&part, 1});
  if (!greeted.has_error()) greeted = read(magic.size(), options_.answer);
  if (greeted.has_error()) {
    channel_.reset();
    detail::throw_error(wrap(std::move(greeted).error(),
                             fmt::format("handshake with the tracker {} failed", where())));
  }
  const bool same = as_text(channel_->buffered().first(magic.size())) == magic;
  channel_->consume(magic.size());
  if (same) return;
  channel_.reset();
  throw ConnectionError{Code::malformed, where() + " is not a tracker"};
}

/// Until that many bytes are buffered.
Result<> Tracker::Impl::read(std::size_t bytes, std::chrono::milliseconds limit) {
  // A stock tracker answers in two segments and holds the second one back until the first is
  // acknowledged, which the kernel would delay.
  const int one = 1;
  (void)::setsockopt(channel_->socket(), IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
  if (channel_->buffered().size() >= bytes) return {};
  OUTPOST_CHECK(channel_->await(limit));
  return channel_->fill(bytes);
}

Result<std::string> Tracker::Impl::exchange(const std::string& message,
                                            std::chrono::milliseconds limit) {
  std::span<const std::byte> part = as_bytes(message);
  OUTPOST_CHECK(channel_->send({&part, 1}));
  constexpr std::size_t kHead = 4;
  OUTPOST_CHECK(read(kHead, limit));
  OUTPOST_TRY(const auto size, ByteReader{channel_->buffered()}.le<std::int32_t>("message length"));
  if (size <= 0 || static_cast<std::uint32_t>(size) > rpc::kTrackerAnswerBytesMax)
    return Error{outpost::Code::malformed, fmt::format("an answer of {} bytes", size)};
  channel_->consume(kHead);
  OUTPOST_CHECK(read(static_cast<std::size_t>(size), options_.answer));
  std::string text{as_text(channel_->buffered().first(static_cast<std::size_t>(size)))};
  channel_->consume(static_cast<std::size_t>(size));
  return text;
}

std::string Tracker::Impl::ask(const rpc::TrackerRequest& request,
                               std::chrono::milliseconds limit) {
  if (closed_) throw ConnectionError{Code::closed, "the tracker session was closed by this client"};
  const auto message = rpc::encode(request);
  for (bool again = false;; again = true) {
    const bool was_open = channel_.has_value();
    if (!was_open) open();
    auto text = exchange(message, limit);
    if (text.has_value()) return *std::move(text);
    channel_.reset();  // which also withdraws a request for a device
    if (was_open && !again && text.error().code == outpost::Code::io) continue;
    auto error = wrap(std::move(text).error(), fmt::format("the tracker {}", where()));
    if (error.code == outpost::Code::timeout) throw RpcError{Code::timeout, error.text};
    detail::throw_error(std::move(error));
  }
}

rpc::DeviceAnswer Tracker::Impl::wait_for_device(const std::string& key,
                                                 const RequestOptions& options) {
  try {
    const auto text = ask(rpc::DeviceRequest{key, "", options.priority}, options.wait);
    return checked(rpc::decode_device(text));
  } catch (const RpcError& e) {
    if (e.code() != Code::timeout) throw;
    throw RpcError{Code::timeout, fmt::format("no device with key '{}' became free within {} ms",
                                              key, options.wait.count())};
  }
}

Tracker::Tracker(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Tracker::Tracker(Tracker&&) noexcept = default;
Tracker& Tracker::operator=(Tracker&&) noexcept = default;
Tracker::~Tracker() = default;

void Tracker::close() {
  impl_->close();
}

bool Tracker::ping() {
  const auto text = impl_->ask(rpc::PingRequest{}, impl_->answer_limit());
  return checked(rpc::decode_status(text)) == rpc::TrackerStatus::success;
}

TrackerSummary Tracker::summary() {
  const auto text = impl_->ask(rpc::SummaryRequest{.boards = true}, impl_->answer_limit());
  auto answer = checked(rpc::decode_summary(text));
  TrackerSummary out;
  for (auto& s : answer.servers) {
    TrackerServer server{std::move(s.key), std::move(s.host), std::move(s.port), {}};
    for (auto& member : s.members)
      server.others.emplace_back(std::move(member.name), std::move(member.json));
    out.servers.push_back(std::move(server));
  }
  for (auto& q : answer.queues) out.queues.push_back({std::move(q.key), q.free, q.pending});
  if (answer.boards)
    for (auto& b : *answer.boards)
      out.boards.push_back({without_role(b.key), std::move(b.host), std::move(b.port),
                            std::move(b.state), b.holder.value_or(""), b.state_seconds});
  std::ranges::sort(out.boards, {},
                    [](const TrackerBoard& b) { return std::tie(b.key, b.host, b.port); });
  return out;
}

Session Tracker::request(const std::string& key, const RequestOptions& options) {
  for (int tries = 1;; ++tries) {
    const auto device = impl_->wait_for_device(key, options);
    auto to = options.connect;
    to.key = device.match_key;
    if (to.timeouts.handshake.count() == 0) to.timeouts.handshake = kHandshakeLimit;
    try {
      return connect(device.host, device.port, to);
    } catch (const SessionTimeoutError&) {
      throw;
    } catch (const RpcError& e) {
      if (tries >= options.max_retry) give_up(key, tries, e);
    }
  }
}

void Tracker::give_up(const std::string& key, int tries, const RpcError& last) {
  throw_as(last, fmt::format("no session on a device with key '{}' after {} {}: {}", key, tries,
                             tries == 1 ? "try" : "tries", last.what()));
}

Tracker connect_tracker(const std::string& host, std::uint16_t port,
                        const TrackerOptions& options) {
  auto impl = std::make_unique<Tracker::Impl>(host, port, options);
  impl->open();
  return Tracker{std::move(impl)};
}

}  // namespace outpost::client
