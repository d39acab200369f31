#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <string>

#include "base/log.h"
#include "base/unique_fd.h"
#include "net/event_loop.h"
#include "wire/handshake.h"

namespace outpost::rpc {

struct HandshakeLimits {
  std::chrono::milliseconds deadline{10'000};  ///< from accept to the last byte of the key
  std::uint32_t key_bytes_max = 4096;
  std::size_t count_max = 512;  ///< at once; one more drops the oldest
};

/// A client whose key has been read. The next byte of the socket is the first of its session.
struct Arrival {
  unique_fd socket;
  std::string peer;
  HelloKey key;
};

/// Reads the hellos of all new connections at once, none waiting for another. Reads exactly their
/// bytes, because what follows belongs to the worker. What is no hello is logged and closed.
class Handshakes {
 public:
  using Arrived = std::function<void(Arrival)>;
  Handshakes(EventLoop& loop, Log& log, HandshakeLimits limits, Arrived arrived);
  ~Handshakes();
  Handshakes(const Handshakes&) = delete;
  Handshakes& operator=(const Handshakes&) = delete;

  void add(unique_fd socket, std::string peer);
  std::size_t size() const { return pending_.size(); }
  /// Drops all.
  void stop();

 private:
  struct Pending {
    unique_fd socket;
    std::string peer;
    std::vector<std::byte> received;
    std::size_t need = 0;
    WatchId watch = WatchId::none;
    TimerId deadline;
  };
  using Iterator = std::list<Pending>::iterator;

  enum class Progress : std::uint8_t { more, done };
  Progress read(Iterator it);
  void drop(Iterator it);
  void refuse(Iterator it, std::string_view why);

  EventLoop& loop_;
  Log& log_;
  HandshakeLimits limits_;
  Arrived arrived_;
  std::list<Pending> pending_;  // oldest first
};

}  // namespace outpost::rpc
