#include "common/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

namespace outpost::app {
namespace {

std::string upper_snake(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back(name);
  return names;
}

void name_environment(CLI::App& app) {
  for (auto* option : app.get_options()) {
    const auto names = option->get_lnames();
    if (names.empty() || !option->get_configurable() || !option->get_envname().empty()) continue;
    option->envname("OUTPOST_" + upper_snake(names.front()));
  }
  for (auto* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    name_environment(*sub);
}

std::string suggestion(const CLI::App& app, std::string_view word, std::string_view dashes) {
  const auto near = nearest_name(word, option_names(app));
  return near.empty() ? "" : fmt::format(", did you mean '{}{}'?", dashes, near);
}

/// The innermost subcommand that was named, whose options a wrong word is compared with.
const CLI::App* named_app(const CLI::App& app) {
  const CLI::App* at = &app;
  for (auto subs = at->get_subcommands(); !subs.empty(); subs = at->get_subcommands())
    at = subs.back();
  return at;
}

/// A word where the name of a subcommand is wanted.
std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  const auto near = nearest_name(word, names);
  return fmt::format("unknown command '{}'{}", word,
                     near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  constexpr std::string_view kBadKey = "INI was not able to parse ";
  if (text.starts_with(kBadKey)) {
    const auto key = text.substr(kBadKey.size());
    return fmt::format("unknown key '{}' in the config file{}", key, suggestion(app, key, ""));
  }
  const auto* at = named_app(app);
  const auto extra = app.remaining(true);
  if (at == &app && app.get_require_subcommand_min() > 0 && !extra.empty() &&
      !extra.front().starts_with('-'))
    return unknown_command(app, extra.front());
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !extra.empty()) {
    const auto word = extra.front();
    if (!word.starts_with('-')) return fmt::format("unexpected argument '{}'", word);
    auto name =
        word.substr(word.find_first_not_of('-') == std::string::npos ? word.size()
                                                                     : word.find_first_not_of('-'));
    name = name.substr(0, name.find('='));
    return fmt::format("unknown option '{}'{}", word.substr(0, word.find('=')),
                       suggestion(*at, name, "--"));
  }
  return one_line(text);
}

void add_config(CLI::App& app) {
  app.set_config("--config", "", "TOML file whose keys are the names of the options")
      ->envname("OUTPOST_CONFIG");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

}  // namespace

void add_version(CLI::App& app) {
  app.set_version_flag("--version", fmt::format("outpost {}", OUTPOST_VERSION),
                       "Print the version and exit");
}

void add_daemon_options(CLI::App& app, DaemonOptions& options) {
  static const std::vector<std::pair<std::string, LogFormat>> kFormats{
      {"plain", LogFormat::plain}, {"journal", LogFormat::journal}, {"json", LogFormat::json}};
  static const std::vector<std::pair<std::string, LogLevel>> kLevels{{"debug", LogLevel::debug},
                                                                     {"info", LogLevel::info},
                                                                     {"warn", LogLevel::warn},
                                                                     {"error", LogLevel::error}};
  app.add_option("--log-format", options.log.format, "How log lines look on standard error")
      ->transform(
          CLI::CheckedTransformer(kFormats, CLI::ignore_case).description("{plain,journal,json}"))
      ->default_str("plain")
      ->group("Logging");
  app.add_option("--log-level", options.log.level, "Least level that is logged")
      ->transform(
          CLI::CheckedTransformer(kLevels, CLI::ignore_case).description("{debug,info,warn,error}"))
      ->default_str("info")
      ->group("Logging");
  app.add_flag("--silent", options.silent, "Log warnings and errors only")->group("Logging");
  app.add_flag("--check", options.check, "Print what is in force and exit")->configurable(false);
  add_config(app);
  add_version(app);
}

std::optional<int> parse_options(CLI::App& app, int argc, const char* const* argv) {
  name_environment(app);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return usage_error(app.get_name(), explain(app, error));
  }
}

int usage_error(std::string_view program, std::string_view text) {
  fmt::print(stderr, "{}: {}\n", program, text);
  return kExitUsage;
}

}  // namespace outpost::app
