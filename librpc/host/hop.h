#pragma once
#include <span>
#include <string_view>

#include "base/limits.h"
#include "base/result.h"
#include "base/session_page.h"
#include "base/unique_fd.h"
#include "host/channel.h"
#include "wire/value.h"

namespace outpost::host {

/// Names of session constructors in InitServer.
inline constexpr std::string_view kHopConstructor = "rpc.Connect";
inline constexpr std::string_view kLocalConstructor = "rpc.LocalSession";

/// Connects to the next server and initialises a session there: (url, int port, key, bool logging,
/// inner constructor arguments...). Returns the socket, ready for the first request. The error says
/// which hop failed, and why.
Result<unique_fd> open_hop(std::span<const rpc::Value> arguments, const SessionLimits& limits);

/// From now on hands every request to the inner server and every answer back, unchanged and in
/// pieces, until either side ends. The death of the inner server reaches the client as an
/// Exception.
SessionEnd run_hop(Channel& client, unique_fd inner, SessionPage& page);

}  // namespace outpost::host
