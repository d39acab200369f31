#include "client/channel.h"

#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/assert.h"

namespace outpost::rpc {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr std::size_t kPieceBytes = 1 << 20;  // between two reports of progress
constexpr std::size_t kPartsMax = 8;

std::string os_text(int error) {
  return std::generic_category().message(error);
}

Error io_error(const char* doing, int error) {
  return {Code::io, fmt::format("cannot {}: {}", doing, os_text(error))};
}

void set_time_limit(int socket, int option, Timeout limit) {
  timeval tv{};
  tv.tv_sec = limit.count() / 1000;
  tv.tv_usec = limit.count() % 1000 * 1000;
  // Can't fail on a socket; were it not one, the first read says so.
  (void)::setsockopt(socket, SOL_SOCKET, option, &tv, sizeof tv);
}

/// Drops `bytes` from the front of `parts`.
void drop_front(std::span<std::span<const std::byte>>& parts, std::size_t bytes) {
  while (!parts.empty() && bytes >= parts.front().size()) {
    bytes -= parts.front().size();
    parts = parts.subspan(1);
  }
  if (!parts.empty()) parts.front() = parts.front().subspan(bytes);
}

}  // namespace

Channel::Channel(unique_fd socket, Timeout stall)
    : socket_{std::move(socket)}, stall_{stall}, buffer_(kBufferBytes) {
  // A limit in the kernel costs nothing per call, unlike a poll before each.
  set_time_limit(socket_.get(), SO_RCVTIMEO, stall_);
  set_time_limit(socket_.get(), SO_SNDTIMEO, stall_);
}

Result<> Channel::send(std::span<std::span<const std::byte>> parts, const Progress& progress) {
  OUTPOST_ASSERT(parts.size() <= kPartsMax);
  std::uint64_t done = 0;
  drop_front(parts, 0);
  while (!parts.empty()) {
    std::array<iovec, kPartsMax> pieces{};
    std::size_t count = 0;
    std::size_t room = progress ? kPieceBytes : SIZE_MAX;
    for (const auto part : parts) {
      const auto size = std::min(part.size(), room);
      room -= size;
      pieces[count++] = {const_cast<std::byte*>(part.data()), size};
      if (room == 0) break;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      OUTPOST_CHECK(stalled_or_failed("send", POLLOUT));
      continue;
    }
    done += static_cast<std::uint64_t>(sent);
    drop_front(parts, static_cast<std::size_t>(sent));
    if (progress) progress(done);
  }
  return {};
}

Result<> Channel::send_file(int file, std::uint64_t bytes, const Progress& progress) {
  std::uint64_t done = 0;
  while (done < bytes) {
    const auto piece = std::min<std::uint64_t>(bytes - done, kPieceBytes);
    const auto sent = ::sendfile(socket_.get(), file, nullptr, piece);
    if (sent < 0 && (errno == EINVAL || errno == ENOSYS))
      return send_copied(file, bytes, done, progress);
    if (sent < 0) {
      OUTPOST_CHECK(stalled_or_failed("send the file", POLLOUT));
      continue;
    }
    if (sent == 0)
      return Error{Code::io, fmt::format("the file ended after {} of {} bytes", done, bytes)};
    done += static_cast<std::uint64_t>(sent);
    if (progress) progress(done);
  }
  return {};
}

/// For file systems and sockets that sendfile does not take.
Result<> Channel::send_copied(int file, std::uint64_t bytes, std::uint64_t done,
                              const Progress& progress) {
  std::vector<std::byte> piece(256 * 1024);
  while (done < bytes) {
    const auto want = std::min<std::uint64_t>(bytes - done, piece.size());
    const auto got = ::read(file, piece.data(), want);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("read the file", errno);
    if (got == 0)
      return Error{Code::io, fmt::format("the file ended after {} of {} bytes", done, bytes)};
    std::span<const std::byte> part{piece.data(), static_cast<std::size_t>(got)};
    OUTPOST_CHECK(send({&part, 1}));
    done += static_cast<std::uint64_t>(got);
    if (progress) progress(done);
  }
  return {};
}

/// After a call that returned -1: nothing when it is worth trying again.
Result<> Channel::stalled_or_failed(const char* doing, short events) {
  const int error = errno;
  if (error == EINTR) return {};
  if (error != EAGAIN && error != EWOULDBLOCK) return io_error(doing, error);
  if (stall_.count() > 0)
    return Error{Code::timeout,
                 fmt::format("cannot {}: the server stood still for {} ms", doing, stall_.count())};
  // Whoever made the socket left it without blocking.
  pollfd p{socket_.get(), events, 0};
  if (::poll(&p, 1, -1) < 0 && errno != EINTR) return io_error(doing, errno);
  return {};
}

Result<> Channel::await(Timeout limit) {
  if (begin_ != end_) return {};
  const bool limited = limit.count() > 0;
  const auto end = std::chrono::steady_clock::now() + limit;
  if (limited && (stall_.count() <= 0 || limit < stall_)) OUTPOST_CHECK(wait_readable(limit));
  for (;;) {
    const auto got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
    if (got == 0) return Error{Code::io, "the server closed the connection"};
    if (got > 0) {
      end_ = static_cast<std::size_t>(got);
      return {};
    }
    if (errno != EINTR && errno != EAGAIN) return io_error("receive", errno);
    const auto left = std::chrono::ceil<Timeout>(end - std::chrono::steady_clock::now());
    if (limited && left.count() <= 0)
      return Error{Code::timeout, fmt::format("no answer within {} ms", limit.count())};
    OUTPOST_CHECK(wait_readable(limited ? left : Timeout{0}));
  }
}

/// Zero waits without a limit.
Result<> Channel::wait_readable(Timeout limit) {
  const auto wait = limit.count() > 0 ? std::min<std::int64_t>(limit.count(), 1 << 30) : -1;
  pollfd p{socket_.get(), POLLIN, 0};
  const int ready = ::poll(&p, 1, static_cast<int>(wait));
  if (ready == 0) return Error{Code::timeout, fmt::format("no answer within {} ms", limit.count())};
  if (ready < 0 && errno != EINTR) return io_error("wait for an answer", errno);
  return {};
}

Result<std::size_t> Channel::read_some(std::span<std::byte> into) {
  for (;;) {
    const auto got = ::recv(socket_.get(), into.data(), into.size(), 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return Error{Code::io, "the server closed the connection"};
    OUTPOST_CHECK(stalled_or_failed("receive", POLLIN));
  }
}

Result<> Channel::fill(std::size_t bytes) {
  while (end_ - begin_ < bytes) {
    if (begin_ > 0) {
      std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
      end_ -= begin_;
      begin_ = 0;
    }
    // Grows with what came, not with what a length promises.
    if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
    OUTPOST_TRY(const auto got, read_some(std::span{buffer_}.subspan(end_)));
    end_ += got;
  }
  return {};
}

void Channel::consume(std::size_t bytes) {
  OUTPOST_ASSERT(bytes <= end_ - begin_);
  begin_ += bytes;
  if (begin_ != end_) return;
  begin_ = end_ = 0;
  if (buffer_.size() > 16 * kBufferBytes) {  // one huge answer must not stay for ever
    buffer_.resize(kBufferBytes);
    buffer_.shrink_to_fit();
  }
}

Result<> Channel::receive(std::span<std::byte> into, const Progress& progress) {
  std::uint64_t done = std::min(end_ - begin_, into.size());
  std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), done, into.begin());
  consume(done);
  if (progress) progress(done);
  while (done < into.size()) {
    const auto room = progress ? std::min(into.size() - done, kPieceBytes) : into.size() - done;
    OUTPOST_TRY(const auto got, read_some(into.subspan(done, room)));
    done += got;
    if (progress) progress(done);
  }
  return {};
}

Result<> Channel::drain(std::uint64_t bytes, const Sink& sink, bool& sink_failed) {
  Result<> outcome;
  sink_failed = false;
  if (bytes > buffer_.size() && buffer_.size() < 4 * kBufferBytes) buffer_.resize(4 * kBufferBytes);
  while (bytes > 0) {
    OUTPOST_CHECK(fill(1));
    const auto piece = buffered().first(std::min<std::uint64_t>(buffered().size(), bytes));
    if (!sink_failed) outcome = sink(piece);
    sink_failed = sink_failed || outcome.has_error();
    bytes -= piece.size();
    consume(piece.size());
  }
  return outcome;
}

}  // namespace outpost::rpc
