#include "host/load_module.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/utf8.h"
#include "host/archive.h"
#include "host/call.h"
#include "module/library.h"

namespace outpost::host {
namespace ffi = tvm::ffi;
namespace fs = std::filesystem;
namespace {

bool is_library(std::string_view extension) {
  return extension == ".so" || extension == ".dll" || extension == ".dylib" || extension == ".dso";
}

/// The extension, or what is wrong with the name.
Result<std::string> checked_extension(const Folder& folder, std::string_view name) {
  OUTPOST_TRY(const auto path, folder.path_of(name));
  if (auto file = folder.open_file(name); file.has_error()) {
    if (file.error().code != Code::not_found) return std::move(file).error();
    return Error{Code::not_found, fmt::format("cannot find file {}", printable(path, 4096))};
  }
  return fs::path{std::string{name}}.extension().string();
}

Result<> copy_file(int from, int to) {
  struct stat info {};
  if (::fstat(from, &info) != 0) return Error{Code::io, "cannot read the library's size"};
  for (off_t left = info.st_size; left > 0;) {
    const auto n = ::sendfile(to, from, nullptr, static_cast<std::size_t>(left));
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      return Error{errno == ENOSPC ? Code::limit : Code::io,
                   fmt::format("cannot copy the library for loading: {}", std::strerror(errno))};
    }
    left -= n;
  }
  return {};
}

/// Loads from a copy under a name of its own, which is deleted once the library is mapped: the
/// loader tells libraries apart by their file, and so never takes one for another.
Result<ffi::Module> load_copy(const Folder& folder, std::string_view name) {
  static std::uint64_t loads = 0;
  const auto stem = fs::path{std::string{name}}.filename().string();
  const auto copy_name =
      fmt::format(".load-{}-{}{}", loads++, stem, stem.ends_with(".so") ? "" : ".so");
  OUTPOST_TRY(const auto from, folder.open_file(name));
  OUTPOST_TRY(auto to, folder.create_file(copy_name));
  OUTPOST_CHECK(copy_file(from.get(), to.get()));
  to.reset();
  OUTPOST_TRY(const auto path, folder.path_of(copy_name));
  ffi::Optional<ffi::Module> module;
  auto loaded = guarded([&] { module = vm::load_library(path, name); });
  (void)::unlink(path.c_str());
  if (loaded.has_error()) return std::move(loaded).error();
  return *std::move(module);
}

Result<std::vector<std::string>> unpack(const Folder& folder, std::string_view name,
                                        const std::string& path) {
  const std::string_view stem = name.substr(0, name.size() - std::string_view{".tar"}.size());
  OUTPOST_CHECK(folder.remove(stem));
  OUTPOST_TRY(const auto target, folder.path_of(stem));
  std::error_code ec;
  if (!fs::create_directory(target, ec))
    return Error{Code::io, fmt::format("cannot make folder '{}' for the archive: {}",
                                       printable(stem), ec.message())};
  return unpack_tar(path, target);
}

}  // namespace

Result<std::string> linked_library(const Folder& folder, std::string_view name,
                                   const LinkOptions& options) {
  OUTPOST_TRY(const auto extension, checked_extension(folder, name));
  if (is_library(extension)) return std::string{name};
  if (extension != ".o" && extension != ".tar")
    return Error{Code::unsupported, fmt::format("Do not know how to link {}", printable(name))};
  OUTPOST_TRY(const auto path, folder.path_of(name));
  std::vector<std::string> inputs{path};
  if (extension == ".tar") {
    OUTPOST_TRY(inputs, unpack(folder, name, path));
  }
  const auto output = std::string{name} + ".so";
  OUTPOST_CHECK(folder.remove(output));
  OUTPOST_CHECK(link_library(inputs, path + ".so", options));
  return output;
}

Result<ffi::Module> load_module(const Folder& folder, std::string_view name,
                                const LinkOptions& options) {
  OUTPOST_TRY(const auto extension, checked_extension(folder, name));
  if (is_library(extension) || extension == ".o" || extension == ".tar") {
    OUTPOST_TRY(const auto library, linked_library(folder, name, options));
    return load_copy(folder, library);
  }
  const auto loader_name = "ffi.Module.load_from_file" + extension;
  const auto loader = ffi::Function::GetGlobal(loader_name);
  if (!loader)
    return Error{Code::unsupported,
                 fmt::format("Loader for `{}` files is not registered", printable(extension))};
  OUTPOST_TRY(const auto path, folder.path_of(name));
  ffi::Optional<ffi::Module> module;
  OUTPOST_CHECK(
      guarded([&] { module = (*loader)(path, extension.substr(1)).cast<ffi::Module>(); }));
  return *std::move(module);
}

}  // namespace outpost::host
