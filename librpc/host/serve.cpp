#include "host/serve.h"

#include <tvm/ffi/extra/module.h>

#include <vector>

#include "host/call.h"
#include "host/session.h"
#include "outpost/vm/runtime.h"

namespace outpost::host {

Result<> preload(const std::vector<std::string>& libraries) {
  OUTPOST_CHECK(guarded([] { vm::register_runtime(); }));
  // Libraries of the operator stay for the life of the process: their functions are in libtvm_ffi's
  // table.
  static std::vector<tvm::ffi::Module> loaded;
  for (const auto& path : libraries) {
    auto done = guarded([&] { loaded.push_back(tvm::ffi::Module::LoadFromFile(path)); });
    if (done.has_error())
      return wrap(std::move(done).error(), "cannot load library '" + path + "'");
  }
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
