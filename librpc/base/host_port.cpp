#include "base/host_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/utf8.h"

namespace outpost {
namespace {

std::optional<std::uint16_t> port_number(std::string_view text) {
  std::uint16_t port = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, port);
  if (text.empty() || ec != std::errc{} || stop != end) return std::nullopt;
  return port;
}

bool is_ipv6(std::string_view text) {
  const std::string address{text.substr(0, text.find('%'))};  // inet_pton takes no zone
  in6_addr raw;
  return inet_pton(AF_INET6, address.c_str(), &raw) == 1;
}

Error bad(std::string_view text, std::string_view why) {
  return {Code::malformed, fmt::format("'{}' is not host:port: {}", printable(text), why)};
}

Result<HostPort> with_port(std::string_view text, std::string_view host, std::string_view port) {
  const auto number = port_number(port);
  if (!number)
    return bad(text, fmt::format("port '{}' is not a number from 0 to 65535", printable(port)));
  if (host.empty()) return bad(text, "the host is missing");
  return HostPort{std::string{host}, *number};
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port) {
  if (text.empty()) return bad(text, "the host is missing");
  if (text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return bad(text, "']' is missing");
    const auto host = text.substr(1, close - 1);
    if (!is_ipv6(host)) return bad(text, "the part in brackets is not an IPv6 address");
    const auto rest = text.substr(close + 1);
    if (rest.empty()) return HostPort{std::string{host}, default_port};
    if (rest.front() != ':') return bad(text, "after ']' comes a colon and a port");
    return with_port(text, host, rest.substr(1));
  }
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return HostPort{std::string{text}, default_port};
  const auto host = text.substr(0, colon);
  if (host.find(':') == std::string_view::npos)
    return with_port(text, host, text.substr(colon + 1));
  if (is_ipv6(host) && port_number(text.substr(colon + 1)))
    return with_port(text, host, text.substr(colon + 1));
  if (is_ipv6(text)) return HostPort{std::string{text}, default_port};
  return bad(text, "write an IPv6 address as [address]:port");
}

std::string format_host_port(std::string_view host, std::uint16_t port) {
  if (host.find(':') == std::string_view::npos) return fmt::format("{}:{}", host, port);
  return fmt::format("[{}]:{}", host, port);
}

}  // namespace outpost
