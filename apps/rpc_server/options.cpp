#include "rpc_server/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/host_port.h"

namespace outpost::app {
namespace {

constexpr const char* kFooter = R"(Examples:
  rpc_server                                        serve on the first free port from 9091 on
  rpc_server --tracker lab:9190 --key pi4           register as a board of type pi4
  rpc_server --slots 4 --load-library ./ops.so      four sessions at once, with own functions
  rpc_server --config /etc/outpost/rpc_server.toml --check   show what would be in force)";

/// The options as they are typed, before they are checked together.
struct Typed {
  int port = 9091;
  int port_end = kPortEnd;
  std::string tracker;
  std::string custom_addr;
  std::vector<std::string> libraries;
  bool no_fork = false;
  bool no_reuse_addr = false;
  bool discard_output = false;
  std::size_t spare_workers = 0;
  double timeout = 0;
  double grace = 10;
  double handshake_timeout = 10;
  std::uint32_t spin_us = 0;
  std::uint32_t link_timeout = 60;
  int keepalive = 30;
  int send_timeout = 120;
  std::string worker_program;
};

CLI::Option* add_size(CLI::App& app, const std::string& name, std::uint64_t& into,
                      const std::string& what) {
  return app.add_option(name, into, what)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str()
      ->group("Limits");
}

void add_network(CLI::App& app, ServerOptions& o, Typed& t) {
  app.add_option("--host", o.listen.host, "Address or name to listen on; :: is IPv6 and IPv4")
      ->capture_default_str()
      ->group("Network");
  app.add_option("--port", t.port, "First port to try; 0 takes any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--port-end", t.port_end,
                 "Last port to try (with a port above it: that port only)")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--tracker", t.tracker, "Tracker to register with, as host:port (port 9190)")
      ->group("Network");
  app.add_option("--key", o.config.key, "Device type under which the tracker knows this board")
      ->group("Network");
  app.add_option("--custom-addr", t.custom_addr,
                 "Address that the tracker hands out instead of the one it sees")
      ->group("Network");
  app.add_flag("--no-reuse-addr", t.no_reuse_addr, "Do not take a port that lingers")
      ->group("Network");
  app.add_option("--keepalive", t.keepalive,
                 "Seconds of silence before a client's host is probed; 0: never")
      ->check(CLI::Range(0, 32767))
      ->capture_default_str()
      ->group("Network");
  app.add_option("--send-timeout", t.send_timeout,
                 "Seconds a client's host may leave sent bytes unacknowledged; 0: system's choice")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str()
      ->group("Network");
}

void add_sessions(CLI::App& app, ServerOptions& o, Typed& t) {
  app.add_option("--slots", o.config.slots, "Sessions at once; other clients wait in line")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group("Sessions");
  app.add_option("--waiting-max", o.config.waiting_max, "Clients in line; more are refused")
      ->capture_default_str()
      ->group("Sessions");
  app.add_option("--spare-workers", t.spare_workers,
                 "Workers kept ready (default: two for each slot, at most 8)")
      ->check(CLI::Range(0, 4096))
      ->group("Sessions");
  app.add_option("--load-library", t.libraries, "Libraries that every session sees, a.so:b.so")
      ->group("Sessions");
  app.add_option("--init-hook", o.init_hook, "Program to run before the first session")
      ->group("Sessions");
  app.add_option("--work-dir", o.work_dir,
                 "Folder for the files of sessions (default: $TMPDIR, else /tmp)")
      ->group("Sessions");
  app.add_flag("--no-fork", t.no_fork, "All sessions in one process, one by one, for debugging")
      ->group("Sessions");
  app.add_option("--spin", t.spin_us,
                 "Microseconds a session waits busily for its next request before it sleeps")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->group("Sessions");
  app.add_flag("--unconfined-paths", o.config.worker.session.unconfined_paths,
               "Let clients name files outside of their folder, as the stock server does")
      ->group("Sessions");
  app.add_flag("--discard-output", t.discard_output, "Do not log what sessions print")
      ->group("Logging");
  app.add_option("--grace", t.grace, "Seconds that running sessions get when the server is stopped")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->group("Sessions");
  app.add_option("--worker-program", t.worker_program)->group("");
}

void add_limits(CLI::App& app, ServerOptions& o, Typed& t) {
  auto& worker = o.config.worker;
  app.add_option("--timeout", t.timeout,
                 "Seconds a session may wait for one socket operation; 0: for ever")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--handshake-timeout", t.handshake_timeout, "Seconds for a client's handshake")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--link-timeout", t.link_timeout, "Seconds for one run of compiler or linker")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str()
      ->group("Limits");
  auto& limits = worker.session.limits;
  add_size(app, "--frame-bytes-max", limits.frame_bytes_max,
           "Largest request that is kept in memory, e.g. 64MiB");
  add_size(app, "--stream-bytes-max", limits.stream_bytes_max, "Largest upload or copy");
  add_size(app, "--copy-bytes-max", worker.session.copy_bytes_max,
           "Largest copy request that clients are asked to send");
  add_size(app, "--memory-max", worker.limits.memory_bytes,
           "Private memory of one session's process; 0: no limit");
  add_size(app, "--address-space-max", worker.limits.address_space_bytes,
           "Address space of one session's process; 0: no limit");
  add_size(app, "--file-bytes-max", worker.limits.file_bytes,
           "Largest file a session may write; 0: no limit");
  add_size(app, "--core-bytes-max", worker.limits.core_bytes, "Largest core file");
  add_size(app, "--output-bytes-max", o.config.output_bytes_max,
           "Printed bytes of one session that are logged");
  app.add_option("--open-files-max", worker.limits.open_files,
                 "Open files of one session; 0: system's")
      ->capture_default_str()
      ->group("Limits");
  app.add_option("--processes-max", worker.limits.processes,
                 "Processes and threads of the server's user; 0: no limit")
      ->group("Limits");
  app.add_option("--handles-max", limits.handles_max, "Live handles of one session")
      ->capture_default_str()
      ->group("Limits");
}

std::vector<std::string> split_libraries(const std::vector<std::string>& lists) {
  std::vector<std::string> out;
  for (const auto& list : lists)
    for (const auto& name : CLI::detail::split(list, ':'))
      if (!name.empty()) out.push_back(name);
  return out;
}

/// rpc_worker lies beside this program.
std::string worker_beside_us() {
  char path[4096];
  const auto size = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string_view self{path, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  return std::string{self.substr(0, self.rfind('/') + 1)} + "rpc_worker";
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1000)};
}

/// Checks what one option cannot check alone.
Result<> settle(ServerOptions& o, const Typed& t, bool port_end_given) {
  o.listen.port = static_cast<std::uint16_t>(t.port);
  o.listen.port_end = static_cast<std::uint16_t>(t.port_end);
  if (port_end_given && t.port != 0 && t.port_end < t.port)
    return Error{Code::malformed,
                 fmt::format("--port-end {} is below --port {}", t.port_end, t.port)};
  o.listen.reuse_addr = !t.no_reuse_addr;
  o.listen.keepalive_idle = std::chrono::seconds{t.keepalive};
  o.listen.send_timeout = std::chrono::seconds{t.send_timeout};
  if (!t.tracker.empty()) {
    auto tracker = parse_host_port(t.tracker, kTrackerPort);
    if (tracker.has_error()) return wrap(std::move(tracker).error(), "--tracker");
    o.config.tracker = *std::move(tracker);
    if (o.config.key.empty())
      return Error{Code::malformed, "--tracker needs --key: the device type to register as"};
  }
  if (!t.custom_addr.empty()) o.config.custom_addr = t.custom_addr;
  if (o.config.key.find_first_of(" \t\n\r\v\f") != std::string::npos)
    return Error{Code::malformed, fmt::format("--key '{}' has a blank in it", o.config.key)};
  auto& config = o.config;
  if (t.no_fork && config.slots > 1)
    return Error{Code::malformed, "--no-fork serves one session at a time: leave --slots at 1"};
  config.worker.mode = t.no_fork ? server::WorkerMode::serial : server::WorkerMode::fork;
  config.worker.libraries = split_libraries(t.libraries);
  config.worker.keep_output = !t.discard_output;
  config.worker.session.spin = std::chrono::microseconds{t.spin_us};
  config.worker.session.link_timeout = std::chrono::seconds{t.link_timeout};
  config.workers.program = t.worker_program.empty() ? worker_beside_us() : t.worker_program;
  config.workers.spare_count =
      t.spare_workers != 0 ? t.spare_workers : std::min<std::size_t>(2 * config.slots, 8);
  config.handshake.deadline = milliseconds(t.handshake_timeout);
  config.idle_limit = milliseconds(t.timeout);
  o.grace = milliseconds(t.grace);
  if (o.work_dir.empty()) o.work_dir = server::default_work_dir();
  if (o.daemon.silent) o.daemon.log.level = std::max(o.daemon.log.level, LogLevel::warn);
  return {};
}

}  // namespace

std::optional<int> read_options(int argc, const char* const* argv, ServerOptions& out) {
  CLI::App app{"RPC server: runs compiled models for remote clients", "rpc_server"};
  app.footer(kFooter);
  Typed typed;
  add_network(app, out, typed);
  add_sessions(app, out, typed);
  add_limits(app, out, typed);
  add_daemon_options(app, out.daemon);
  if (const auto code = parse_options(app, argc, argv)) return code;
  const auto settled = settle(out, typed, app.get_option("--port-end")->count() > 0);
  if (settled.has_error()) return usage_error(app.get_name(), settled.error().text);
  return std::nullopt;
}

}  // namespace outpost::app
