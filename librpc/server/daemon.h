#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/host_port.h"
#include "base/log.h"
#include "net/event_loop.h"
#include "net/farewells.h"
#include "net/handshakes.h"
#include "net/listener.h"
#include "net/tracker_link.h"
#include "server/folder.h"
#include "server/output_log.h"
#include "server/session_watch.h"
#include "server/slots.h"
#include "server/workers.h"

namespace outpost::server {

struct DaemonConfig {
  std::string key;                         ///< device type; empty without a tracker: any `client:`
  std::optional<HostPort> tracker;         ///< register there
  std::optional<std::string> custom_addr;  ///< handed out by it instead of our address
  std::size_t slots = 1;                   ///< sessions at once
  std::size_t waiting_max = 256;           ///< clients in line; more are refused
  rpc::HandshakeLimits handshake;
  WatchLimits watch;
  std::chrono::milliseconds idle_limit{0};        ///< of one socket operation of a worker; 0: none
  std::chrono::milliseconds drain_limit{10'000};  ///< for a client to read why it was ended
  std::uint64_t output_bytes_max = 64 << 10;      ///< of one session that are logged
  WorkersOptions workers;
  WorkerConfig worker;
};

/// The server: takes clients in, gives each a worker when a slot is free, watches over it and says
/// how it ended. Runs on the loop's thread; never reads a byte that belongs to a session.
class Daemon {
 public:
  /// @param on_end  called once, when all has ended after stop(), or with why it cannot go on
  Daemon(rpc::EventLoop& loop, Log& log, DaemonConfig config, rpc::Listening listening,
         const WorkRoot& root, std::function<void(Result<>)> on_end);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  Result<> start();
  /// No new sessions; running ones may go on for the grace time, then they are ended.
  void stop(std::chrono::milliseconds grace);
  /// Ends the running sessions now.
  void stop_now();
  /// Waits for all our processes to be gone; after on_end.
  void join(std::chrono::milliseconds limit) { workers_.join(limit); }

 private:
  struct Session;
  using SessionPtr = std::unique_ptr<Session>;

  void arrived(rpc::Arrival arrival);
  bool admits(const rpc::HelloKey& key);
  void refuse(rpc::Arrival arrival, std::string_view why);
  void wait(Session& session);
  void left_while_waiting(Session& session);
  void pump();
  void start_session(Session& session);
  bool hand_over(Session& session);
  void settle(Session& session);
  void apply(Session& session, SessionWatch::Do what);
  void kill(Session& session);
  void arm(Session& session);
  void worker_ended(WorkerId worker, const WorkerEnd& end);
  void log_end(const Session& session, const WorkerEnd& end, const struct EndStory& story);
  void remove(SessionId id);
  void end_all();
  void finish_if_done();
  void tell_tracker();
  Session& find(SessionId id);

  rpc::EventLoop& loop_;
  Log& log_;
  DaemonConfig config_;
  std::function<void(Result<>)> on_end_;
  std::string greeting_;  // the answer to an admitted client
  rpc::Acceptor acceptor_;
  rpc::Handshakes handshakes_;
  rpc::Farewells farewells_;
  std::unique_ptr<rpc::TrackerLink> tracker_;
  Slots slots_;
  Workers workers_;
  std::unordered_map<std::uint64_t, SessionPtr> sessions_;  // waiting and running, by number
  std::unordered_map<std::uint64_t, SessionId> session_of_worker_;  // running
  std::uint64_t last_session_ = 0;
  bool stopping_ = false;
  rpc::TimerId grace_;
};

}  // namespace outpost::server
