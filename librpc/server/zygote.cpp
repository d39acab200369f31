#include "server/zygote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "server/fd_message.h"
#include "server/folder.h"
#include "server/process_tree.h"
#include "server/protocol.h"
#include "server/shared_page.h"

namespace outpost::server {
namespace {

constexpr int kFailedWorker = 70;      // exit code of a worker that could not begin
constexpr int kSweepMilliseconds = 2;  // between looks for descendants that do not die at once

Error failed(std::string_view what) {
  return {Code::io, fmt::format("cannot {}: {}", what, std::strerror(errno))};
}

/// Folders of ended sessions, emptied, for new ones: on a disk, making and removing a folder can
/// cost milliseconds, and a new name only microseconds.
class FolderPool {
 public:
  explicit FolderPool(const std::string& root) : root_{root} {}

  /// A folder of that name, empty and ours alone.
  Result<std::string> make(std::uint64_t worker) {
    auto path = fmt::format("{}/s{}", root_, worker);
    while (!free_.empty()) {
      const auto old = std::move(free_.back());
      free_.pop_back();
      if (::rename(old.c_str(), path.c_str()) == 0) return path;
    }
    if (::mkdir(path.c_str(), 0700) != 0) return failed("make a session's folder");
    return path;
  }
  Result<> take_back(const std::string& path) {
    if (free_.size() >= kFreeMax) return remove_tree(path);
    OUTPOST_CHECK(empty_tree(path));
    auto name = fmt::format("{}/.free{}", root_, ++last_free_);
    if (::rename(path.c_str(), name.c_str()) != 0) return failed("put a session's folder away");
    free_.push_back(std::move(name));
    return {};
  }

 private:
  static constexpr std::size_t kFreeMax = 64;
  const std::string& root_;
  std::vector<std::string> free_;
  std::uint64_t last_free_ = 0;
};

/// Both ends of what a new worker and the daemon talk through.
struct Birth {
  WorkerPlace place;
  unique_fd control, output;  // the daemon's ends
};

Result<Birth> make_birth(const WorkerConfig& config, FolderPool& folders, std::uint64_t worker) {
  Birth birth;
  OUTPOST_TRY(birth.place.folder, folders.make(worker));
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return failed("make a control socket");
  birth.control.reset(pair[0]);
  birth.place.control.reset(pair[1]);
  if (::pipe2(pair, O_CLOEXEC) != 0) return failed("make an output pipe");
  birth.output.reset(pair[0]);
  birth.place.output.reset(pair[1]);
  if (!config.keep_output) birth.place.output.reset();
  OUTPOST_TRY(birth.place.page, make_session_page());
  return birth;
}

/// Offers a worker to the daemon.
Result<> announce(int channel, std::uint64_t worker, pid_t pid, const Birth& birth) {
  const unique_fd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
  if (!pidfd) return failed("open a pidfd");
  ZygoteEvent event;
  event.kind = ZygoteEvent::Kind::spare;
  event.worker = worker;
  event.pid = pid;
  int fds[kMessageFdsMax];
  fds[kSparePidFd] = pidfd.get();
  fds[kSpareControl] = birth.control.get();
  fds[kSparePage] = birth.place.page.get();
  fds[kSpareOutput] = birth.output.get();
  return send_struct(channel, event, fds, 0);
}

class Zygote {
 public:
  Zygote(unique_fd channel, const WorkerConfig& config, SessionFunction serve)
      : channel_{std::move(channel)}, config_{config}, serve_{serve} {}

  int run() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, nullptr);
    signals_.reset(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    while (!stopping_ || !live_.empty() || !ended_.empty()) step();
    (void)remove_tree(config_.root);  // the daemon may be gone without doing it
    return 0;
  }

 private:
  struct Ended {
    ZygoteEvent event;
    std::string folder;
  };
  struct Live {
    std::uint64_t worker;
    std::string folder;
  };

  void step() {
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {channel_.get(), POLLIN, 0}};
    ::poll(fds, stopping_ ? 1 : 2, ended_.empty() ? -1 : kSweepMilliseconds);
    if (fds[0].revents != 0) {
      signalfd_siginfo info[8];
      while (::read(signals_.get(), info, sizeof info) > 0) {
      }
    }
    if (fds[0].revents != 0 || !ended_.empty()) reap();
    if (!stopping_ && fds[1].revents != 0) obey();
  }

  /// Collects the dead; a worker's end is told when nothing it started is left.
  void reap() {
    int status = 0;
    rusage used{};
    for (pid_t pid = 0; (pid = ::wait4(-1, &status, WNOHANG, &used)) > 0;) {
      const auto it = live_.find(pid);
      if (it == live_.end()) {  // a worker's descendant that was handed to us
        ++orphans_;
        continue;
      }
      ::kill(-pid, SIGKILL);  // its group, at one blow
      Ended ended;
      ended.event.kind = ZygoteEvent::Kind::ended;
      ended.event.pid = pid;
      ended.event.worker = it->second.worker;
      ended.event.wait_status = status;
      ended.event.cpu_us =
          static_cast<std::uint64_t>((used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000 +
                                     used.ru_utime.tv_usec + used.ru_stime.tv_usec);
      ended.event.memory_kb_max = static_cast<std::uint64_t>(used.ru_maxrss);
      ended.folder = std::move(it->second.folder);
      ended_.push_back(std::move(ended));
      live_.erase(it);
    }
    if (!ended_.empty()) sweep();
  }

  /// Kills what dead workers left behind, looking again until nothing is left.
  void sweep() {
    bool left = false;
    for (const pid_t pid : children_of_self()) {
      if (live_.contains(pid)) continue;
      ::kill(pid, SIGKILL);
      left = true;
    }
    if (left) return;  // they are reaped in the next round, and what they leave is seen then
    ended_.back().event.killed = std::exchange(orphans_, 0);
    for (auto& ended : ended_) tell(ended);
    ended_.clear();
  }

  void tell(Ended& ended) {
    if (const auto removed = folders_.take_back(ended.folder); removed.has_error())
      std::strncpy(ended.event.text, removed.error().text.c_str(), sizeof ended.event.text - 1);
    (void)send_struct(channel_.get(), ended.event, {}, 0);
  }

  void obey() {
    ForkRequest request;
    const auto got = receive_struct(channel_.get(), request, MSG_DONTWAIT);
    if (got.has_error() && got.error().code == Code::busy) return;
    if (got.has_error() || got->bytes == 0) return stop();
    for (std::uint32_t i = 0; i < request.count; ++i)
      if (const auto made = fork_worker(request.first_worker + i); made.has_error())
        return report_failure(channel_.get(), made.error().text);
  }

  void stop() {
    stopping_ = true;
    for (const auto& [pid, live] : live_) ::kill(pid, SIGKILL);
  }

  Result<> fork_worker(std::uint64_t worker) {
    OUTPOST_TRY(auto birth, make_birth(config_, folders_, worker));
    const pid_t self = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return failed("fork a worker");
    if (pid == 0) {
      birth.control.reset();
      birth.output.reset();
      live(birth.place, self);
    }
    live_.emplace(pid, Live{worker, birth.place.folder});
    return announce(channel_.get(), worker, pid, birth);
  }

  /// The whole life of a worker.
  [[noreturn]] void live(const WorkerPlace& place, pid_t parent) {
    channel_.reset();
    signals_.reset();
    auto ready = prepare_worker(place, parent);
    if (ready.has_value()) ready = confine(config_.limits);
    if (ready.has_error()) {
      std::fprintf(stderr, "%s\n", ready.error().text.c_str());
      ::_exit(kFailedWorker);
    }
    rehearse(config_, place, serve_);
    serve_one(config_, place, serve_);
    std::fflush(nullptr);
    ::_exit(0);  // nothing else: handlers of uploaded code, and giving memory back, only take time
  }

  unique_fd channel_;
  const WorkerConfig& config_;
  SessionFunction serve_;
  FolderPool folders_{config_.root};
  unique_fd signals_;
  std::unordered_map<pid_t, Live> live_;
  std::vector<Ended> ended_;
  std::uint32_t orphans_ = 0;  // reaped since the last end was told
  bool stopping_ = false;
};

/// One session after the other in this process; its end is told like a worker's.
int run_serial(const unique_fd& channel, const WorkerConfig& config, SessionFunction serve) {
  FolderPool folders{config.root};
  for (;;) {
    ForkRequest request;
    const auto got = receive_struct(channel.get(), request, 0);
    if (got.has_error() || got->bytes == 0) return 0;
    auto birth = make_birth(config, folders, request.first_worker);
    if (birth.has_error() || ::chdir(birth->place.folder.c_str()) != 0 ||
        announce(channel.get(), request.first_worker, ::getpid(), *birth).has_error())
      return kFailedWorker;
    birth->control.reset();
    birth->output.reset();
    if (!serve_one(config, birth->place, serve)) return 0;
    ZygoteEvent event;
    event.kind = ZygoteEvent::Kind::ended;
    event.worker = request.first_worker;
    event.pid = ::getpid();
    if (::chdir("/") != 0 || folders.take_back(birth->place.folder).has_error())
      return kFailedWorker;
    if (send_struct(channel.get(), event, {}, 0).has_error()) return 0;
  }
}

void report_ready(int channel) {
  ZygoteEvent event;
  event.kind = ZygoteEvent::Kind::ready;
  (void)send_struct(channel, event, {}, 0);
}

}  // namespace

void report_failure(int channel, std::string_view why) {
  ZygoteEvent event;
  event.kind = ZygoteEvent::Kind::failed;
  std::memcpy(event.text, why.data(), std::min(why.size(), sizeof event.text - 1));
  (void)send_struct(channel, event, {}, 0);
}

int run_zygote(unique_fd channel, const WorkerConfig& config, SessionFunction serve) {
  report_ready(channel.get());
  switch (config.mode) {
    case WorkerMode::fork:
      return Zygote{std::move(channel), config, serve}.run();
    case WorkerMode::serial:
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // busy with a session, it does not see the channel close
      ::signal(SIGPIPE, SIG_IGN);
      return run_serial(channel, config, serve);
    case WorkerMode::check:
      return 0;
  }
  return 0;
}

}  // namespace outpost::server
