#pragma once
#include <string_view>

#include "base/unique_fd.h"
#include "server/worker.h"
#include "server/worker_config.h"

namespace outpost::server {

/// Runs the process from which workers come, until the daemon closes the channel: it then kills
/// all workers and their descendants, removes their folders and returns the exit code.
/// Single-threaded; libraries are loaded already. In serial mode it is the only worker itself.
int run_zygote(unique_fd channel, const WorkerConfig& config, SessionFunction serve);

/// Tells the daemon why the zygote cannot begin.
void report_failure(int channel, std::string_view why);

}  // namespace outpost::server
