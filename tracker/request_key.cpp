#include "request_key.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace outpost::tracker {
namespace {

constexpr double kWaitSecondsMax = 1e7;

Result<std::chrono::nanoseconds> parse_wait(std::string_view text) {
  double seconds = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, seconds);
  if (ec != std::errc{} || stop != end || !(seconds >= 0 && seconds <= kWaitSecondsMax))
    return Error{Code::malformed, fmt::format("-wait='{}' is not a number of seconds from 0 to {}",
                                              printable(text, 40), kWaitSecondsMax)};
  return std::chrono::nanoseconds{std::llround(seconds * 1e9)};
}

Result<> take_option(std::string_view word, RequestKey& out) {
  const auto equals = word.find('=');
  const auto name = word.substr(0, equals);
  const auto value =
      equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
  if (value.empty())
    return Error{Code::malformed,
                 fmt::format("option '{}' of a key has no value after a '='", printable(word, 40))};
  if (name == "-user") {
    out.user = std::string{value};
  } else if (name == "-need") {
    out.need = value;
  } else if (name == "-wait") {
    OUTPOST_TRY(out.wait, parse_wait(value));
  } else {
    return Error{Code::unsupported,
                 fmt::format("option '{}' of a key is not one of -user= -need= -wait=",
                             printable(name, 40))};
  }
  return {};
}

}  // namespace

Result<RequestKey> parse_request_key(std::string_view text) {
  RequestKey out;
  auto at = text.find(" -");
  out.key = text.substr(0, text.find_last_not_of(' ', at) + 1);
  if (at == std::string_view::npos) {
    out.key = text;
    return out;
  }
  while ((at = text.find_first_not_of(' ', at)) != std::string_view::npos) {
    const auto end = std::min(text.find(' ', at), text.size());
    OUTPOST_CHECK(take_option(text.substr(at, end - at), out));
    at = end;
  }
  return out;
}

}  // namespace outpost::tracker
