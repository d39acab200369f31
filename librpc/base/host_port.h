#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace outpost {

/// A name or address and a port, as a person writes them on a command line.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

/// Reads "host:port", "host", "[v6]:port", "[v6]", "v6:port" (split at the last colon, as the stock
/// server does) and "v6". @param default_port  taken when the text names none
/// Malformed: says what is wrong with which text.
Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port);

/// "host:port", with brackets around an IPv6 address.
std::string format_host_port(std::string_view host, std::uint16_t port);

}  // namespace outpost
