#include "server/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace outpost::server {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

std::string read_whole(const std::string& path, bool& there) {
  std::string text;
  const unique_fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  there = static_cast<bool>(fd);
  char part[1024];
  for (ssize_t size = 0; there && (size = ::read(fd.get(), part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(size));
  return text;
}

pid_t number(std::string_view text) {
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  return pid;
}

void append_numbers(std::string_view text, std::vector<pid_t>& out) {
  while (!text.empty()) {
    const auto blank = text.find(' ');
    if (const auto pid = number(text.substr(0, blank)); pid > 0) out.push_back(pid);
    text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
  }
}

/// The parent in the text of /proc/<pid>/stat, whose second field may hold anything.
pid_t parent_of(std::string_view stat) {
  const auto close = stat.rfind(')');
  if (close == std::string_view::npos || close + 4 >= stat.size()) return 0;
  return number(stat.substr(close + 4));  // ") S <parent>"
}

std::vector<pid_t> scan_all() {
  std::vector<pid_t> out;
  const Folder proc{::opendir("/proc"), ::closedir};
  if (!proc) return out;
  const auto self = ::getpid();
  while (const auto* entry = ::readdir(proc.get())) {
    const auto pid = number(entry->d_name);
    bool there = false;
    if (pid > 0 && parent_of(read_whole("/proc/" + std::to_string(pid) + "/stat", there)) == self)
      out.push_back(pid);
  }
  return out;
}

}  // namespace

std::vector<pid_t> children_of_self() {
  std::vector<pid_t> out;
  const Folder tasks{::opendir("/proc/self/task"), ::closedir};
  if (!tasks) return scan_all();
  while (const auto* entry = ::readdir(tasks.get())) {
    if (number(entry->d_name) <= 0) continue;
    bool there = false;
    const auto text =
        read_whole("/proc/self/task/" + std::string{entry->d_name} + "/children", there);
    if (!there) return scan_all();  // a kernel without CONFIG_PROC_CHILDREN
    append_numbers(text, out);
  }
  return out;
}

}  // namespace outpost::server
