#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace outpost::rpc {

/// How long one step may take; zero waits without a limit.
using Timeout = std::chrono::milliseconds;

/// Opens a TCP connection to the first address of `host` (name, IPv4 or IPv6) that answers. The
/// socket is blocking, closed on exec, sends without delay and probes a silent peer (keep-alive).
/// Errors: not_found (no such host), timeout, io; each names host and port.
Result<unique_fd> connect_tcp(const std::string& host, std::uint16_t port, Timeout timeout);

/// What the peer said in the handshake.
struct Greeting {
  std::string server_key;  ///< "server:<key>", or empty
};

/// Sends `client:<key>` and reads the answer on a blocking socket (rpc-wire.md, Handshake).
/// @param key  match key and options, for example "pi4:0.123 -timeout=10"
/// @param peer  host and port for the error texts
/// Errors: not_found (no such key there), busy (the key is taken), malformed (no RPC server),
/// timeout, io.
Result<Greeting> greet(int socket, std::string_view key, std::string_view peer, Timeout timeout);

/// connect_tcp and greet: a connected socket past the handshake. `timeout` bounds both together.
Result<unique_fd> dial_session(const std::string& host, std::uint16_t port, std::string_view key,
                               Timeout timeout);

/// "host:port", with brackets around an IPv6 address.
std::string address_text(std::string_view host, std::uint16_t port);

}  // namespace outpost::rpc
