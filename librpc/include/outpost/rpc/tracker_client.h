#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <outpost/rpc/client.h>
#include <outpost/rpc/error.h>
#include <outpost/rpc/export.h>

namespace outpost::client {

/// A server that the tracker knows.
struct TrackerServer {
  std::string key;  ///< "server:<key>"
  std::string host;
  std::string port;  ///< as the server sent it
  /// Further fields of the server, as name and JSON text.
  std::vector<std::pair<std::string, std::string>> others;
};
/// How much of a key is free, and how many clients wait for it.
struct TrackerQueue {
  std::string key;
  std::uint64_t free = 0;
  std::uint64_t pending = 0;
};
/// What one board does now; only an Outpost tracker tells.
struct TrackerBoard {
  std::string key;  ///< without "server:"
  std::string host;
  std::string port;
  /// "free", "busy", "away" (registered, offers nothing now) or "suspect" (silent, not handed out).
  std::string state;
  std::string holder;        ///< address of the client that was sent there; empty when nobody was
  double state_seconds = 0;  ///< how long it has been in that state
};
struct TrackerSummary {
  std::vector<TrackerServer> servers;
  std::vector<TrackerQueue> queues;
  std::vector<TrackerBoard> boards;  ///< by key and address; empty from a stock tracker
};
/// The table that users of trackers know: servers by key, then the queues.
OUTPOST_CLIENT_API std::string text_summary(const TrackerSummary& summary);

struct RequestOptions {
  double priority = 1;  ///< larger goes first
  /// Tries in all, each with a device of its own. A device that does not answer costs a try.
  int max_retry = 5;
  /// For one wait until a device is free; 0: without a limit. RpcError(timeout).
  std::chrono::milliseconds wait{0};
  /// For the session; its key is set by the tracker. `timeouts.handshake` of 0 means 60 s here.
  ConnectOptions connect;
};

struct TrackerOptions {
  std::chrono::milliseconds connect{10'000};
  /// For each answer but that of a request for a device.
  std::chrono::milliseconds answer{30'000};
};

/// A connection to a tracker, which is opened again when it was lost. Not for several threads.
class OUTPOST_CLIENT_API Tracker {
 public:
  Tracker(Tracker&&) noexcept;
  Tracker& operator=(Tracker&&) noexcept;
  ~Tracker();

  void close();
  /// True when the tracker answers.
  bool ping();
  TrackerSummary summary();
  std::string text_summary() { return client::text_summary(summary()); }

  /// Waits for a device with that key and opens a session on it. Throws the last error, with the
  /// number of tries, when `max_retry` devices failed.
  Session request(const std::string& key, const RequestOptions& options = {});

  /// Requests a device and runs `run(session)` on it; again with a fresh device, up to `max_retry`
  /// times in all, when the session is lost. A time-out of the session and an error that the
  /// server raised are final.
  template <class Run>
  auto request_and_run(const std::string& key, Run run, const RequestOptions& options = {},
                       int max_retry = 2) {
    for (int tries = 1;; ++tries) {
      auto session = request(key, options);
      try {
        return run(session);
      } catch (const SessionTimeoutError&) {
        throw;
      } catch (const RpcError& e) {
        // A server whose session crashed says so in an error of its own, then closes.
        if (session.answers()) throw;
        if (tries >= max_retry) give_up(key, tries, e);
      }
    }
  }

 private:
  friend OUTPOST_CLIENT_API Tracker connect_tracker(const std::string&, std::uint16_t,
                                                    const TrackerOptions&);
  class Impl;
  explicit Tracker(std::unique_ptr<Impl> impl);
  [[noreturn]] static void give_up(const std::string& key, int tries, const RpcError& last);
  std::unique_ptr<Impl> impl_;
};

/// Connects to a tracker; the usual port is 9190. ConnectionError, RpcError(not_found).
OUTPOST_CLIENT_API Tracker connect_tracker(const std::string& host, std::uint16_t port,
                                           const TrackerOptions& options = {});

}  // namespace outpost::client
