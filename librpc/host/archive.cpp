#include "host/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/unique_fd.h"
#include "base/utf8.h"

namespace outpost::host {
namespace {

constexpr std::size_t kBlockBytes = 64 * 1024;

Error tar_error(Code code, std::string_view text) {
  return Error{code, fmt::format("Tar error:\n{}", text)};
}

/// The member's file name; empty for a folder entry, which is skipped.
Result<std::string> member_name(archive_entry* entry) {
  const char* raw = archive_entry_pathname(entry);
  std::string_view name = raw == nullptr ? std::string_view{} : raw;
  while (name.starts_with("./")) name.remove_prefix(2);
  if (archive_entry_filetype(entry) == AE_IFDIR && (name.empty() || name == "."))
    return std::string{};
  if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr ||
      archive_entry_symlink(entry) != nullptr)
    return tar_error(Code::denied, fmt::format("member '{}' is not a plain file", printable(name)));
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos)
    return tar_error(Code::denied, fmt::format("member '{}' would not lie in the archive's folder",
                                               printable(name)));
  return std::string{name};
}

Result<> write_member(archive* reader, int fd, std::string_view name, std::uint64_t& bytes_left) {
  std::vector<char> block(kBlockBytes);
  for (;;) {
    const auto n = archive_read_data(reader, block.data(), block.size());
    if (n == 0) return {};
    if (n < 0) return tar_error(Code::malformed, archive_error_string(reader));
    if (static_cast<std::uint64_t>(n) > bytes_left)
      return tar_error(Code::limit,
                       fmt::format("member '{}' unpacks to more than is allowed", printable(name)));
    bytes_left -= static_cast<std::uint64_t>(n);
    for (la_ssize_t at = 0; at < n;) {
      const auto done = ::write(fd, block.data() + at, static_cast<std::size_t>(n - at));
      if (done < 0)
        return tar_error(
            Code::io, fmt::format("cannot write '{}': {}", printable(name), std::strerror(errno)));
      at += done;
    }
  }
}

}  // namespace

Result<std::vector<std::string>> unpack_tar(const std::string& path, const std::string& folder,
                                            const ArchiveLimits& limits) {
  const std::unique_ptr<archive, int (*)(archive*)> reader{archive_read_new(), archive_read_free};
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_gzip(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), kBlockBytes) != ARCHIVE_OK)
    return tar_error(Code::malformed, archive_error_string(reader.get()));
  std::vector<std::string> out;
  auto bytes_left = limits.bytes_max;
  for (;;) {
    archive_entry* entry = nullptr;
    const auto status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) break;
    if (status != ARCHIVE_OK) return tar_error(Code::malformed, archive_error_string(reader.get()));
    OUTPOST_TRY(const auto name, member_name(entry));
    if (name.empty()) continue;
    if (out.size() == limits.members_max)
      return tar_error(Code::limit, fmt::format("more than {} members", limits.members_max));
    const auto target = folder + "/" + name;
    const unique_fd fd{
        ::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644)};
    if (!fd)
      return tar_error(Code::io, fmt::format("cannot write '{}': {}", name, std::strerror(errno)));
    OUTPOST_CHECK(write_member(reader.get(), fd.get(), name, bytes_left));
    out.push_back(target);
  }
  if (out.empty()) return tar_error(Code::malformed, "the archive has no members");
  return out;
}

}  // namespace outpost::host
