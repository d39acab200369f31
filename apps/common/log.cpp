#include "common/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <charconv>

namespace outpost::app {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::off;
}

/// syslog's number, as systemd reads it at the start of a line.
char journal_digit(LogLevel level) {
  constexpr std::string_view kDigits = "7643";
  return kDigits[static_cast<std::size_t>(level)];
}

const char* pattern(LogFormat format) {
  switch (format) {
    case LogFormat::plain:
      return "%Y-%m-%dT%H:%M:%S.%e%z %l %n: %v";
    case LogFormat::journal:
      return "%v";
    case LogFormat::json:
      return R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","logger":"%n",%v})";
  }
  return "%v";
}

class SpdLog final : public Log {
 public:
  SpdLog(std::string name, const LogOptions& options)
      : options_{options},
        logger_{std::move(name), std::make_shared<spdlog::sinks::stderr_sink_st>()} {
    logger_.set_pattern(pattern(options.format));
    logger_.set_level(to_spdlog(options.level));
    logger_.flush_on(spdlog::level::debug);
  }
  bool wants(LogLevel level) const override { return level >= options_.level; }
  void write(LogLevel level, std::string_view event) override {
    switch (options_.format) {
      case LogFormat::plain:
        logger_.log(to_spdlog(level), spdlog::string_view_t{event.data(), event.size()});
        return;
      case LogFormat::journal:
        logger_.log(to_spdlog(level), "<{}>{}: {}", journal_digit(level), logger_.name(), event);
        return;
      case LogFormat::json: {
        const auto members = event_as_json(event);
        logger_.log(to_spdlog(level), spdlog::string_view_t{members.data(), members.size()});
        return;
      }
    }
  }

 private:
  LogOptions options_;
  spdlog::logger logger_;
};

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  out += '"';
}

bool is_key(std::string_view word) {
  return !word.empty() &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool plain = text.find_first_not_of("0123456789.-") == std::string_view::npos;
  return plain && ec == std::errc{} && stop == text.data() + text.size();
}

/// The value at the front of `rest`, which loses it: up to the closing quote, or to the next blank.
std::string_view take_value(std::string_view& rest, bool& was_quoted) {
  was_quoted = rest.starts_with('\'');
  if (was_quoted) {
    rest.remove_prefix(1);
    auto end = rest.find("' ");
    if (end == std::string_view::npos) end = rest.ends_with('\'') ? rest.size() - 1 : rest.size();
    const auto value = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    return value;
  }
  const auto value = rest.substr(0, rest.find(' '));
  rest.remove_prefix(value.size());
  return value;
}

}  // namespace

std::string event_as_json(std::string_view event) {
  std::string words;
  std::string members;
  while (!event.empty()) {
    const auto blank = event.find(' ');
    const auto equals = event.find('=');
    if (equals < blank && is_key(event.substr(0, equals))) {
      const auto key = event.substr(0, equals);
      event.remove_prefix(equals + 1);
      bool was_quoted = false;
      const auto value = take_value(event, was_quoted);
      members += fmt::format(",\"{}\":", key);
      if (!was_quoted && is_number(value))
        members += value;
      else
        append_json_string(members, value);
    } else {
      const auto word = event.substr(0, blank);
      if (!words.empty()) words += ' ';
      words += word;
      event.remove_prefix(word.size());
    }
    if (event.starts_with(' ')) event.remove_prefix(1);
  }
  std::string out = "\"event\":";
  append_json_string(out, words);
  return out + members;
}

std::unique_ptr<Log> open_log(std::string name, const LogOptions& options) {
  return std::make_unique<SpdLog>(std::move(name), options);
}

}  // namespace outpost::app
