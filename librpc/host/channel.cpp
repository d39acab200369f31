#include "host/channel.h"

#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"

namespace outpost::host {
namespace {
constexpr std::size_t kSendfileBytes = 1U << 30;
constexpr std::size_t kAnswerKeptBytes = 1U << 20;
constexpr int kDrainMs = 500;
constexpr int kDrainRounds = 4096;
}  // namespace

Channel::Channel(int socket, SessionPage& page, std::chrono::microseconds spin)
    : socket_{socket}, page_{page}, spin_{spin}, buffer_{new std::byte[kBufferBytes]} {
  answer_.reserve(4096);
}

Io Channel::receive(std::byte* to, std::size_t bytes_max, std::size_t& got) {
  if (spin_.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + spin_;
    do {
      const auto n = ::recv(socket_, to, bytes_max, MSG_DONTWAIT);
      if (n > 0) {
        got = static_cast<std::size_t>(n);
        page_.in_bytes.fetch_add(got, std::memory_order_relaxed);
        return Io::ok;
      }
      if (n == 0) return Io::closed;
      if (errno != EAGAIN && errno != EINTR) return Io::failed;
    } while (std::chrono::steady_clock::now() < until);
  }
  for (;;) {
    const auto n = ::recv(socket_, to, bytes_max, 0);
    if (n > 0) {
      got = static_cast<std::size_t>(n);
      page_.in_bytes.fetch_add(got, std::memory_order_relaxed);
      return Io::ok;
    }
    if (n == 0) return Io::closed;
    if (errno != EINTR) return errno == ECONNRESET ? Io::closed : Io::failed;
  }
}

Io Channel::need(std::size_t bytes) {
  OUTPOST_ASSERT(bytes <= kBufferBytes);
  while (end_ - begin_ < bytes) {
    if (!answer_.empty())
      if (const auto io = flush(); io != Io::ok) return io;
    if (begin_ == end_) begin_ = end_ = 0;
    if (begin_ + bytes > kBufferBytes) {
      std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    std::size_t got = 0;
    if (const auto io = receive(buffer_.get() + end_, kBufferBytes - end_, got); io != Io::ok)
      return io;
    end_ += got;
  }
  return Io::ok;
}

Io Channel::read_some(std::byte* to, std::size_t bytes_max, std::size_t& got) {
  if (begin_ != end_) {
    got = std::min(bytes_max, end_ - begin_);
    std::memcpy(to, buffer_.get() + begin_, got);
    begin_ += got;
    return Io::ok;
  }
  if (!answer_.empty())
    if (const auto io = flush(); io != Io::ok) return io;
  return receive(to, bytes_max, got);
}

Io Channel::read_into(std::byte* to, std::size_t bytes) {
  while (bytes != 0) {
    std::size_t got = 0;
    if (const auto io = read_some(to, bytes, got); io != Io::ok) return io;
    to += got;
    bytes -= got;
  }
  return Io::ok;
}

Io Channel::skip(std::uint64_t bytes) {
  while (bytes != 0) {
    if (begin_ == end_)
      if (const auto io = need(1); io != Io::ok) return io;
    const auto part = std::min<std::uint64_t>(bytes, end_ - begin_);
    begin_ += static_cast<std::size_t>(part);
    bytes -= part;
  }
  return Io::ok;
}

bool Channel::take_turn() {
  auto idle = Turn::idle;
  return page_.turn.compare_exchange_strong(idle, Turn::sending, std::memory_order_acq_rel);
}

void Channel::give_turn() {
  page_.turn.store(Turn::idle, std::memory_order_release);
}

Io Channel::send_all(Bytes bytes, bool more) {
  page_.out_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
  while (!bytes.empty()) {
    const auto n =
        ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno == EPIPE || errno == ECONNRESET ? Io::closed : Io::failed;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return Io::ok;
}

Io Channel::flush() {
  return flush_with({});
}

Io Channel::flush_with(Bytes payload) {
  if (answer_.empty()) return Io::ok;
  if (!take_turn()) return Io::taken;
  Io io = Io::ok;
  if (payload.empty()) {
    io = send_all(answer_, false);
  } else {
    iovec parts[2] = {{answer_.data(), answer_.size()},
                      {const_cast<std::byte*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const auto n = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
    auto sent = n < 0 ? std::size_t{0} : static_cast<std::size_t>(n);
    page_.out_bytes.fetch_add(sent, std::memory_order_relaxed);
    const auto first = std::min(sent, answer_.size());
    io = send_all(Bytes{answer_}.subspan(first), true);
    if (io == Io::ok) io = send_all(payload.subspan(sent - first), false);
  }
  answer_.clear();
  if (answer_.capacity() > kAnswerKeptBytes) std::vector<std::byte>{}.swap(answer_);
  give_turn();
  return io;
}

Io Channel::flush_with_file(int fd, std::uint64_t bytes) {
  if (!take_turn()) return Io::taken;
  Io io = send_all(answer_, bytes != 0);
  answer_.clear();
  off_t at = 0;
  while (io == Io::ok && bytes != 0) {
    const auto n = ::sendfile(
        socket_, fd, &at, static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kSendfileBytes)));
    if (n > 0) {
      bytes -= static_cast<std::uint64_t>(n);
      page_.out_bytes.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      io = n < 0 && (errno == EPIPE || errno == ECONNRESET) ? Io::closed : Io::failed;
    }
  }
  give_turn();
  return io;
}

void Channel::finish() {
  ::shutdown(socket_, SHUT_WR);
  for (int round = 0; round < kDrainRounds; ++round) {
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, kDrainMs) <= 0) return;
    if (::recv(socket_, buffer_.get(), kBufferBytes, MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace outpost::host
