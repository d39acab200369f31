// The file functions of a session.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "client/link.h"
#include "client/local_file.h"

namespace outpost::client {
namespace {

using detail::Access;
using detail::Link;

constexpr const char* kUpload = "tvm.rpc.server.upload";
constexpr const char* kDownload = "tvm.rpc.server.download";
constexpr const char* kLinked = "tvm.rpc.server.download_linked_module";

template <class T>
T checked(Result<T> result) {
  if (result.has_error()) detail::throw_error(std::move(result).error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

Value call_kept(const Session& session, const std::string& function, std::string_view path) {
  auto& link = Access::link(session);
  return link.call(link.kept_global(function), std::vector{rpc::arg::string(path)});
}

std::vector<std::byte> fetch(const Session& session, const char* function, std::string_view path,
                             const TransferOptions& options) {
  auto& link = Access::link(session);
  detail::Guard guard;
  detail::Destination to;
  to.progress = guard.keep(options.progress);
  auto value = link.call_into(link.kept_global(function), std::vector{rpc::arg::string(path)}, to);
  guard.rethrow();
  return std::get<Value::Blob>(std::move(value).take());
}

void fetch_file(const Session& session, const char* function, std::string_view path,
                const std::string& local_path, const TransferOptions& options) {
  auto& link = Access::link(session);
  auto file = checked(rpc::NewFile::create(local_path));
  detail::Guard guard;
  detail::Destination to;
  to.progress = guard.keep(options.progress);
  to.sink = [&](Bytes piece) { return file.write(piece); };
  link.call_into(link.kept_global(function), std::vector{rpc::arg::string(path)}, to);
  guard.rethrow();
  checked(file.commit());
}

}  // namespace

void Session::upload(std::span<const std::byte> data, std::string_view target,
                     const TransferOptions& options) const {
  auto& link = Access::link(*this);
  detail::Guard guard;
  detail::Source from;
  from.memory = data;
  from.bytes = data.size();
  from.progress = guard.keep(options.progress);
  link.call_from(link.kept_global(kUpload), std::vector{rpc::arg::string(target)}, from);
  guard.rethrow();
}

void Session::upload_file(const std::string& path, std::string_view target,
                          const TransferOptions& options) const {
  auto& link = Access::link(*this);
  const auto file = checked(rpc::open_local(path));
  const std::string own_name = std::filesystem::path{path}.filename().string();
  detail::Guard guard;
  detail::Source from;
  from.file = file.fd.get();
  from.bytes = file.bytes;
  from.progress = guard.keep(options.progress);
  link.call_from(link.kept_global(kUpload),
                 std::vector{rpc::arg::string(target.empty() ? own_name : target)}, from);
  guard.rethrow();
}

std::vector<std::byte> Session::download(std::string_view path,
                                         const TransferOptions& options) const {
  return fetch(*this, kDownload, path, options);
}

std::size_t Session::download(std::string_view path, std::span<std::byte> into,
                              const TransferOptions& options) const {
  auto& link = Access::link(*this);
  std::uint64_t size = 0;
  detail::Guard guard;
  detail::Destination to;
  to.progress = guard.keep(options.progress);
  to.memory = [&](std::uint64_t bytes) -> Result<std::span<std::byte>> {
    size = bytes;
    if (bytes > into.size())
      return Error{outpost::Code::limit, fmt::format("'{}' has {} bytes, there is room for {}",
                                                     path, bytes, into.size())};
    return into.first(static_cast<std::size_t>(bytes));
  };
  link.call_into(link.kept_global(kDownload), std::vector{rpc::arg::string(path)}, to);
  guard.rethrow();
  return static_cast<std::size_t>(size);
}

void Session::download_to(std::string_view path, const ByteSink& sink,
                          const TransferOptions& options) const {
  auto& link = Access::link(*this);
  detail::Guard guard;
  detail::Guard sink_guard;
  detail::Destination to;
  to.progress = guard.keep(options.progress);
  const auto take = sink_guard.keep(sink);
  to.sink = [&](Bytes piece) -> Result<> {
    take(piece);
    return {};
  };
  link.call_into(link.kept_global(kDownload), std::vector{rpc::arg::string(path)}, to);
  sink_guard.rethrow();
  guard.rethrow();
}

void Session::download_file(std::string_view path, const std::string& local_path,
                            const TransferOptions& options) const {
  fetch_file(*this, kDownload, path, local_path, options);
}

std::vector<std::byte> Session::download_linked_module(std::string_view path,
                                                       const TransferOptions& options) const {
  return fetch(*this, kLinked, path, options);
}

void Session::download_linked_module_file(std::string_view path, const std::string& local_path,
                                          const TransferOptions& options) const {
  fetch_file(*this, kLinked, path, local_path, options);
}

void Session::remove(std::string_view path) const {
  (void)call_kept(*this, "tvm.rpc.server.remove", path);
}

std::vector<std::string> Session::listdir(std::string_view path) const {
  const auto listed = call_kept(*this, "tvm.rpc.server.listdir", path);
  // The names come as one text, with a comma behind each.
  std::vector<std::string> out;
  std::string_view rest = listed.as_string();
  while (!rest.empty()) {
    const auto name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    if (!name.empty()) out.emplace_back(name);
  }
  return out;
}

Module Session::load_module(std::string_view path) const {
  return call_kept(*this, "tvm.rpc.server.load_module", path).as_module();
}

}  // namespace outpost::client
