#include "host/link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"

extern char** environ;

namespace outpost::host {
namespace {

constexpr std::size_t kMessageBytesMax = 64 * 1024;

std::string from_path(const std::string& program) {
  if (program.find('/') != std::string::npos)
    return ::access(program.c_str(), X_OK) == 0 ? program : std::string{};
  const char* raw = std::getenv("PATH");
  std::string_view path = raw == nullptr ? "/usr/local/bin:/usr/bin:/bin" : raw;
  while (!path.empty()) {
    const auto colon = std::min(path.find(':'), path.size());
    auto file = std::string{path.substr(0, colon)} + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return file;
    path.remove_prefix(std::min(colon + 1, path.size()));
  }
  return {};
}

/// What the child writes, until it closes its end or time is over (false).
bool read_messages(int fd, std::chrono::steady_clock::time_point until, std::string& out) {
  char block[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    const auto n = ::read(fd, block, sizeof block);
    if (n <= 0) return true;
    const auto room = kMessageBytesMax - std::min(out.size(), kMessageBytesMax);
    out.append(block, std::min(static_cast<std::size_t>(n), room));
  }
}

/// Whether the child has ended by then; it is not reaped.
bool exits_before(pid_t pid, std::chrono::steady_clock::time_point until) {
  const unique_fd process{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
  if (!process) return true;  // a kernel before 5.3: waitpid has no limit then
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd ended{process.get(), POLLIN, 0};
    const int n = ::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (n > 0) return true;
    if (n == 0 && left.count() <= 0) return false;
  }
}

struct Run {
  int status = -1;
  bool in_time = false;
  std::string messages;
};

Result<Run> run(const std::vector<std::string>& words, std::chrono::seconds timeout) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{Code::io,
                 fmt::format("cannot make a pipe for the compiler: {}", std::strerror(errno))};
  const unique_fd from{ends[0]};
  unique_fd to{ends[1]};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, to.get(), 1);
  posix_spawn_file_actions_adddup2(&files, to.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    return Error{Code::io,
                 fmt::format("cannot start the compiler {}: {}", words[0], std::strerror(failed))};
  to.reset();
  Run out;
  const auto until = std::chrono::steady_clock::now() + timeout;
  out.in_time = read_messages(from.get(), until, out.messages) && exits_before(pid, until);
  ::kill(-pid, SIGKILL);  // helpers that it left; itself when time is over
  while (::waitpid(pid, &out.status, 0) < 0 && errno == EINTR) {
  }
  return out;
}

}  // namespace

Result<std::string> find_compiler() {
  std::vector<std::string> names;
  for (const char* variable : {"CXX", "CC"})
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0')
      names.emplace_back(value);
  for (const char* known : {"g++", "gcc", "clang++", "clang", "c++", "cc"})
    names.emplace_back(known);
  for (const auto& candidate : names)
    if (auto file = from_path(candidate); !file.empty()) return file;
  return Error{
      Code::not_found,
      "this board has no compiler ($CXX, $CC, g++, gcc, clang++, clang, c++, cc were tried): "
      "link the library on the build machine, or install a compiler here"};
}

std::vector<std::string> default_include_dirs() {
  namespace fs = std::filesystem;
  std::error_code ec;
  std::vector<std::string> out;
  const auto program = fs::read_symlink("/proc/self/exe", ec);
  const auto installed = program.parent_path().parent_path() / "share/outpost/include";
  if (!ec && fs::is_directory(installed, ec)) {
    out.push_back(installed.string());
  } else {
    for (const char* dir : {OUTPOST_COMPAT_INCLUDE_DIR, OUTPOST_TVM_FFI_INCLUDE_DIR})
      if (fs::is_directory(dir, ec)) out.emplace_back(dir);
  }
  return out;
}

Result<> link_library(const std::vector<std::string>& inputs, const std::string& output,
                      const LinkOptions& options) {
  OUTPOST_TRY(const auto compiler, find_compiler());
  std::vector<std::string> words{compiler, "-shared", "-fPIC", "-O2", "-o", output};
  for (const auto& dir : default_include_dirs()) words.push_back("-I" + dir);
  words.insert(words.end(), inputs.begin(), inputs.end());
  words.emplace_back("-lm");
  OUTPOST_TRY(const auto result, run(words, options.timeout));
  if (!result.in_time)
    return Error{Code::timeout,
                 fmt::format("Compilation error:\n{} ran longer than link_timeout {} s\n{}",
                             compiler, options.timeout.count(), result.messages)};
  if (result.status != 0)
    return Error{Code::malformed, fmt::format("Compilation error:\n{}", result.messages)};
  return {};
}

}  // namespace outpost::host
