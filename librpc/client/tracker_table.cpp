// The table that users of trackers know (tracker-wire.md, What a client does).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include <outpost/rpc/tracker_client.h>

namespace outpost::client {
namespace {

constexpr std::size_t kKeyTitleWidth = 3;
constexpr std::string_view kServerPrefix = "server:";

/// Characters of UTF-8 text; what is no first byte of a character continues one.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(std::string_view text, std::size_t width) {
  const auto own = width_of(text);
  return std::string{text} + std::string(width > own ? width - own : 0, ' ');
}

}  // namespace

std::string text_summary(const TrackerSummary& summary) {
  auto servers = summary.servers;
  std::ranges::stable_sort(servers, {}, &TrackerServer::key);
  auto queues = summary.queues;
  std::ranges::sort(queues, {}, &TrackerQueue::key);

  const std::string server_dashes(30, '-');
  std::string out =
      fmt::format("Server List\n{0}\nserver-address           key\n{0}\n", server_dashes);
  std::map<std::string, std::uint64_t, std::less<>> totals;
  for (const auto& s : servers) {
    out += fmt::format("{}    {}\n", padded(fmt::format("{}:{}", s.host, s.port), 21), s.key);
    if (s.key.starts_with(kServerPrefix)) ++totals[s.key.substr(kServerPrefix.size())];
  }
  out += server_dashes + "\n\nQueue Status\n";

  std::size_t width = 0;
  for (const auto& q : queues) width = std::max(width, width_of(q.key));
  const auto title = padded("key", std::max(width, kKeyTitleWidth)) + "   total  free  pending";
  const std::string dashes(title.size() + 1, '-');
  out += fmt::format("{0}\n{1}\n{0}\n", dashes, title);
  for (const auto& q : queues) {
    const auto total = totals.contains(q.key) ? totals[q.key] : 0;
    if (total == 0 && q.pending == 0 && q.free == 0) continue;
    out +=
        fmt::format("{}   {:<5}  {:<4}  {:<7}\n", padded(q.key, width), total, q.free, q.pending);
  }
  return out + dashes + "\n";
}

}  // namespace outpost::client
