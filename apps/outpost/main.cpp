#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "common/options.h"
#include "outpost/commands.h"
#include "outpost/options.h"

namespace {

using outpost::app::Command;
namespace app = outpost::app;
namespace client = outpost::client;

/// The command line cut at each `+`; every piece begins with the program's name.
std::vector<std::vector<const char*>> pieces_of(int argc, char** argv) {
  std::vector<std::vector<const char*>> out{{argv[0]}};
  for (int i = 1; i < argc; ++i) {
    if (std::string_view{argv[i]} == "+")
      out.push_back({argv[0]});
    else
      out.back().push_back(argv[i]);
  }
  return out;
}

struct CommandLine {
  app::Target target;
  std::vector<Command> commands;
};

/// Empty when it is done already, with `exit_code`.
std::optional<CommandLine> parse(int argc, char** argv, int& exit_code) {
  CommandLine out;
  bool first = true;
  for (const auto& piece : pieces_of(argc, argv)) {
    CLI::App options{"Reaches the boards of a lab: uploads, runs and measures compiled code.",
                     "outpost"};
    app::Parsed parsed;
    app::add_version(options);
    app::add_commands(options, parsed, first);
    const auto done = app::parse_options(options, static_cast<int>(piece.size()), piece.data());
    if (done) {
      exit_code = *done;
      return std::nullopt;
    }
    if (first) out.target = parsed.target;
    out.commands.push_back(app::chosen_command(options, parsed));
    first = false;
  }
  return out;
}

int say(const std::string& text, int exit_code) {
  fmt::print(stderr, "outpost: {}\n", text);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error to report, not an end without words
  int exit_code = 0;
  try {
    const auto line = parse(argc, argv, exit_code);
    if (!line) return exit_code;
    app::Connection connection{line->target};
    for (const auto& command : line->commands) app::perform(connection, command);
    return 0;
  } catch (const app::UsageError& e) {
    return app::usage_error("outpost", e.what());
  } catch (const client::SessionTimeoutError& e) {
    return say(e.what(), app::kExitTimeout);
  } catch (const client::RpcError& e) {
    if (e.code() == client::Code::timeout) return say(e.what(), app::kExitTimeout);
    const bool lost = dynamic_cast<const client::ConnectionError*>(&e) != nullptr;
    return say(e.what(), lost ? app::kExitUnreachable : app::kExitFailure);
  } catch (const std::exception& e) {
    return say(e.what(), app::kExitFailure);
  }
}
