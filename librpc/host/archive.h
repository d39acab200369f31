#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace outpost::host {

struct ArchiveLimits {
  std::uint64_t bytes_max = 4ULL << 30;  ///< all members unpacked
  std::uint32_t members_max = 1024;
};

/// Unpacks a tar archive (gzip or not) into an existing folder and returns the paths of its files.
/// Only plain files without folders in their names are taken; a member that is a link, a device or
/// would leave the folder is denied. Errors begin with "Tar error:".
Result<std::vector<std::string>> unpack_tar(const std::string& archive, const std::string& folder,
                                            const ArchiveLimits& limits = {});

}  // namespace outpost::host
