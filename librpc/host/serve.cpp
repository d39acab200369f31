#include "host/serve.h"

#include <dlfcn.h>

#include <vector>

#include "host/call.h"
#include "host/remote_session.h"
#include "host/session.h"
#include "outpost/vm/runtime.h"

namespace outpost::host {

namespace {

/// Loads one library of the operator for the life of the process: its symbols and the functions
/// that it registers are there for every session, as with the peer's `--load-library`.
Result<> load_operator_library(const std::string& path) {
  const auto purpose = "cannot load library '" + path + "'";
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return Error{Code::io, purpose + ": " + ::dlerror()};
  using Hook = int (*)();
  if (const auto hook = reinterpret_cast<Hook>(::dlsym(library, "outpost_server_init"))) {
    int status = 0;
    auto done = guarded([&] { status = hook(); });
    if (done.has_error())
      return wrap(std::move(done).error(), path + ": outpost_server_init failed");
    if (status != 0)
      return Error{Code::internal,
                   path + ": outpost_server_init returned " + std::to_string(status)};
  }
  return {};
}

}  // namespace

Result<> preload(const std::vector<std::string>& libraries) {
  OUTPOST_CHECK(guarded([] {
    vm::register_runtime();
    register_session_functions();
  }));
  for (const auto& path : libraries) OUTPOST_CHECK(load_operator_library(path));
  return {};
}

SessionEnd serve_session(int socket, const SessionOptions& options, SessionPage& page) {
  auto folder = Folder::open(options.work_dir, options.unconfined_paths);
  Channel channel{socket, page, options.spin};
  if (folder.has_error()) {
    page.end.store(SessionEnd::io, std::memory_order_release);
    return SessionEnd::io;
  }
  SessionEnd end = SessionEnd::unknown;
  {
    Session session{channel, options, page, std::move(*folder)};
    end = session.run();
    page.end.store(end, std::memory_order_release);
  }
  return end;
}

}  // namespace outpost::host
