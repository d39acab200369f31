#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace outpost::tracker {

/// The key of a REQUEST taken apart. Clients that know only a key put options behind it:
/// `rasp4 -user=ann -need=mem>=4096,fp16 -wait=60`.
struct RequestKey {
  std::string key;                  ///< what is in front of the options, blanks and all
  std::optional<std::string> user;  ///< stands for the user of the message
  std::string need;                 ///< conditions on tags, see constraint.h
  std::optional<std::chrono::nanoseconds> wait;  ///< refused when nothing came by then
};

/// Malformed: an option that is unknown or has no good value; says which.
Result<RequestKey> parse_request_key(std::string_view text);

}  // namespace outpost::tracker
