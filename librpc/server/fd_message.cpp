#include "server/fd_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace outpost::server {
namespace {

union Control {
  char space[CMSG_SPACE(sizeof(int) * kMessageFdsMax)];
  cmsghdr align;
};

Error system_error(const char* what) {
  const auto code = errno == EAGAIN ? Code::busy : Code::io;
  return {code, std::string{what} + ": " + std::strerror(errno)};
}

}  // namespace

Result<> send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds,
                      int flags) {
  OUTPOST_ASSERT(fds.size() <= kMessageFdsMax);
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.space;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    auto* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &message, flags | MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return system_error("cannot send to a process of ours");
  return {};
}

Result<Message> receive_message(int socket, std::span<std::byte> into, int flags) {
  iovec part{into.data(), into.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.space;
  message.msg_controllen = sizeof control.space;
  ssize_t size = 0;
  bool was_reset = false;
  while ((size = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EINTR) continue;
    // a peer that closed with our bytes unread shows as a reset, in front of its own last messages
    if (errno != ECONNRESET || std::exchange(was_reset, true))
      return system_error("cannot receive from a process of ours");
  }
  Message out;
  out.bytes = static_cast<std::size_t>(size);
  for (auto* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const auto count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count && i < kMessageFdsMax; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
      out.fds[i].reset(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Error{Code::malformed, "a message between our processes is too long"};
  return out;
}

}  // namespace outpost::server
