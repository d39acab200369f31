#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "common/options.h"
#include "net/listener.h"
#include "tracker_io.h"

namespace outpost::app {

struct TrackerOptions {
  DaemonOptions daemon;
  std::string host = "0.0.0.0";
  std::uint16_t port = 9190;
  std::uint16_t port_end = 9199;
  std::string stop_key_file;
  tracker::CoreLimits core;
  tracker::IoLimits io;
  rpc::ListenOptions listen;
};

/// Reads command line, config file and environment. Empty: go on; else the exit code.
std::optional<int> read_options(int argc, const char* const* argv, TrackerOptions& options);

/// The ports as the listener wants them: the stock option names the first port that is not tried.
rpc::ListenOptions listen_options(const TrackerOptions& options);

}  // namespace outpost::app
