#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/session_page.h"
#include "base/unique_fd.h"
#include "server/worker_config.h"

namespace outpost::server {

/// host::serve_session, or a stand-in of a test.
using SessionFunction = SessionEnd (*)(int socket, const host::SessionOptions&, SessionPage&);

/// What one worker is born with.
struct WorkerPlace {
  std::string folder;  ///< exists and is empty
  unique_fd control;   ///< here comes the client's socket
  unique_fd page;
  unique_fd output;  ///< takes what the session prints; none: it goes nowhere
};

/// Puts the process into the state in which a session may run: own session and group, death with
/// its parent, its descendants in its care, its folder, its standard streams. Io: what failed.
Result<> prepare_worker(const WorkerPlace& place, pid_t parent);

/// Limits what the session may do from here on; the one place for that. Today: resource limits and
/// no new privileges.
Result<> confine(const WorkerLimits& limits);

/// Serves a short session that has no client, so that the real one finds its memory present: page
/// faults are most of what the first requests cost in a process that has just been forked.
void rehearse(const WorkerConfig& config, const WorkerPlace& place, SessionFunction serve);

/// Waits for a client's socket and serves its session. False: none came, the daemon is gone.
bool serve_one(const WorkerConfig& config, const WorkerPlace& place, SessionFunction serve);

}  // namespace outpost::server
