#include "server/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern char** environ;

namespace outpost::server {
namespace {

/// What a session may know of our environment: it can read all of it in /proc.
constexpr std::string_view kPassed[] = {"PATH",
                                        "HOME",
                                        "LANG",
                                        "LC_ALL",
                                        "TZ",
                                        "TMPDIR",
                                        "CC",
                                        "CXX",
                                        "LD_PRELOAD",
                                        "LD_LIBRARY_PATH",
                                        "ASAN_OPTIONS",
                                        "OMP_NUM_THREADS",
                                        "UBSAN_OPTIONS",
                                        "TSAN_OPTIONS",
                                        "CUDA_VISIBLE_DEVICES"};
constexpr std::string_view kPassedPrefixes[] = {"TVM_", "OCL_", "VK_", "POCL_"};

bool passes(std::string_view entry) {
  const auto name = entry.substr(0, entry.find('='));
  return std::ranges::find(kPassed, name) != std::end(kPassed) ||
         std::ranges::any_of(kPassedPrefixes, [&](auto p) { return name.starts_with(p); });
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (auto& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& words, int fd,
                    int as_fd) {
  std::vector<std::string> arguments{program};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (passes(*entry)) environment.emplace_back(*entry);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // to the same number, dup2 would leave close-on-exec set: posix_spawn clears it (glibc 2.29)
  posix_spawn_file_actions_adddup2(&actions, fd, as_fd);
  posix_spawn_file_actions_addclosefrom_np(&actions, as_fd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, program.c_str(), &actions, &attributes,
                                   pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    return Error{Code::io, fmt::format("cannot run '{}': {}", program, std::strerror(failed))};
  return pid;
}

}  // namespace outpost::server
