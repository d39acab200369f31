#include "rpc_server/check.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>

#include "base/host_port.h"
#include "server/fd_message.h"
#include "server/protocol.h"
#include "server/spawn.h"

namespace outpost::app {
namespace {

/// Starts the worker program, lets it load the libraries, and hears how that went.
Result<> try_worker(const ServerOptions& options, const std::string& root) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Error{Code::io, std::strerror(errno)};
  const unique_fd ours{pair[0]};
  unique_fd theirs{pair[1]};
  auto config = options.config.worker;
  config.mode = server::WorkerMode::check;
  config.root = root;
  OUTPOST_TRY(const auto pid,
              server::spawn(options.config.workers.program, server::to_words(config), theirs.get(),
                            server::kChannelFd));
  theirs.reset();
  server::ZygoteEvent event;
  const auto got = server::receive_struct(ours.get(), event, 0);
  ::waitpid(pid, nullptr, 0);
  if (got.has_error()) return got.error();
  if (got->bytes == 0)
    return Error{Code::io,
                 fmt::format("'{}' ended before it was ready", options.config.workers.program)};
  if (event.kind == server::ZygoteEvent::Kind::ready) return {};
  return Error{Code::io, std::string{event.text, ::strnlen(event.text, sizeof event.text)}};
}

class Report {
 public:
  template <class T>
  void say(std::string_view name, const T& value) {
    fmt::print("{}={}\n", name, value);
  }
  template <class T>
  void tried(std::string_view name, const Result<T>& result) {
    say(name, result.has_value() ? "ok" : "failed: " + result.error().text);
    is_good_ &= result.has_value();
  }
  int exit_code() const { return is_good_ ? 0 : kExitFailure; }

 private:
  bool is_good_ = true;
};

std::string limit(std::uint64_t value) {
  return value == 0 ? "none" : std::to_string(value);
}

void say_limits(Report& report, const ServerOptions& options) {
  const auto& config = options.config;
  const auto& worker = config.worker;
  const auto& session = worker.session;
  report.say("handshake_ms", config.handshake.deadline.count());
  report.say("idle_ms", limit(static_cast<std::uint64_t>(config.idle_limit.count())));
  report.say("grace_ms", options.grace.count());
  report.say("link_seconds", session.link_timeout.count());
  report.say("spin_us", session.spin.count());
  report.say("frame_bytes_max", session.limits.frame_bytes_max);
  report.say("stream_bytes_max", session.limits.stream_bytes_max);
  report.say("copy_bytes_max", session.copy_bytes_max);
  report.say("handles_max", session.limits.handles_max);
  report.say("memory_bytes_max", limit(worker.limits.memory_bytes));
  report.say("address_space_bytes_max", limit(worker.limits.address_space_bytes));
  report.say("file_bytes_max", limit(worker.limits.file_bytes));
  report.say("open_files_max", limit(worker.limits.open_files));
  report.say("processes_max", limit(worker.limits.processes));
  report.say("core_bytes_max", worker.limits.core_bytes);
  report.say("output_bytes_max", worker.keep_output ? config.output_bytes_max : 0);
  report.say("paths", session.unconfined_paths ? "unconfined" : "confined");
}

}  // namespace

int check(const ServerOptions& options) {
  const auto& config = options.config;
  Report report;
  report.say("host", options.listen.host);
  report.say("port", options.listen.port);
  report.say("port_end", std::max(options.listen.port, options.listen.port_end));
  report.say("key", config.key);
  report.say("tracker", config.tracker
                            ? format_host_port(config.tracker->host, config.tracker->port)
                            : "none");
  report.say("custom_addr", config.custom_addr.value_or("none"));
  report.say("slots", config.slots);
  report.say("spare_workers", config.workers.spare_count);
  report.say("mode", config.worker.mode == server::WorkerMode::serial ? "no-fork" : "fork");
  for (const auto& library : config.worker.libraries) report.say("library", library);
  report.say("work_dir", options.work_dir);
  say_limits(report, options);
  report.say("sandbox", "off: sessions run as this user");
  report.tried("listen", rpc::listen_on(options.listen));
  std::size_t stale = 0;
  const auto root = server::WorkRoot::create(options.work_dir, stale);
  report.tried("work_dir_usable", root);
  report.tried("worker", try_worker(options, options.work_dir));
  return report.exit_code();
}

}  // namespace outpost::app
