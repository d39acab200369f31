#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "net/event_loop.h"

struct sockaddr;

namespace outpost::rpc {

/// Where to listen, and what accepted sockets inherit.
struct ListenOptions {
  std::string host =
      "0.0.0.0";               ///< name or address; every address of a name is bound, `::` is both
  std::uint16_t port = 0;      ///< 0: any free one
  std::uint16_t port_end = 0;  ///< last port tried, included
  int backlog = 1024;          ///< connections that may wait to be accepted
  bool reuse_addr = true;      ///< a port whose last connections still linger may be taken
  std::chrono::seconds keepalive_idle{30};  ///< silence before the kernel probes a peer; 0: never
  std::chrono::seconds keepalive_interval{10};
  int keepalive_probes = 3;
  /// Sent bytes that a peer leaves unacknowledged this long end the connection; 0: kernel's choice.
  std::chrono::seconds send_timeout{120};
};

/// Sockets that listen on one port, on all addresses of a host.
struct Listening {
  std::vector<unique_fd> sockets;
  std::uint16_t port = 0;
};

/// Binds the first port of the range that is free on every address. A port that another process
/// listens on counts as taken, whatever its address reuse.
/// Errors: not_found (no such host), busy (whole range taken; names it), io.
Result<Listening> listen_on(const ListenOptions& options);

/// A numeric address and port as logs show it; an IPv4 address in IPv6 clothes is shown plain.
std::string peer_name(const sockaddr& address);

/// Accepts connections and hands them on, blocking mode left on. When descriptors run out it
/// pauses instead of spinning.
class Acceptor {
 public:
  using Accepted = std::function<void(unique_fd socket, std::string peer)>;
  Acceptor(EventLoop& loop, Log& log, Listening listening, Accepted accepted);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  std::uint16_t port() const { return listening_.port; }
  /// Closes the sockets: later connections are refused.
  void stop();

 private:
  void accept_from(std::size_t index);
  void pause(std::size_t index, int error);
  void start(std::size_t index);

  EventLoop& loop_;
  Log& log_;
  Listening listening_;
  Accepted accepted_;
  std::vector<WatchId> watches_;
  std::vector<TimerId> pauses_;
};

}  // namespace outpost::rpc
