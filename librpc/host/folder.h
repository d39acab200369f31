#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace outpost::host {

/// The folder of one session. File names from the client stay inside it: no `..`, no way out
/// through a symbolic link; an absolute path is fine only when it lies in the folder. Errors:
/// denied (leaves the folder), not_found, io.
class Folder {
 public:
  /// @param path  absolute, existing
  /// @param unconfined  the peer's behaviour: any path, relative ones from the folder
  static Result<Folder> open(std::string path, bool unconfined);

  /// Absolute text of a client's name; the name itself need not exist.
  Result<std::string> path_of(std::string_view name) const;

  /// A regular file for reading.
  Result<unique_fd> open_file(std::string_view name) const;
  /// A new file of this name for writing. An older one keeps its bytes for those who have it open.
  Result<unique_fd> create_file(std::string_view name) const;
  /// Deletes a file, or a folder with what is in it. Missing is fine; "" (the folder itself) stays.
  Result<> remove(std::string_view name) const;
  /// Names in a folder, sorted, sub-folders with a slash behind.
  Result<std::vector<std::string>> list(std::string_view name) const;

 private:
  Folder(std::string path, unique_fd fd, bool unconfined)
      : path_{std::move(path)}, fd_{std::move(fd)}, unconfined_{unconfined} {}
  /// The name relative to the folder, after the checks that need no file system.
  Result<std::string> relative(std::string_view name) const;
  Result<unique_fd> open_inside(const std::string& name, int flags, unsigned mode) const;
  /// The opened parent folder and the last part of the name.
  struct Parent {
    unique_fd fd;
    std::string leaf;
  };
  Result<Parent> parent_of(const std::string& relative_name) const;

  std::string path_;
  unique_fd fd_;
  bool unconfined_;
};

}  // namespace outpost::host
