#pragma once
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace outpost::server {

/// Removes all below a folder, whatever depth, names and modes a session gave it; follows no link
/// out of it. The folder is the owner's alone then. Io: says what could not be removed.
Result<> empty_tree(const std::string& path);

/// The same, and the folder too. A missing one is fine.
Result<> remove_tree(const std::string& path);

/// The daemon's own folder below the operator's work folder; sessions get folders in it. It is
/// locked while the daemon lives, so that a later one can tell what a crash left behind.
class WorkRoot {
 public:
  /// Makes it, and removes those that dead daemons left; `stale` counts them.
  /// Io: not a folder, not writable, or on a file system that refuses to run code.
  static Result<WorkRoot> create(const std::string& work_dir, std::size_t& stale);
  WorkRoot(WorkRoot&&) noexcept = default;
  WorkRoot& operator=(WorkRoot&&) noexcept = default;
  ~WorkRoot();

  const std::string& path() const { return path_; }
  /// Removes the folders of all sessions, when no worker is left.
  void clear() const;

 private:
  WorkRoot(std::string path, unique_fd lock) : path_{std::move(path)}, lock_{std::move(lock)} {}
  std::string path_;
  unique_fd lock_;
};

/// The work folder when the operator names none: TMPDIR, else /tmp.
std::string default_work_dir();

}  // namespace outpost::server
