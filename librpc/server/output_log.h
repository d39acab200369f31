#pragma once
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/unique_fd.h"
#include "net/event_loop.h"
#include "server/slots.h"

namespace outpost::server {

/// Logs what one session prints, line by line with its number, up to a bound; past it the pipe is
/// closed, and the session's prints fail without hurting it.
class OutputLog {
 public:
  OutputLog(rpc::EventLoop& loop, Log& log, unique_fd pipe, SessionId session,
            std::uint64_t bytes_max);
  ~OutputLog();
  OutputLog(const OutputLog&) = delete;
  OutputLog& operator=(const OutputLog&) = delete;

  /// Logs what is still in the pipe, and a last line without an end.
  void finish();

 private:
  bool read_some();
  void log_line(std::string_view line);
  void close();

  rpc::EventLoop& loop_;
  Log& log_;
  unique_fd pipe_;
  std::uint64_t session_;
  std::uint64_t bytes_left_;
  std::string line_;  // its end has not come yet
  rpc::WatchId watch_ = rpc::WatchId::none;
};

}  // namespace outpost::server
