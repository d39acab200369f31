#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/log.h"

namespace CLI {
class App;
}

namespace outpost::app {

/// Exit codes of every program of ours.
inline constexpr int kExitFailure = 1;  ///< it was asked for something that did not work
inline constexpr int kExitUsage = 2;    ///< a wrong option or config key

/// What every daemon can be told.
struct DaemonOptions {
  LogOptions log;
  bool silent = false;  ///< warnings and errors only
  bool check = false;   ///< print what is in force and exit
};

/// Adds --log-format, --log-level, --silent, --check, --config and --version.
void add_daemon_options(CLI::App& app, DaemonOptions& options);

/// Adds --version only, for a program that is not a daemon.
void add_version(CLI::App& app);

/// Parses the command line, the config file and the environment: each option `--some-name` is also
/// OUTPOST_SOME_NAME. Empty: go on. Else the exit code: 0 after help or version; kExitUsage after
/// one exact line on standard error, with the nearest name when one was misspelt.
std::optional<int> parse_options(CLI::App& app, int argc, const char* const* argv);

/// The name among `names` that a person most likely meant; empty when none is near.
std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

/// Puts one line on standard error, as every usage error looks: "program: text".
int usage_error(std::string_view program, std::string_view text);

}  // namespace outpost::app
