#include <fmt/format.h>
#include <outpost/rpc/local_session.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/unique_fd.h"
#include "host/serve.h"

namespace outpost::client {
namespace {

/// Serves one end of a socket pair until the other one closes; removes the folder then.
class LocalServer {
 public:
  LocalServer(unique_fd socket, std::string folder)
      : socket_{std::move(socket)}, folder_{std::move(folder)}, thread_{[this] { serve(); }} {}
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;
  ~LocalServer() {
    thread_.join();
    std::error_code ignored;  // a folder that stays behind harms nobody
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  void serve() {
    host::SessionOptions options;
    options.work_dir = folder_;
    host::serve_session(socket_.get(), options, page_);
    socket_.reset();
  }

  unique_fd socket_;
  std::string folder_;
  SessionPage page_;
  std::thread thread_;  // last: it uses the others
};

void preload_once(const std::vector<std::string>& libraries) {
  static std::once_flag once;
  // An exception leaves the flag unset, so that the next session tries again.
  std::call_once(once, [&] {
    if (const auto loaded = host::preload(libraries); loaded.has_error())
      throw RpcError{Code::io, loaded.error().text};
  });
}

std::string make_folder(const std::string& parent) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string base = !parent.empty() ? parent : temporary != nullptr ? temporary : "/tmp";
  auto path = std::filesystem::absolute(base).string() + "/outpost-local-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    throw RpcError{Code::io, fmt::format("cannot make a folder in '{}': {}", base,
                                         std::generic_category().message(errno))};
  return path;
}

}  // namespace

Session local_session(const LocalOptions& options) {
  preload_once(options.libraries);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw RpcError{Code::io, fmt::format("cannot make a socket pair: {}",
                                         std::generic_category().message(errno))};
  unique_fd ours{ends[0]};
  auto server = std::make_shared<LocalServer>(unique_fd{ends[1]}, make_folder(options.work_dir));
  return adopt(ours.release(), options.connect, std::move(server));
}

}  // namespace outpost::client
