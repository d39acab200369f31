// The tracker: options and wiring only.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <fstream>

#include "base/host_port.h"
#include "common/log.h"
#include "common/notify.h"
#include "options.h"

namespace {

using namespace outpost;
using app::TrackerOptions;

constexpr std::size_t kOwnDescriptors = 64;  // listeners, timers, log

Result<std::string> read_stop_key(const std::string& path) {
  std::string key;
  if (path.empty()) return key;
  std::ifstream file{path};
  if (!std::getline(file, key) || key.empty())
    return Error{Code::not_found,
                 fmt::format("cannot read a key from the first line of '{}'", path)};
  return key;
}

/// As many descriptors as the system lets us have; gives how many connections fit.
std::size_t raise_descriptor_limit(std::size_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto free = limit.rlim_cur > kOwnDescriptors ? limit.rlim_cur - kOwnDescriptors : 1;
  return std::min<std::size_t>(wanted, free);
}

int check(const TrackerOptions& o) {
  const auto& broker = o.core.broker;
  fmt::print("address          {}\nports            {} to {}\nstop by message  {}\n", o.host,
             o.port, std::max<int>(o.port, app::listen_options(o).port_end),
             o.stop_key_file.empty() ? "nobody" : "with the key of '" + o.stop_key_file + "'");
  fmt::print("connections      {} (asked for {})\n", raise_descriptor_limit(o.io.connections_max),
             o.io.connections_max);
  fmt::print("message          {} bytes at most\nkeys             {}, {} bytes each\n",
             o.core.message_bytes_max, broker.keys_max, broker.key_bytes_max);
  fmt::print("order            {}\n", tracker::name(broker.order.order));
  fmt::print("suspect after    {} s of silence\n",
             std::chrono::duration_cast<std::chrono::seconds>(broker.suspect_after).count());
  const auto key = read_stop_key(o.stop_key_file);
  if (key.has_error()) {
    fmt::print(stderr, "tracker: {}\n", key.error().text);
    return app::kExitFailure;
  }
  return 0;
}

int serve(TrackerOptions& o, Log& log) {
  auto key = read_stop_key(o.stop_key_file);
  if (key.has_error()) {
    log.error("cannot start reason='{}'", key.error().text);
    return app::kExitFailure;
  }
  const auto fitting = raise_descriptor_limit(o.io.connections_max);
  if (fitting < o.io.connections_max)
    log.debug("fewer connections than asked for connections_max={} asked={}", fitting,
              o.io.connections_max);
  o.io.connections_max = fitting;
  auto listening = rpc::listen_on(app::listen_options(o));
  if (listening.has_error()) {
    log.error("cannot start reason='{}'", listening.error().text);
    return app::kExitFailure;
  }
  const auto port = listening->port;
  rpc::EventLoop loop;
  tracker::TrackerCore core{o.core, *std::move(key)};
  tracker::TrackerIo io{loop, log, core, *std::move(listening), o.io, [&] {
                          log.info("stopped by the owner's message");
                          loop.stop();
                        }};
  boost::asio::signal_set signals{loop.context(), SIGTERM, SIGINT};
  signals.async_wait([&](const boost::system::error_code& ec, int number) {
    if (ec) return;
    app::notify_manager("STOPPING=1");
    log.info("stopping signal={} connections={}", number, io.connections());
    io.stop();
    loop.stop();
  });
  fmt::print("tracker: listening on {}\n", format_host_port(o.host, port));
  std::fflush(stdout);
  log.info("tracker started address={} suspect_after_s={}", format_host_port(o.host, port),
           std::chrono::duration_cast<std::chrono::seconds>(o.core.broker.suspect_after).count());
  app::notify_manager("READY=1");
  loop.run();
  log.info("tracker ended");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  TrackerOptions options;
  if (const auto code = app::read_options(argc, argv, options)) return *code;
  if (options.daemon.check) return check(options);
  ::signal(SIGPIPE, SIG_IGN);
  const auto log = app::open_log(
      "tracker", options.daemon.silent
                     ? app::LogOptions{options.daemon.log.format,
                                       std::max(options.daemon.log.level, LogLevel::warn)}
                     : options.daemon.log);
  return serve(options, *log);
}
