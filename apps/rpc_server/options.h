#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/options.h"
#include "net/listener.h"
#include "server/daemon.h"

namespace outpost::app {

inline constexpr std::uint16_t kPortEnd = 9199;      ///< last port tried when none is named
inline constexpr std::uint16_t kTrackerPort = 9190;  ///< of a tracker named by host only

/// What the options of rpc_server say, checked.
struct ServerOptions {
  DaemonOptions daemon;
  rpc::ListenOptions listen;
  server::DaemonConfig config;
  std::string work_dir;
  std::string init_hook;  ///< program run before the first session; empty: none
  std::chrono::milliseconds grace{10'000};
};

/// Reads them all; on a usage error or after help, an exit code.
std::optional<int> read_options(int argc, const char* const* argv, ServerOptions& out);

}  // namespace outpost::app
