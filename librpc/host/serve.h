#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "base/session_page.h"

namespace outpost::host {

/// What one session is given; everything here was chosen by the operator, nothing by the client.
struct SessionOptions {
  SessionLimits limits;
  std::string work_dir;  ///< absolute path of the session's own folder; exists and is empty
  /// Busy-wait this long for the next request before blocking; 0 blocks at once.
  std::chrono::microseconds spin{0};
  std::chrono::seconds link_timeout{60};  ///< for one run of the board's compiler or linker
  /// Largest CopyToRemote body announced through GetCRTMaxPacketSize.
  std::uint64_t copy_bytes_max = 1ULL << 30;
  /// The peer's behaviour for file names: `..` and absolute paths leave the folder. Off unless
  /// asked for.
  bool unconfined_paths = false;
};

/// Once per process, before the first session (and before any fork): registers every builtin and
/// the symbols that compiled code imports, then loads the operator's libraries (dlopen, global) and
/// calls `int outpost_server_init()` of those that export it. Starts no thread. Error: a library
/// that does not load, or a hook that returns non-zero.
Result<> preload(const std::vector<std::string>& libraries);

/// Serves one session on a connected, blocking stream socket that is past the handshake, until it
/// ends; returns why. Uses the calling thread only. Counters and the end reason go into `page`;
/// before each answer it takes the page's turn, and when the daemon has taken it, it stops without
/// writing.
SessionEnd serve_session(int socket, const SessionOptions& options, SessionPage& page);

}  // namespace outpost::host
