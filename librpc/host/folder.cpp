#include "host/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/utf8.h"

namespace outpost::host {
namespace {

constexpr std::size_t kNameBytesMax = 4096;
constexpr int kDepthMax = 64;

Error system_error(std::string_view what, std::string_view name) {
  const int e = errno;
  const auto code = e == ENOENT || e == ENOTDIR                ? Code::not_found
                    : e == ENOSPC || e == EDQUOT || e == EFBIG ? Code::limit
                    : e == EXDEV || e == ELOOP                 ? Code::denied
                                                               : Code::io;
  const char* why = e == EXDEV ? "the name leaves the session's folder" : std::strerror(e);
  return Error{code, fmt::format("{} {}: {}", what, printable(name), why)};
}

/// Opens beneath `dir` only. Kernels before 5.6 lack openat2: there a link anywhere on the way is
/// refused.
int open_beneath(int dir, const std::string& name, int flags, unsigned mode) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC;
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  static const bool known = [dir] {
    open_how probe{};
    probe.flags = O_PATH | O_CLOEXEC;
    const auto fd = ::syscall(SYS_openat2, dir, ".", &probe, sizeof probe);
    if (fd >= 0) ::close(static_cast<int>(fd));
    return fd >= 0;
  }();
  if (known) return static_cast<int>(::syscall(SYS_openat2, dir, name.c_str(), &how, sizeof how));
  unique_fd at{::fcntl(dir, F_DUPFD_CLOEXEC, 3)};
  std::size_t begin = 0;
  for (auto slash = name.find('/'); slash != std::string::npos; slash = name.find('/', begin)) {
    const auto part = name.substr(begin, slash - begin);
    begin = slash + 1;
    if (part.empty() || part == ".") continue;
    at = unique_fd{::openat(at.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!at) return -1;
  }
  return ::openat(at.get(), name.c_str() + begin, flags | O_NOFOLLOW | O_CLOEXEC, mode);
}

/// Everything in the folder `dir`, and links as links.
bool remove_contents(int dir, int depth) {
  const int copy = ::fcntl(dir, F_DUPFD_CLOEXEC, 3);
  std::unique_ptr<DIR, int (*)(DIR*)> entries{::fdopendir(copy), ::closedir};
  if (!entries) return false;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name{entry->d_name};
    if (name == "." || name == "..") continue;
    if (::unlinkat(dir, entry->d_name, 0) == 0 || errno == ENOENT) continue;
    if (depth == 0) return false;
    const unique_fd child{
        ::openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!child || !remove_contents(child.get(), depth - 1)) return false;
    if (::unlinkat(dir, entry->d_name, AT_REMOVEDIR) != 0) return false;
  }
  return true;
}

}  // namespace

Result<Folder> Folder::open(std::string path, bool unconfined) {
  unique_fd fd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!fd) return system_error("cannot open the session's folder", path);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return Folder{std::move(path), std::move(fd), unconfined};
}

Result<std::string> Folder::relative(std::string_view name) const {
  if (name.size() > kNameBytesMax)
    return Error{Code::limit,
                 fmt::format("file name of {} bytes, at most {}", name.size(), kNameBytesMax)};
  if (name.find('\0') != std::string_view::npos)
    return Error{Code::malformed,
                 fmt::format("file name '{}' contains a NUL byte", printable(name))};
  if (unconfined_) return std::string{name};
  if (name.starts_with(path_) && (name.size() == path_.size() || name[path_.size()] == '/')) {
    name.remove_prefix(path_.size());
    while (name.starts_with('/')) name.remove_prefix(1);
  }
  const auto refuse = [&](std::string_view why) {
    return Error{Code::denied,
                 fmt::format("file name '{}' {}: names stay inside the session's folder",
                             printable(name), why)};
  };
  if (name.starts_with('/')) return refuse("is absolute");
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") return refuse("contains '..'");
    begin = end + 1;
  }
  return name.empty() ? std::string{"."} : std::string{name};
}

Result<std::string> Folder::path_of(std::string_view name) const {
  OUTPOST_TRY(const auto inside, relative(name));
  if (inside.starts_with('/')) return inside;
  return inside == "." ? path_ : path_ + "/" + inside;
}

Result<unique_fd> Folder::open_inside(const std::string& name, int flags, unsigned mode) const {
  const int fd = unconfined_ ? ::openat(fd_.get(), name.c_str(), flags | O_CLOEXEC, mode)
                             : open_beneath(fd_.get(), name, flags, mode);
  if (fd < 0) return system_error("Cannot open", path_ + "/" + name);
  return unique_fd{fd};
}

Result<unique_fd> Folder::open_file(std::string_view name) const {
  OUTPOST_TRY(const auto inside, relative(name));
  // Without O_NONBLOCK a FIFO of this name would hold the session for ever.
  OUTPOST_TRY(auto fd, open_inside(inside, O_RDONLY | O_NONBLOCK, 0));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error("Cannot open", inside);
  if (!S_ISREG(info.st_mode))
    return Error{Code::denied, fmt::format("Cannot open {}: not a regular file", printable(name))};
  return fd;
}

Result<Folder::Parent> Folder::parent_of(const std::string& relative_name) const {
  const auto slash = relative_name.rfind('/');
  Parent out;
  out.leaf = slash == std::string::npos ? relative_name : relative_name.substr(slash + 1);
  const auto folder =
      slash == std::string::npos ? "." : relative_name.substr(0, std::max<std::size_t>(slash, 1));
  OUTPOST_TRY(out.fd, open_inside(folder, O_RDONLY | O_DIRECTORY, 0));
  return out;
}

Result<unique_fd> Folder::create_file(std::string_view name) const {
  OUTPOST_TRY(const auto inside, relative(name));
  OUTPOST_TRY(const auto parent, parent_of(inside));
  if (parent.leaf.empty() || parent.leaf == ".")
    return Error{Code::malformed, fmt::format("'{}' names a folder, not a file", printable(name))};
  (void)::unlinkat(parent.fd.get(), parent.leaf.c_str(), 0);
  const int fd = ::openat(parent.fd.get(), parent.leaf.c_str(),
                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("cannot write", name);
  return unique_fd{fd};
}

Result<> Folder::remove(std::string_view name) const {
  OUTPOST_TRY(const auto inside, relative(name));
  auto parent = parent_of(inside);
  if (parent.has_error()) {
    if (parent.error().code == Code::not_found) return {};
    return std::move(parent).error();
  }
  const auto& leaf = parent->leaf;
  const int dir = parent->fd.get();
  if (leaf.empty() || leaf == ".") return {};
  if (::unlinkat(dir, leaf.c_str(), 0) == 0 || errno == ENOENT) return {};
  const unique_fd child{
      ::openat(dir, leaf.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (child && remove_contents(child.get(), kDepthMax) &&
      ::unlinkat(dir, leaf.c_str(), AT_REMOVEDIR) == 0)
    return {};
  return system_error("cannot remove", name);
}

Result<std::vector<std::string>> Folder::list(std::string_view name) const {
  OUTPOST_TRY(const auto inside, relative(name));
  OUTPOST_TRY(auto fd, open_inside(inside, O_RDONLY | O_DIRECTORY, 0));
  std::unique_ptr<DIR, int (*)(DIR*)> entries{::fdopendir(fd.get()), ::closedir};
  if (!entries) return system_error("cannot list", name);
  (void)fd.release();
  std::vector<std::string> out;
  while (const dirent* entry = ::readdir(entries.get())) {
    std::string text{entry->d_name};
    if (text == "." || text == "..") continue;
    if (entry->d_type == DT_DIR) text += '/';
    out.push_back(std::move(text));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace outpost::host
