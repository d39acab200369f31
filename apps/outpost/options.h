#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "outpost/spec.h"

namespace CLI {
class App;
}

namespace outpost::app {

/// Exit codes beside those of every program (common/options.h).
inline constexpr int kExitUnreachable = 3;  ///< no connection, or it was lost
inline constexpr int kExitTimeout = 4;      ///< a time limit passed, ours or the session's

/// How to reach a server.
struct Target {
  std::string tracker;  ///< host:port; empty: from the environment, else 127.0.0.1:9190
  std::string address;  ///< host:port of a server; the tracker is not asked then
  std::string key;      ///< device type at the tracker, or the server's own key
  double priority = 1;
  double session_timeout = 0;  ///< seconds; 0: never
  double wait = 0;             ///< seconds for a free device; 0: without a limit
  double timeout = 0;          ///< seconds for one call; 0: without a limit
  bool verbose = false;
};

struct DevicesCommand {
  bool json = false;
};
struct PingCommand {
  int count = 5;
};
struct UploadCommand {
  std::string file, name;
};
struct DownloadCommand {
  std::string name, file;
};
struct ListCommand {
  std::string path = ".";
};
struct RemoveCommand {
  std::vector<std::string> names;
};
struct LinkCommand {
  std::string file, output;
};
/// `run` and, with `measure`, `time`.
struct RunCommand {
  std::string library, function;
  std::vector<std::string> inputs, outputs;
  std::string device = "cpu:0";
  std::uint64_t seed = 0;
  bool measure = false;
  bool json = false;
  std::int64_t number = 10, repeat = 1, min_repeat_ms = 0, limit_zero_time_iterations = 100;
  std::int64_t cooldown_interval_ms = 0, repeats_to_cooldown = 1, cache_flush_bytes = 0;
  std::string preproc;
};

using Command = std::variant<std::monostate, DevicesCommand, PingCommand, UploadCommand,
                             DownloadCommand, ListCommand, RemoveCommand, LinkCommand, RunCommand>;

/// Where the subcommands of one command line put what they were told.
struct Parsed {
  Target target;
  DevicesCommand devices;
  PingCommand ping;
  UploadCommand upload;
  DownloadCommand download;
  ListCommand list;
  RemoveCommand remove;
  LinkCommand link;
  RunCommand run;
  RunCommand time;
};

/// Adds all subcommands. @param first  false for a command behind a `+`, which has no target of its
/// own
void add_commands(CLI::App& app, Parsed& parsed, bool first);

/// The subcommand that was given.
Command chosen_command(const CLI::App& app, const Parsed& parsed);

}  // namespace outpost::app
