#include "module/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"

namespace outpost::vm {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const unique_fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat facts {};
  if (!fd || fstat(fd.get(), &facts) != 0)
    return Error{Code::io, std::string{"cannot open the file: "} + std::strerror(errno)};
  if (!S_ISREG(facts.st_mode)) return Error{Code::io, "not a regular file"};
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  if (bytes == 0) return MappedFile{nullptr, 0};
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED)
    return Error{Code::io, std::string{"cannot map the file: "} + std::strerror(errno)};
  return MappedFile{data, bytes};
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace outpost::vm
