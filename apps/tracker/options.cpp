#include "options.h"

#include <CLI/CLI.hpp>
#include <chrono>

namespace outpost::app {
namespace {

/// An option of whole seconds for a duration; what was there is its default.
template <class Duration>
void add_seconds(CLI::App& app, const std::string& name, Duration& value, const std::string& text) {
  using std::chrono::duration_cast;
  const auto set = [&value](const std::uint32_t& seconds) {
    value = duration_cast<Duration>(std::chrono::seconds{seconds});
  };
  app.add_option_function<std::uint32_t>(name, set, text)
      ->default_str(std::to_string(duration_cast<std::chrono::seconds>(value).count()))
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("SECONDS")
      ->group("Limits");
}

template <class T>
void add_size(CLI::App& app, const std::string& name, T& value, const std::string& text) {
  app.add_option(name, value, text)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str()
      ->type_name("BYTES")
      ->group("Limits");
}

template <class T>
void add_count(CLI::App& app, const std::string& name, T& value, const std::string& text) {
  app.add_option(name, value, text)
      ->check(CLI::Range(T{1}, T{1'000'000'000}))
      ->capture_default_str()
      ->type_name("COUNT")
      ->group("Limits");
}

void add_order(CLI::App& app, TrackerOptions& o) {
  auto& broker = o.core.broker;
  const auto set = [&broker](const std::string& text) {
    broker.order.order = tracker::parse_order(text).value_or(tracker::Order::aged);
  };
  app.add_option_function<std::string>(
         "--order", set,
         "Who goes first: strict (priority, then first come), aged (a level "
         "of priority is worth --priority-worth of waiting) or fair (users by turns)")
      ->check(CLI::IsMember({"strict", "aged", "fair"}))
      ->default_str("aged")
      ->group("Order");
  add_seconds(app, "--priority-worth", broker.order.priority_worth,
              "What one level of priority is worth in seconds of waiting");
  app.add_option("--held-per-user-max", broker.held_per_user_max,
                 "Devices that one user may have at a time; 0: no limit")
      ->capture_default_str()
      ->group("Order");
  app.add_option("--waiting-per-user-max", broker.waiting_per_user_max,
                 "Requests that one user may have waiting; 0: no limit")
      ->capture_default_str()
      ->group("Order");
  app.add_flag("--anonymous-by-address", o.core.anonymous_by_address,
               "Clients that give no name are users by their address")
      ->group("Order");
}

void add_limits(CLI::App& app, TrackerOptions& o) {
  auto& broker = o.core.broker;
  add_size(app, "--message-bytes-max", o.core.message_bytes_max,
           "Largest message; a larger one closes its connection");
  add_size(app, "--buffered-bytes-max", o.core.buffered_bytes_max,
           "Unfinished messages of all peers together");
  add_size(app, "--info-bytes-max", o.core.info_bytes_max, "What one server may say about itself");
  add_size(app, "--key-bytes-max", broker.key_bytes_max, "Longest key, match key or address");
  add_size(app, "--unsent-bytes-max", o.io.unsent_bytes_max,
           "Answers that one peer may leave unread");
  add_count(app, "--connections-max", o.io.connections_max,
            "Connections at a time; one more waits until another one ends");
  add_count(app, "--requests-per-connection-max", broker.requests_per_connection_max,
            "Requests that one connection may have waiting");
  add_count(app, "--offers-per-connection-max", broker.offers_per_connection_max,
            "Free devices that one connection may offer");
  add_count(app, "--keys-max", broker.keys_max, "Keys that are remembered");
  add_seconds(app, "--suspect-after", broker.suspect_after,
              "A server with a free device that says nothing for so long is not handed out");
  add_seconds(app, "--handshake-within", o.core.handshake_within,
              "Time for a new connection to send the magic");
  add_seconds(app, "--slow-reader", o.io.slow_reader,
              "A peer that reads none of its answers for so long is closed");
  add_seconds(app, "--peer-timeout", o.listen.send_timeout,
              "A peer that acknowledges nothing for so long is closed");
}

}  // namespace

std::optional<int> read_options(int argc, const char* const* argv, TrackerOptions& o) {
  o.listen.backlog = 4096;
  o.listen.keepalive_idle = std::chrono::seconds{10};
  o.listen.keepalive_interval = std::chrono::seconds{5};
  o.listen.send_timeout = std::chrono::seconds{20};
  CLI::App app{
      "Knows the free boards of a lab and hands them out: larger priority first, then first come.",
      "tracker"};
  app.footer(
      "Examples:\n"
      "  tracker                                     every address, port 9190\n"
      "  tracker --host 127.0.0.1 --port 0           any free port, printed at start\n"
      "  tracker --host :: --config /etc/outpost/tracker.toml");
  app.add_option("--host", o.host, "Address or name to listen on; '::' takes IPv6 and IPv4")
      ->capture_default_str();
  app.add_option("--port", o.port, "First port that is tried; 0 takes any free one")
      ->capture_default_str();
  app.add_option("--port-end", o.port_end, "End of the range of ports, not tried itself")
      ->capture_default_str();
  app.add_option("--stop-key-file", o.stop_key_file,
                 "File whose first line is the key of the STOP message; without it nobody can stop "
                 "the tracker by a message")
      ->type_name("FILE");
  add_order(app, o);
  add_limits(app, o);
  add_daemon_options(app, o.daemon);
  return parse_options(app, argc, argv);
}

rpc::ListenOptions listen_options(const TrackerOptions& o) {
  auto listen = o.listen;
  listen.host = o.host;
  listen.port = o.port;
  listen.port_end = o.port_end > o.port ? static_cast<std::uint16_t>(o.port_end - 1) : o.port;
  return listen;
}

}  // namespace outpost::app
