#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>

#include "common/notify.h"
#include "rpc_server/check.h"
#include "rpc_server/options.h"
#include "server/daemon.h"
#include "server/spawn.h"

namespace outpost::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kJoinLimit = 5s;  // for the zygote to clean up after itself

/// A session costs the daemon up to four descriptors; take what the system lets us have.
void raise_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

Result<> run_init_hook(const std::string& program) {
  if (program.empty()) return {};
  OUTPOST_TRY(const auto pid, server::spawn(program, {}, STDERR_FILENO, STDERR_FILENO));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) break;
  if (status == 0) return {};
  return Error{Code::internal,
               fmt::format("init hook '{}' failed with status {}", program, status)};
}

/// First signal: stop with grace; second: stop at once.
void watch_signals(boost::asio::signal_set& signals, server::Daemon& daemon,
                   std::chrono::milliseconds grace) {
  signals.async_wait([&signals, &daemon, grace](boost::system::error_code ec, int) {
    if (ec) return;
    notify_manager("STOPPING=1");
    daemon.stop(grace);
    signals.async_wait([&daemon](boost::system::error_code again, int) {
      if (!again) daemon.stop_now();
    });
  });
}

int failed(Log& log, const Error& error) {
  log.error("{}", error.text);
  return kExitFailure;
}

int serve(const ServerOptions& options, Log& log) {
  auto listening = rpc::listen_on(options.listen);
  if (listening.has_error()) return failed(log, listening.error());
  const auto port = listening->port;
  std::size_t stale = 0;
  const auto root = server::WorkRoot::create(options.work_dir, stale);
  if (root.has_error()) return failed(log, root.error());
  if (stale != 0) log.info("removed folders of an earlier crash count={}", stale);
  if (const auto hook = run_init_hook(options.init_hook); hook.has_error())
    return failed(log, hook.error());

  rpc::EventLoop loop;
  Result<> outcome;
  server::Daemon daemon{loop, log, options.config, *std::move(listening), *root, [&](Result<> end) {
                          outcome = std::move(end);
                          loop.stop();
                        }};
  boost::asio::signal_set signals{loop.context(), SIGTERM, SIGINT};
  watch_signals(signals, daemon, options.grace);
  if (const auto started = daemon.start(); started.has_error()) return failed(log, started.error());
  log.info("listening port={} host={} key={} slots={} tracker={} work_dir={}", port,
           options.listen.host, quoted(options.config.key), options.config.slots,
           options.config.tracker
               ? format_host_port(options.config.tracker->host, options.config.tracker->port)
               : "none",
           quoted(root->path()));
  notify_manager(fmt::format("READY=1\nSTATUS=listening on port {}", port));
  loop.run();
  daemon.join(kJoinLimit);
  if (outcome.has_error()) return failed(log, outcome.error());
  log.info("stopped");
  return 0;
}

int run(int argc, const char* const* argv) {
  ServerOptions options;
  if (const auto code = read_options(argc, argv, options)) return *code;
  ::signal(SIGPIPE, SIG_IGN);
  raise_open_files();
  if (options.daemon.check) return check(options);
  const auto log = open_log("rpc", options.daemon.log);
  return serve(options, *log);
}

}  // namespace
}  // namespace outpost::app

int main(int argc, char** argv) {
  return outpost::app::run(argc, argv);
}
