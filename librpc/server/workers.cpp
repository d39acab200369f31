#include "server/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "server/process_tree.h"
#include "server/spawn.h"

namespace outpost::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kSweepInterval = 5ms;  // between looks for what a dead zygote left
constexpr auto kRetryFirst = 100ms;
constexpr auto kRetryMax = 5000ms;
constexpr int kReceivesPerEvent = 16;

std::chrono::milliseconds backoff(int deaths) {
  return std::min<std::chrono::milliseconds>(kRetryMax, kRetryFirst * (1 << std::min(deaths, 6)));
}

std::string_view bounded(const char* text, std::size_t size) {
  return {text, ::strnlen(text, size)};
}

}  // namespace

Workers::Workers(rpc::EventLoop& loop, Log& log, WorkersOptions options, WorkerConfig config,
                 const WorkRoot& root, Events events)
    : loop_{loop},
      log_{log},
      options_{std::move(options)},
      config_{std::move(config)},
      root_{root},
      events_{std::move(events)} {
  config_.root = root.path();
  if (config_.mode == WorkerMode::serial) options_.spare_count = 1;
  // what a killed zygote leaves comes to us, so that we can end it
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Workers::~Workers() {
  loop_.unwatch(channel_watch_);
  loop_.unwatch(zygote_watch_);
  loop_.cancel(timer_);
}

Result<> Workers::start() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Error{Code::io, fmt::format("cannot make a channel: {}", std::strerror(errno))};
  channel_.reset(pair[0]);
  const unique_fd theirs{pair[1]};
  OUTPOST_TRY(zygote_pid_, spawn(options_.program, to_words(config_), theirs.get(), kChannelFd));
  zygote_.reset(static_cast<int>(::syscall(SYS_pidfd_open, zygote_pid_, 0)));
  if (!zygote_)
    return Error{Code::io, fmt::format("cannot open a pidfd: {}", std::strerror(errno))};
  channel_watch_ = loop_.watch(channel_.get(), EPOLLIN, [this](std::uint32_t) { receive(); });
  zygote_watch_ = loop_.watch(zygote_.get(), EPOLLIN, [this](std::uint32_t) { zygote_died(); });
  refill();  // it is read when the libraries are loaded
  return {};
}

std::optional<Spare> Workers::take() {
  if (spares_.empty()) return std::nullopt;
  auto spare = std::move(spares_.front());
  spares_.pop_front();
  taken_.insert(static_cast<std::uint64_t>(spare.id));
  deaths_ = 0;
  if (config_.mode == WorkerMode::fork) refill_later();
  return spare;
}

void Workers::refill_later() {
  if (spares_.empty()) return refill();
  if (timer_.number != 0) return;
  timer_ = loop_.after(options_.refill_delay, [this] {
    timer_ = {};
    refill();
  });
}

void Workers::refill() {
  const auto have = spares_.size() + asked_;
  if (stopping_ || !channel_ || have >= options_.spare_count) return;
  ForkRequest request;
  request.first_worker = last_worker_ + 1;
  request.count = static_cast<std::uint32_t>(options_.spare_count - have);
  if (send_struct(channel_.get(), request, {}, MSG_DONTWAIT).has_error())
    return;  // its queue is full or it is dead: what comes from it next asks again
  last_worker_ += request.count;
  asked_ += request.count;
}

void Workers::receive() {
  for (int i = 0; i < kReceivesPerEvent; ++i) {
    ZygoteEvent event;
    auto got = receive_struct(channel_.get(), event, MSG_DONTWAIT);
    if (got.has_error() && got.error().code == Code::busy) return;
    if (got.has_error() || got->bytes == 0) {
      loop_.unwatch(channel_watch_);  // its pidfd tells the rest
      return;
    }
    on_event(event, got->fds);
    if (!channel_) return;
  }
}

void Workers::on_event(const ZygoteEvent& event, std::array<unique_fd, kMessageFdsMax>& fds) {
  switch (event.kind) {
    case ZygoteEvent::Kind::ready:
      was_ready_ = true;
      log_.debug("workers ready zygote={}", zygote_pid_);
      return;
    case ZygoteEvent::Kind::spare:
      return add_spare(event, fds);
    case ZygoteEvent::Kind::ended:
      return worker_ended(event);
    case ZygoteEvent::Kind::failed: {
      const std::string why{bounded(event.text, sizeof event.text)};
      if (!was_ready_) return events_.on_failed(why);
      log_.error("cannot make a worker reason={}", quoted(why));
      asked_ = 0;
      timer_ = loop_.after(backoff(++deaths_), [this] {
        timer_ = {};
        refill();
      });
      return;
    }
  }
}

void Workers::add_spare(const ZygoteEvent& event, std::array<unique_fd, kMessageFdsMax>& fds) {
  asked_ -= std::min<std::size_t>(asked_, 1);
  Spare spare;
  spare.id = WorkerId{event.worker};
  spare.pid = event.pid;
  spare.pidfd = std::move(fds[kSparePidFd]);
  spare.control = std::move(fds[kSpareControl]);
  spare.output = std::move(fds[kSpareOutput]);
  auto page = MappedPage::map(fds[kSparePage].get());
  if (page.has_error()) {  // dropping its control socket ends it
    log_.error("cannot use a worker reason={}", quoted(page.error().text));
    return;
  }
  spare.page = *std::move(page);
  spares_.push_back(std::move(spare));
  events_.on_spare();
}

void Workers::worker_ended(const ZygoteEvent& event) {
  const auto text = bounded(event.text, sizeof event.text);
  if (!text.empty()) log_.warn("{} worker={}", text, event.worker);
  if (taken_.erase(event.worker) > 0) {
    WorkerEnd end{event.wait_status, event.killed, event.cpu_us, event.memory_kb_max};
    events_.on_ended(WorkerId{event.worker}, end);
    if (config_.mode == WorkerMode::serial) refill();
    return;
  }
  std::erase_if(spares_, [&](const Spare& s) { return s.id == WorkerId{event.worker}; });
  if (stopping_) return;
  ++deaths_;
  log_.warn("a spare worker ended worker={} status={} retry_ms={}", event.worker, event.wait_status,
            backoff(deaths_).count());
  loop_.cancel(timer_);
  timer_ = loop_.after(backoff(deaths_), [this] {
    timer_ = {};
    refill();
  });
}

void Workers::zygote_died() {
  receive();  // what it said last
  siginfo_t info{};
  ::waitid(P_PIDFD, static_cast<id_t>(zygote_.get()), &info, WEXITED | WNOHANG);
  std::optional<int> status;
  if (config_.mode == WorkerMode::serial)  // it was the worker
    status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
  loop_.unwatch(channel_watch_);
  loop_.unwatch(zygote_watch_);
  loop_.cancel(timer_);
  channel_.reset();
  zygote_.reset();
  spares_.clear();
  asked_ = 0;
  if (!stopping_ && was_ready_)
    log_.error("the parent of the workers ended pid={} {}={} sessions={}", zygote_pid_,
               info.si_code == CLD_EXITED ? "exit_code" : "signal", info.si_status, taken_.size());
  clean_up_after(status);
}

void Workers::clean_up_after(std::optional<int> status) {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  const auto left = children_of_self();
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
  if (!left.empty()) {
    timer_ = loop_.after(kSweepInterval, [this, status] { clean_up_after(status); });
    return;
  }
  timer_ = {};
  root_.clear();
  for (const auto worker : std::exchange(taken_, {})) {
    WorkerEnd end;
    end.wait_status = status;
    events_.on_ended(WorkerId{worker}, end);
  }
  if (stopping_) return;
  if (!was_ready_)
    return events_.on_failed(fmt::format("'{}' ended before it was ready", options_.program));
  timer_ = loop_.after(backoff(deaths_++), [this] {
    timer_ = {};
    const auto started = start();
    if (started.has_error()) retry(started.error().text);
  });
}

void Workers::retry(const std::string& why) {
  log_.error("cannot start workers reason={} retry_ms={}", quoted(why), backoff(deaths_).count());
  timer_ = loop_.after(backoff(deaths_++), [this] {
    timer_ = {};
    const auto started = start();
    if (started.has_error()) retry(started.error().text);
  });
}

void Workers::stop() {
  stopping_ = true;
  loop_.cancel(timer_);
  spares_.clear();
}

void Workers::join(std::chrono::milliseconds limit) {
  stop();
  loop_.unwatch(channel_watch_);
  loop_.unwatch(zygote_watch_);
  channel_.reset();  // it cleans up and ends
  const auto end = rpc::Clock::now() + limit;
  while (zygote_) {
    siginfo_t info{};
    pollfd ready{zygote_.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - rpc::Clock::now());
    if (::poll(&ready, 1, static_cast<int>(std::max(left.count(), std::int64_t{0}))) == 0)
      ::syscall(SYS_pidfd_send_signal, zygote_.get(), SIGKILL, nullptr, 0);
    if (::waitid(P_PIDFD, static_cast<id_t>(zygote_.get()), &info, WEXITED | WNOHANG) == 0 &&
        info.si_pid != 0)
      zygote_.reset();
  }
}

}  // namespace outpost::server
