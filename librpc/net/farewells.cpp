#include "net/farewells.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace outpost::rpc {
namespace {

constexpr std::size_t kDiscardBytes = 1U << 20;  // at a time
constexpr int kDiscardsPerEvent = 16;

}  // namespace

void Farewells::add(unique_fd socket, std::vector<std::byte> last_bytes,
                    std::chrono::milliseconds limit) {
  const auto it = leaving_.insert(leaving_.end(), Leaving{});
  it->socket = std::move(socket);
  it->unsent = std::move(last_bytes);
  if (advance(*it)) return drop(it);
  const auto events = it->is_shut ? EPOLLIN : EPOLLIN | EPOLLOUT;
  it->watch = loop_.watch(it->socket.get(), events, [this, it](std::uint32_t) {
    const bool was_shut = it->is_shut;
    if (advance(*it)) return drop(it);
    if (!was_shut && it->is_shut) loop_.change(it->watch, EPOLLIN);
  });
  if (it->watch == WatchId::none) return drop(it);
  it->limit = loop_.after(limit, [this, it] { drop(it); });
}

bool Farewells::advance(Leaving& leaving) {
  auto& unsent = leaving.unsent;
  while (!unsent.empty()) {
    const auto sent =
        ::send(leaving.socket.get(), unsent.data(), unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) return true;
    unsent.erase(unsent.begin(), unsent.begin() + sent);
  }
  if (unsent.empty() && !leaving.is_shut) {
    ::shutdown(leaving.socket.get(), SHUT_WR);
    leaving.is_shut = true;
  }
  for (int i = 0; i < kDiscardsPerEvent; ++i) {
    // MSG_TRUNC: TCP drops the bytes in the kernel, without a copy
    const auto size =
        ::recv(leaving.socket.get(), nullptr, kDiscardBytes, MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (size <= 0) return true;
  }
  return false;
}

void Farewells::drop(Iterator it) {
  loop_.unwatch(it->watch);
  loop_.cancel(it->limit);
  leaving_.erase(it);
}

void Farewells::stop() {
  while (!leaving_.empty()) drop(leaving_.begin());
}

}  // namespace outpost::rpc
