#include "host/functions.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "host/load_module.h"

namespace outpost::host {
namespace ffi = tvm::ffi;
namespace {

constexpr std::string_view kPrefix = "tvm.rpc.server.";

/// Errors leave a function as exceptions, since tvm-ffi calls it.
template <class T>
T unwrap(Result<T> result) {
  if (result.has_error()) TVM_FFI_THROW(RuntimeError) << result.error().text;
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

std::string_view view(const ffi::String& s) {
  return {s.data(), s.size()};
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) TVM_FFI_THROW(RuntimeError) << "cannot write the file: " << std::strerror(errno);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

ffi::Bytes read_all(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) TVM_FFI_THROW(RuntimeError) << "cannot read the file's size";
  std::string out(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    const auto n = ::read(fd, out.data() + at, out.size() - at);
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  out.resize(at);
  return ffi::Bytes(std::move(out));
}

ffi::Function workpath(const Folder& folder) {
  return ffi::Function::FromTyped([&folder](const ffi::String& name) -> ffi::String {
    return unwrap(folder.path_of(view(name)));
  });
}

// The forms with whole arguments, for callers inside the process; the session streams those of its
// client.
ffi::Function upload(const Folder& folder) {
  return ffi::Function::FromTyped([&folder](const ffi::String& name, const ffi::Bytes& bytes) {
    const auto fd = unwrap(folder.create_file(view(name)));
    write_all(fd.get(), {bytes.data(), bytes.size()});
  });
}

ffi::Function download(const Folder& folder) {
  return ffi::Function::FromTyped([&folder](const ffi::String& name) -> ffi::Bytes {
    return read_all(unwrap(folder.open_file(view(name))).get());
  });
}

ffi::Function remove_file(const Folder& folder) {
  return ffi::Function::FromTyped(
      [&folder](const ffi::String& name) { unwrap(folder.remove(view(name))); });
}

ffi::Function listdir(const Folder& folder) {
  return ffi::Function::FromTyped([&folder](const ffi::String& name) -> ffi::String {
    return fmt::format("{}", fmt::join(unwrap(folder.list(view(name))), ","));
  });
}

ffi::Function load(const Folder& folder, const LinkOptions& link) {
  return ffi::Function::FromTyped([&folder, &link](const ffi::String& name) -> ffi::Module {
    return unwrap(load_module(folder, view(name), link));
  });
}

ffi::Function download_linked(const Folder& folder, const LinkOptions& link) {
  return ffi::Function::FromTyped([&folder, &link](const ffi::String& name) -> ffi::Bytes {
    const auto library = unwrap(linked_library(folder, view(name), link));
    return read_all(unwrap(folder.open_file(library)).get());
  });
}

ffi::Function import_module() {
  return ffi::Function::FromTyped(
      [](const ffi::Module& parent, const ffi::Module& child) { parent->ImportModule(child); });
}

ffi::Function module_get_function() {
  return ffi::Function::FromTyped(
      [](const ffi::Module& module, const ffi::String& name, bool query_imports) {
        return module->GetFunction(name, query_imports);
      });
}

}  // namespace

std::optional<SessionFunctions::Found> SessionFunctions::find(std::string_view name) {
  if (name.starts_with(kPrefix)) {
    const auto own = name.substr(kPrefix.size());
    if (own == "ModuleGetFunction") return Found{module_get_function()};
    if (own == "upload") return Found{upload(folder_), Streamed::upload};
    if (own == "download") return Found{download(folder_), Streamed::download};
    if (own == "load_module") return Found{load(folder_, link_)};
    if (own == "remove") return Found{remove_file(folder_)};
    if (own == "listdir") return Found{listdir(folder_)};
    if (own == "workpath") return Found{workpath(folder_)};
    if (own == "ImportModule") return Found{import_module()};
    if (own == "download_linked_module")
      return Found{download_linked(folder_, link_), Streamed::download_linked_module};
    if (own == "GetCRTMaxPacketSize")
      return Found{ffi::Function::FromTyped(
          [n = static_cast<std::int64_t>(copy_bytes_max_)]() -> std::int64_t { return n; })};
  }
  if (auto global = ffi::Function::GetGlobal(name)) return Found{*std::move(global)};
  return std::nullopt;
}

}  // namespace outpost::host
