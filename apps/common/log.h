#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"

namespace outpost::app {

enum class LogFormat : std::uint8_t {
  plain,    ///< date, level, name: event
  journal,  ///< the level as systemd's `<n>` prefix; the journal knows the time
  json,     ///< one object a line; key=value pairs of the event become members
};

struct LogOptions {
  LogFormat format = LogFormat::plain;
  LogLevel level = LogLevel::info;
};

/// The process's logger; writes whole lines to standard error. @param name  short, e.g. "rpc"
std::unique_ptr<Log> open_log(std::string name, const LogOptions& options);

/// An event line taken apart as JSON members: `"event":"words","key":value,...`. A number stays a
/// number, all else becomes a string.
std::string event_as_json(std::string_view event);

}  // namespace outpost::app
