#pragma once
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"

namespace outpost::vm {

/// A file's bytes without a copy of them. Nobody may shorten the file meanwhile.
class MappedFile {
 public:
  /// Errors: not there, not readable, no regular file.
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  Bytes bytes() const { return {static_cast<const std::byte*>(data_), bytes_}; }

 private:
  MappedFile(void* data, std::size_t bytes) : data_{data}, bytes_{bytes} {}
  void* data_;
  std::size_t bytes_;
};

}  // namespace outpost::vm
