#pragma once
#include <array>
#include <cstddef>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace outpost::server {

inline constexpr std::size_t kMessageFdsMax = 4;

/// Sends one message of a SOCK_SEQPACKET socket with copies of descriptors; all or nothing.
/// Busy: the peer's queue is full (with MSG_DONTWAIT in `flags`); io: the peer is gone.
Result<> send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds,
                      int flags);

struct Message {
  std::size_t bytes = 0;  ///< 0: the peer has closed
  std::array<unique_fd, kMessageFdsMax> fds;
};

/// Receives one message; descriptors come close-on-exec. Busy: none there (with MSG_DONTWAIT).
/// Malformed: it did not fit.
Result<Message> receive_message(int socket, std::span<std::byte> into, int flags);

/// The same for a struct of fixed size.
template <class T>
Result<> send_struct(int socket, const T& message, std::span<const int> fds, int flags) {
  return send_message(socket, std::as_bytes(std::span{&message, 1}), fds, flags);
}
template <class T>
Result<Message> receive_struct(int socket, T& message, int flags) {
  auto got = receive_message(socket, std::as_writable_bytes(std::span{&message, 1}), flags);
  if (got.has_value() && got->bytes != 0 && got->bytes != sizeof message)
    return Error{Code::malformed, "a message between our processes has the wrong size"};
  return got;
}

}  // namespace outpost::server
