#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/log.h"
#include "base/unique_fd.h"
#include "net/event_loop.h"
#include "server/fd_message.h"
#include "server/folder.h"
#include "server/protocol.h"
#include "server/shared_page.h"
#include "server/worker_config.h"

namespace outpost::server {

enum class WorkerId : std::uint64_t { none = 0 };

/// A worker that waits for its session.
struct Spare {
  WorkerId id = WorkerId::none;
  pid_t pid = 0;
  unique_fd pidfd;
  unique_fd control;
  unique_fd output;
  MappedPage page;
};

/// How a worker's life ended. All its descendants are gone and so is its folder.
struct WorkerEnd {
  std::optional<int> wait_status;  ///< empty: it died with the zygote
  std::uint32_t killed = 0;        ///< descendants that had to be killed
  std::uint64_t cpu_us = 0;
  std::uint64_t memory_kb_max = 0;
};

struct WorkersOptions {
  std::string program;  ///< path of rpc_worker
  std::size_t spare_count = 2;
  /// Pause before a taken spare is replaced, so that the fork does not disturb the session that
  /// begins; none are waited for when no spare is left.
  std::chrono::microseconds refill_delay{1500};
};

/// The daemon's side of the zygote: starts it, again when it dies, and keeps spare workers.
class Workers {
 public:
  struct Events {
    std::function<void()> on_spare;
    std::function<void(WorkerId, const WorkerEnd&)> on_ended;
    /// The first zygote could not begin: the server cannot work.
    std::function<void(std::string why)> on_failed;
  };

  Workers(rpc::EventLoop& loop, Log& log, WorkersOptions options, WorkerConfig config,
          const WorkRoot& root, Events events);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Result<> start();
  /// A spare to use up; its end is told by on_ended from then on.
  std::optional<Spare> take();
  bool has_spare() const { return !spares_.empty(); }
  /// No more spares; the zygote ends when the last worker has.
  void stop();
  /// Waits for the zygote's end, at most that long, then kills it.
  void join(std::chrono::milliseconds limit);

 private:
  void receive();
  void on_event(const ZygoteEvent& event, std::array<unique_fd, kMessageFdsMax>& fds);
  void add_spare(const ZygoteEvent& event, std::array<unique_fd, kMessageFdsMax>& fds);
  void worker_ended(const ZygoteEvent& event);
  void refill();
  void refill_later();
  void zygote_died();
  void clean_up_after(std::optional<int> status);
  void retry(const std::string& why);

  rpc::EventLoop& loop_;
  Log& log_;
  WorkersOptions options_;
  WorkerConfig config_;
  const WorkRoot& root_;
  Events events_;
  unique_fd channel_;
  unique_fd zygote_;  // pidfd
  pid_t zygote_pid_ = 0;
  rpc::WatchId channel_watch_ = rpc::WatchId::none;
  rpc::WatchId zygote_watch_ = rpc::WatchId::none;
  rpc::TimerId timer_;  // refill, restart, or a look for what a dead zygote left
  std::deque<Spare> spares_;
  std::unordered_set<std::uint64_t> taken_;
  std::size_t asked_ = 0;  // spares on their way
  std::uint64_t last_worker_ = 0;
  int deaths_ = 0;  // of zygotes and spares since the last session
  bool was_ready_ = false;
  bool stopping_ = false;
};

}  // namespace outpost::server
