#include "server/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

namespace outpost::server {
namespace {

constexpr std::string_view kRootPrefix = "outpost_rpc.";
constexpr std::time_t kUnlockedSeconds = 60;  // a root this young may not have its lock yet

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

/// Names in a folder, read at once so that removing does not disturb the reading.
std::vector<std::string> names_in(int fd) {
  std::vector<std::string> names;
  const Folder folder{::fdopendir(::dup(fd)), ::closedir};
  if (!folder) return names;
  ::rewinddir(folder.get());
  while (const auto* entry = ::readdir(folder.get())) {
    const std::string_view name{entry->d_name};
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

unique_fd open_folder(int at, const char* name) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  unique_fd fd{::openat(at, name, kFlags)};
  if (fd || errno != EACCES) return fd;
  ::fchmodat(at, name, S_IRWXU, 0);  // the session took its own rights away
  return unique_fd{::openat(at, name, kFlags)};
}

/// Removes the files of a folder; what is left are the folders in it.
std::vector<std::string> remove_files(int folder) {
  ::fchmod(folder, S_IRWXU);
  auto names = names_in(folder);
  std::erase_if(names, [&](const std::string& name) {
    return ::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT;
  });
  return names;
}

Error failed(const std::string& path, std::string_view what) {
  return {Code::io, fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno))};
}

bool is_stale(const std::string& path) {
  const unique_fd lock{::open((path + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
  if (lock) return ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtime > kUnlockedSeconds;
}

std::size_t remove_stale(const std::string& work_dir) {
  const unique_fd fd{::open(work_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  std::size_t count = 0;
  for (const auto& name : names_in(fd.get())) {
    const auto path = work_dir + "/" + name;
    struct stat info {};
    if (!name.starts_with(kRootPrefix) || ::lstat(path.c_str(), &info) != 0) continue;
    if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || !is_stale(path)) continue;
    count += remove_tree(path).has_value();
  }
  return count;
}

Result<> make_folders(const std::string& path) {
  for (auto slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1))
    ::mkdir(path.substr(0, slash).c_str(), 0755);
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return failed(path, "make the work folder");
  return {};
}

}  // namespace

Result<> empty_tree(const std::string& path) {
  auto at = open_folder(AT_FDCWD, path.c_str());
  if (!at) return failed(path, "open the folder");
  // Down by name and up by "..", so that depth costs neither descriptors nor long paths. All who
  // could move folders around meanwhile are dead.
  struct Level {
    std::string name;
    std::vector<std::string> folders;  // in it, still to be removed
  };
  std::vector<Level> way{{"", remove_files(at.get())}};
  for (;;) {
    if (!way.back().folders.empty()) {
      auto name = std::move(way.back().folders.back());
      way.back().folders.pop_back();
      at = open_folder(at.get(), name.c_str());
      if (!at) return failed(path + "/.../" + name, "open the folder");
      way.push_back({std::move(name), remove_files(at.get())});
      continue;
    }
    if (way.size() == 1) break;
    at.reset(::openat(at.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!at || ::unlinkat(at.get(), way.back().name.c_str(), AT_REMOVEDIR) != 0)
      return failed(path + "/.../" + way.back().name, "remove the folder");
    way.pop_back();
  }
  return {};
}

Result<> remove_tree(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 && errno == ENOENT) return {};
  OUTPOST_CHECK(empty_tree(path));
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return failed(path, "remove the folder");
  return {};
}

Result<WorkRoot> WorkRoot::create(const std::string& work_dir, std::size_t& stale) {
  OUTPOST_CHECK(make_folders(work_dir));
  struct statvfs system {};
  if (::statvfs(work_dir.c_str(), &system) != 0) return failed(work_dir, "use the work folder");
  if ((system.f_flag & ST_NOEXEC) != 0)
    return Error{Code::io, fmt::format("work folder '{}' is mounted noexec, so uploaded libraries "
                                       "could not be loaded: name another with --work-dir",
                                       work_dir)};
  std::unique_ptr<char, void (*)(void*)> whole{::realpath(work_dir.c_str(), nullptr), std::free};
  if (!whole) return failed(work_dir, "use the work folder");
  stale = remove_stale(whole.get());
  auto path = fmt::format("{}/{}XXXXXX", whole.get(), kRootPrefix);
  if (::mkdtemp(path.data()) == nullptr) return failed(work_dir, "write to the work folder");
  unique_fd lock{::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return failed(path, "lock the folder");
  return WorkRoot{std::move(path), std::move(lock)};
}

WorkRoot::~WorkRoot() {
  if (lock_) (void)remove_tree(path_);
}

void WorkRoot::clear() const {
  const unique_fd fd{::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  for (const auto& name : names_in(fd.get()))
    if (name != "lock") (void)remove_tree(path_ + "/" + name);
}

std::string default_work_dir() {
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && temporary[0] == '/' ? temporary : "/tmp";
}

}  // namespace outpost::server
