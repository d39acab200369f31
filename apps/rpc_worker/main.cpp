// The process from which session workers come. Started by rpc_server with words of its own; has no
// options for people.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "host/serve.h"
#include "server/protocol.h"
#include "server/zygote.h"

namespace outpost::server {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

int run(const std::vector<std::string>& words) {
  const auto config = from_words(words);
  if (config.has_error()) {
    fmt::print(stderr, "rpc_worker: {}\n", config.error().text);
    return kExitUsage;
  }
  if (const auto loaded = host::preload(config->libraries); loaded.has_error()) {
    report_failure(kChannelFd, loaded.error().text);
    return kExitFailure;
  }
  return run_zygote(unique_fd{kChannelFd}, *config, host::serve_session);
}

}  // namespace
}  // namespace outpost::server

int main(int argc, char** argv) {
  return outpost::server::run({argv + 1, argv + argc});
}
