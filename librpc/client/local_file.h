#pragma once
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/unique_fd.h"

namespace outpost::rpc {

/// A regular file that is open for reading.
struct LocalFile {
  unique_fd fd;
  std::uint64_t bytes = 0;
};
/// Errors: not_found, denied, io; unsupported for a folder or a pipe. Each names the path.
Result<LocalFile> open_local(const std::string& path);

/// A file in the making: it takes its name only with commit(), and leaves nothing behind without.
/// A path that names a device or pipe, such as /dev/stdout, is written in place.
class NewFile {
 public:
  static Result<NewFile> create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Result<> write(Bytes data);
  /// Puts the whole file under its name.
  Result<> commit();

 private:
  NewFile(std::string path, std::string temporary, unique_fd fd)
      : path_{std::move(path)}, temporary_{std::move(temporary)}, fd_{std::move(fd)} {}
  std::string path_;
  std::string temporary_;  // empty: written in place, or committed
  unique_fd fd_;
};

}  // namespace outpost::rpc
