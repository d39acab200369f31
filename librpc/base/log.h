#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace outpost {

enum class LogLevel : std::uint8_t { debug, info, warn, error };

/// Where a daemon writes its events: one line each, words first, then key=value. Handed to those
/// who log; outlives them. The front half of a logger, so that its heavy back half stays in apps.
class Log {
 public:
  virtual ~Log() = default;
  virtual bool wants(LogLevel level) const = 0;
  virtual void write(LogLevel level, std::string_view event) = 0;

  template <class... A>
  void debug(fmt::format_string<A...> event, A&&... args) {
    put(LogLevel::debug, event, std::forward<A>(args)...);
  }
  template <class... A>
  void info(fmt::format_string<A...> event, A&&... args) {
    put(LogLevel::info, event, std::forward<A>(args)...);
  }
  template <class... A>
  void warn(fmt::format_string<A...> event, A&&... args) {
    put(LogLevel::warn, event, std::forward<A>(args)...);
  }
  template <class... A>
  void error(fmt::format_string<A...> event, A&&... args) {
    put(LogLevel::error, event, std::forward<A>(args)...);
  }

 private:
  template <class... A>
  void put(LogLevel level, fmt::format_string<A...> event, A&&... args) {
    if (wants(level)) write(level, fmt::format(event, std::forward<A>(args)...));
  }
};

/// A foreign string as a value of a log line: quoted, control bytes escaped, cut when long.
inline std::string quoted(std::string_view text) {
  return fmt::format("'{}'", printable(text));
}

}  // namespace outpost
