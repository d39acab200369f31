#include "server/worker_config.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <string_view>

namespace outpost::server {
namespace {

/// One number of the configuration under its name, so that both directions share one table.
struct Field {
  std::string_view name;
  std::function<std::uint64_t(const WorkerConfig&)> get;
  std::function<void(WorkerConfig&, std::uint64_t)> set;
};

template <class Place>
Field field(std::string_view name, Place place) {
  return {name,
          [place](const WorkerConfig& c) {
            return static_cast<std::uint64_t>(place(const_cast<WorkerConfig&>(c)));
          },
          [place](WorkerConfig& c, std::uint64_t value) {
            auto& at = place(c);
            at = static_cast<std::remove_reference_t<decltype(at)>>(value);
          }};
}

const std::vector<Field>& fields() {
  using C = WorkerConfig;
  static const std::vector<Field> kFields{
      field(
          "mode", [](C & c) -> auto& { return c.mode; }),
      field(
          "keep-output", [](C & c) -> auto& { return c.keep_output; }),
      field(
          "open-files", [](C & c) -> auto& { return c.limits.open_files; }),
      field(
          "memory", [](C & c) -> auto& { return c.limits.memory_bytes; }),
      field(
          "address-space", [](C & c) -> auto& { return c.limits.address_space_bytes; }),
      field(
          "processes", [](C & c) -> auto& { return c.limits.processes; }),
      field(
          "file-bytes", [](C & c) -> auto& { return c.limits.file_bytes; }),
      field(
          "core-bytes", [](C & c) -> auto& { return c.limits.core_bytes; }),
      field(
          "frame-bytes", [](C & c) -> auto& { return c.session.limits.frame_bytes_max; }),
      field(
          "stream-bytes", [](C & c) -> auto& { return c.session.limits.stream_bytes_max; }),
      field(
          "handles", [](C & c) -> auto& { return c.session.limits.handles_max; }),
      field(
          "arguments", [](C & c) -> auto& { return c.session.limits.arguments_max; }),
      field(
          "ndim", [](C & c) -> auto& { return c.session.limits.ndim_max; }),
      field(
          "hops", [](C & c) -> auto& { return c.session.limits.hops_max; }),
      field(
          "copy-bytes", [](C & c) -> auto& { return c.session.copy_bytes_max; }),
      field(
          "unconfined", [](C & c) -> auto& { return c.session.unconfined_paths; }),
      Field{"spin-us",
            [](const C& c) { return static_cast<std::uint64_t>(c.session.spin.count()); },
            [](C& c, std::uint64_t v) {
              c.session.spin = std::chrono::microseconds{static_cast<std::int64_t>(v)};
            }},
      Field{"link-seconds",
            [](const C& c) { return static_cast<std::uint64_t>(c.session.link_timeout.count()); },
            [](C& c, std::uint64_t v) {
              c.session.link_timeout = std::chrono::seconds{static_cast<std::int64_t>(v)};
            }},
  };
  return kFields;
}

}  // namespace

std::vector<std::string> to_words(const WorkerConfig& config) {
  std::vector<std::string> words;
  for (const auto& f : fields()) words.push_back(fmt::format("{}={}", f.name, f.get(config)));
  words.push_back("root=" + config.root);
  for (const auto& library : config.libraries) words.push_back("library=" + library);
  return words;
}

Result<WorkerConfig> from_words(const std::vector<std::string>& words) {
  WorkerConfig config;
  for (const std::string_view word : words) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    const auto value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
    if (name == "root") {
      config.root = value;
      continue;
    }
    if (name == "library") {
      config.libraries.emplace_back(value);
      continue;
    }
    std::uint64_t number = 0;
    const auto* end = value.data() + value.size();
    const auto [stop, ec] = std::from_chars(value.data(), end, number);
    const auto& all = fields();
    const auto it = std::find_if(all.begin(), all.end(), [&](auto& f) { return f.name == name; });
    if (it == all.end() || value.empty() || ec != std::errc{} || stop != end)
      return Error{
          Code::malformed,
          fmt::format("rpc_worker is started by rpc_server, not by hand; bad word '{}'", word)};
    it->set(config, number);
  }
  return config;
}

}  // namespace outpost::server
