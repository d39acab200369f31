#include "outpost/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "outpost/board_table.h"
#include "outpost/progress.h"

namespace outpost::app {
namespace {

using Milliseconds = std::chrono::milliseconds;

Milliseconds milliseconds(double seconds) {
  return Milliseconds{static_cast<std::int64_t>(seconds * 1000)};
}

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

Address address_or_usage(std::string_view text) {
  auto address = parse_address(text);
  if (address.has_error()) throw UsageError{address.error().text};
  return *std::move(address);
}

Address tracker_address(const Target& target) {
  if (!target.tracker.empty()) return address_or_usage(target.tracker);
  return address_or_usage(environment("TVM_TRACKER_HOST", "127.0.0.1") + ":" +
                          environment("TVM_TRACKER_PORT", "9190"));
}

nlohmann::json json_of(const client::TrackerSummary& summary) {
  nlohmann::json out{{"servers", nlohmann::json::array()},
                     {"queues", nlohmann::json::array()},
                     {"boards", nlohmann::json::array()}};
  for (const auto& s : summary.servers) {
    nlohmann::json server{{"key", s.key}, {"host", s.host}, {"port", s.port}};
    for (const auto& [name, text] : s.others)
      server.emplace(name, nlohmann::json::parse(text, nullptr, false));
    out["servers"].push_back(std::move(server));
  }
  for (const auto& q : summary.queues)
    out["queues"].push_back({{"key", q.key}, {"free", q.free}, {"pending", q.pending}});
  for (const auto& b : summary.boards)
    out["boards"].push_back(
        {{"key", b.key},
         {"address", b.host + ":" + b.port},
         {"state", b.state},
         {"holder", b.holder.empty() ? nlohmann::json{} : nlohmann::json(b.holder)},
         {"state_seconds", b.state_seconds}});
  return out;
}

void devices(Connection& connection, const DevicesCommand& command) {
  auto tracker = connection.tracker();
  const auto summary = tracker.summary();
  if (command.json) {
    fmt::print("{}\n",
               json_of(summary).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  const auto at = tracker_address(connection.target());
  fmt::print("Tracker address {}:{}\n\n{}", at.host, at.port, client::text_summary(summary));
  fmt::print("{}", board_table(summary));
}

void ping(Connection& connection, const PingCommand& command) {
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::duration<double, std::milli>;
  const auto& target = connection.target();
  const bool board = !target.key.empty() || !target.address.empty();
  const auto begin = Clock::now();
  std::optional<client::Tracker> tracker;
  if (board)
    (void)connection.session();
  else
    tracker = connection.tracker();
  const Duration connected = Clock::now() - begin;
  std::vector<double> trips;
  for (int i = 0; i < command.count; ++i) {
    const auto sent = Clock::now();
    if (board)
      (void)connection.session().cpu().exists();
    else
      (void)tracker->ping();
    trips.push_back(Duration{Clock::now() - sent}.count());
  }
  std::ranges::sort(trips);
  fmt::print(
      "{}: connected in {:.3f} ms; {} round trips: min {:.3f} ms, median {:.3f} ms, max "
      "{:.3f} ms\n",
      board ? connection.session().server_key() : "tracker", connected.count(), trips.size(),
      trips.front(), trips[trips.size() / 2], trips.back());
}

void upload(const client::Session& session, const UploadCommand& command) {
  ProgressBar bar{command.file};
  session.upload_file(command.file, command.name, bar.options());
}

void download(const client::Session& session, const DownloadCommand& command) {
  ProgressBar bar{command.name};
  auto file = command.file;
  if (file.empty()) file = std::filesystem::path{command.name}.filename().string();
  if (file == "-") {
    session.download_to(
        command.name,
        [](std::span<const std::byte> piece) {
          if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size())
            throw client::RpcError{client::Code::io, "cannot write to standard output"};
        },
        bar.options());
    return;
  }
  session.download_file(command.name, file, bar.options());
}

void link(const client::Session& session, const LinkCommand& command) {
  const std::filesystem::path file{command.file};
  const auto name = file.filename().string();
  const auto output = command.output.empty()
                          ? std::filesystem::path{file}.replace_extension(".so").string()
                          : command.output;
  {
    ProgressBar bar{command.file};
    session.upload_file(command.file, name, bar.options());
  }
  ProgressBar bar{output};
  session.download_linked_module_file(name, output, bar.options());
}

/// A wait without a word looks like a hang, above all when the key is misspelt.
void announce_wait(client::Tracker& tracker, const std::string& key) {
  const auto summary = tracker.summary();
  const auto queue = std::ranges::find(summary.queues, key, &client::TrackerQueue::key);
  if (queue != summary.queues.end() && queue->free > 0) return;
  const auto servers =
      std::ranges::count(summary.servers, "server:" + key, &client::TrackerServer::key);
  fmt::print(stderr, "outpost: waiting for a device with key '{}': the tracker lists {}\n", key,
             servers == 0 ? "no server with it" : fmt::format("{} servers, none free", servers));
}

}  // namespace

client::Tracker Connection::tracker() const {
  const auto at = tracker_address(target_);
  return client::connect_tracker(at.host, at.port);
}

const client::Session& Connection::session() {
  if (session_) return *session_;
  client::ConnectOptions options;
  options.session_timeout = std::chrono::duration<double>{target_.session_timeout};
  options.timeouts.answer = milliseconds(target_.timeout);
  options.enable_logging = target_.verbose;
  if (!target_.address.empty()) {
    const auto at = address_or_usage(target_.address);
    options.key = target_.key;
    options.timeouts.handshake = milliseconds(target_.wait);
    return session_.emplace(client::connect(at.host, at.port, options));
  }
  if (target_.key.empty()) throw UsageError{"name a device with --key, or a server with --address"};
  client::RequestOptions request;
  request.priority = target_.priority;
  request.wait = milliseconds(target_.wait);
  request.connect = std::move(options);
  auto from = tracker();
  announce_wait(from, target_.key);
  return session_.emplace(from.request(target_.key, request));
}

void perform(Connection& connection, const Command& command) {
  struct Visitor {
    Connection& to;
    void operator()(std::monostate) const {}
    void operator()(const DevicesCommand& c) const { devices(to, c); }
    void operator()(const PingCommand& c) const { ping(to, c); }
    void operator()(const UploadCommand& c) const { upload(to.session(), c); }
    void operator()(const DownloadCommand& c) const { download(to.session(), c); }
    void operator()(const ListCommand& c) const {
      for (const auto& name : to.session().listdir(c.path)) fmt::print("{}\n", name);
    }
    void operator()(const RemoveCommand& c) const {
      for (const auto& name : c.names) to.session().remove(name);
    }
    void operator()(const LinkCommand& c) const { link(to.session(), c); }
    void operator()(const RunCommand& c) const {
      const auto plan = plan_run(c);
      run_function(to.session(), plan);
    }
  };
  std::visit(Visitor{connection}, command);
  if (std::fflush(stdout) != 0)
    throw client::RpcError{client::Code::io, "cannot write to standard output"};
}

}  // namespace outpost::app
