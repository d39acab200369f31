#include "server/output_log.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace outpost::server {
namespace {

constexpr std::size_t kLineBytesMax = 1024;  // a longer one is cut into several

}  // namespace

OutputLog::OutputLog(rpc::EventLoop& loop, Log& log, unique_fd pipe, SessionId session,
                     std::uint64_t bytes_max)
    : loop_{loop},
      log_{log},
      pipe_{std::move(pipe)},
      session_{static_cast<std::uint64_t>(session)},
      bytes_left_{bytes_max} {
  watch_ = loop_.watch(pipe_.get(), EPOLLIN, [this](std::uint32_t) { read_some(); });
}

OutputLog::~OutputLog() {
  close();
}

void OutputLog::close() {
  loop_.unwatch(watch_);
  pipe_.reset();
}

bool OutputLog::read_some() {
  int ready = 0;  // asked for, because reading an empty pipe would block
  if (!pipe_ || ::ioctl(pipe_.get(), FIONREAD, &ready) != 0 || ready == 0) {
    close();
    return false;
  }
  char part[4096];
  const auto size = ::read(pipe_.get(), part, sizeof part);
  if (size <= 0) {
    close();
    return false;
  }
  const auto kept = std::min(static_cast<std::uint64_t>(size), bytes_left_);
  bytes_left_ -= kept;
  for (const char c : std::string_view{part, static_cast<std::size_t>(kept)}) {
    if (c != '\n') line_ += c;
    if (c != '\n' && line_.size() < kLineBytesMax) continue;
    log_line(std::exchange(line_, {}));
  }
  if (bytes_left_ > 0) return true;
  log_.warn("session prints too much, the rest is dropped session={}", session_);
  close();
  return false;
}

void OutputLog::log_line(std::string_view line) {
  log_.info("session output session={} text='{}'", session_, printable(line, kLineBytesMax));
}

void OutputLog::finish() {
  while (read_some()) {
  }
  if (!line_.empty()) log_line(std::exchange(line_, {}));
  close();
}

}  // namespace outpost::server
