#include "server/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace outpost::server {

Result<unique_fd> make_session_page() {
  unique_fd fd{::memfd_create("session", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!fd || ::ftruncate(fd.get(), SessionPage::kBytes) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Error{Code::io, std::string{"cannot make a session page: "} + std::strerror(errno)};
  return fd;
}

Result<MappedPage> MappedPage::map(int fd) {
  void* memory = ::mmap(nullptr, SessionPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return Error{Code::io, std::string{"cannot map a session page: "} + std::strerror(errno)};
  // a fresh memfd is all zero, which is what every member begins with
  return MappedPage{std::launder(static_cast<SessionPage*>(memory))};
}

MappedPage::~MappedPage() {
  if (page_ != nullptr) ::munmap(page_, SessionPage::kBytes);
}

}  // namespace outpost::server
