#pragma once
#include <chrono>
#include <list>
#include <vector>

#include "base/unique_fd.h"
#include "net/event_loop.h"

namespace outpost::rpc {

/// Connections that get their last bytes. Closing one at once could throw those away: while a peer
/// still sends, a close turns into a reset, and the reset discards what the peer has not read yet.
/// So ours is closed for writing only, and what comes is read away until the peer closes too.
class Farewells {
 public:
  explicit Farewells(EventLoop& loop) : loop_{loop} {}
  ~Farewells() { stop(); }
  Farewells(const Farewells&) = delete;
  Farewells& operator=(const Farewells&) = delete;

  /// @param limit  for all of it; then the connection is closed whatever the peer does
  void add(unique_fd socket, std::vector<std::byte> last_bytes, std::chrono::milliseconds limit);
  std::size_t size() const { return leaving_.size(); }
  void stop();

 private:
  struct Leaving {
    unique_fd socket;
    std::vector<std::byte> unsent;
    bool is_shut = false;
    WatchId watch = WatchId::none;
    TimerId limit;
  };
  using Iterator = std::list<Leaving>::iterator;

  /// True when nothing is left to do.
  bool advance(Leaving& leaving);
  void drop(Iterator it);

  EventLoop& loop_;
  std::list<Leaving> leaving_;
};

}  // namespace outpost::rpc
