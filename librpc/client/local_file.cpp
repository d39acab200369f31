#include "client/local_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace outpost::rpc {
namespace {

Error os_error(std::string_view doing, std::string_view path, int error) {
  const auto code = error == ENOENT                     ? Code::not_found
                    : error == EACCES || error == EPERM ? Code::denied
                                                        : Code::io;
  return {code,
          fmt::format("cannot {} '{}': {}", doing, path, std::generic_category().message(error))};
}

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}.part-{}-{}", path, ::getpid(), count.fetch_add(1));
}

}  // namespace

Result<LocalFile> open_local(const std::string& path) {
  LocalFile out;
  out.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!out.fd) return os_error("read", path, errno);
  struct stat info {};
  if (::fstat(out.fd.get(), &info) != 0) return os_error("read", path, errno);
  if (!S_ISREG(info.st_mode))
    return Error{Code::unsupported,
                 fmt::format("cannot read '{}': it is not a regular file", path)};
  out.bytes = static_cast<std::uint64_t>(info.st_size);
  return out;
}

Result<NewFile> NewFile::create(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    unique_fd fd{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    if (!fd) return os_error("write", path, errno);
    return NewFile{path, "", std::move(fd)};
  }
  auto temporary = temporary_name(path);
  unique_fd fd{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (!fd) return os_error("write", path, errno);
  return NewFile{path, std::move(temporary), std::move(fd)};
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_{std::move(other.path_)},
      temporary_{std::exchange(other.temporary_, {})},
      fd_{std::move(other.fd_)} {}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<> NewFile::write(Bytes data) {
  while (!data.empty()) {
    const auto written = ::write(fd_.get(), data.data(), data.size());
    if (written >= 0)
      data = data.subspan(static_cast<std::size_t>(written));
    else if (errno != EINTR)
      return os_error("write", path_, errno);
  }
  return {};
}

Result<> NewFile::commit() {
  if (::close(fd_.release()) != 0) return os_error("write", path_, errno);
  if (temporary_.empty()) return {};
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return os_error("write", path_, errno);
  temporary_.clear();
  return {};
}

}  // namespace outpost::rpc
