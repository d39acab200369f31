#pragma once
#include <string>
#include <vector>

#include <outpost/rpc/client.h>
#include <outpost/rpc/export.h>

namespace outpost::client {

struct LocalOptions {
  /// Shared libraries whose functions the session sees. Only those of the first local session of a
  /// process count: what is loaded stays.
  std::vector<std::string> libraries;
  /// Where the session's folder is made; empty: TMPDIR, or /tmp.
  std::string work_dir;
  /// `session_timeout`, `key` and the time limits of connecting are not used.
  ConnectOptions connect;
};

/// A session that this process serves itself, in a thread of its own: the same interface without a
/// board. Code that crashes takes this process with it. Its folder goes when the session ends.
/// Errors: RpcError(io) when there is no room for the folder, RpcError when a library does not
/// load.
OUTPOST_CLIENT_API Session local_session(const LocalOptions& options = {});

}  // namespace outpost::client
