#pragma once
#include "rpc_server/options.h"

namespace outpost::app {

/// --check: prints what is in force, a key=value a line, and tries what can be tried without
/// serving. Returns the exit code: 0 when a server with these options would start.
int check(const ServerOptions& options);

}  // namespace outpost::app
