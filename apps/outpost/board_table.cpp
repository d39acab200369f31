#include "outpost/board_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace outpost::app {
namespace {

constexpr std::size_t kAddressWidth = 21;

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

/// Also true of a proxy that names the key among those behind it.
bool has_server(const client::TrackerSummary& summary, const std::string& key) {
  return std::ranges::any_of(summary.servers, [&](const auto& s) {
    return s.key == "server:" + key ||
           (s.key.starts_with("server:proxy[") && s.key.find(key) != std::string::npos);
  });
}

}  // namespace

std::string board_table(const client::TrackerSummary& summary) {
  std::string out;
  if (!summary.boards.empty()) {
    std::size_t key_width = 3;
    for (const auto& b : summary.boards) key_width = std::max(key_width, printable(b.key).size());
    out += fmt::format("\nBoards\n{:{}}  {:{}}  {:8}{:8}{}\n", "address", kAddressWidth, "key",
                       key_width, "state", "since", "holder");
    for (const auto& b : summary.boards)
      out += fmt::format("{:{}}  {:{}}  {:8}{:8}{}\n", b.host + ":" + b.port, kAddressWidth,
                         printable(b.key), key_width, b.state, duration(b.state_seconds),
                         b.holder.empty() ? "-" : b.holder);
  }
  for (const auto& q : summary.queues)
    if (q.pending > 0 && !has_server(summary, q.key))
      out += fmt::format("\nno board has the key '{}', {} waiting: is it spelt right?\n",
                         printable(q.key), q.pending);
  return out;
}

}  // namespace outpost::app
