#include "exec/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace outpost::vm {
namespace {

constexpr std::size_t kCompared = 64;  // longer names and more of them are not worth the time
constexpr std::size_t kShown = 3;

/// Insertions, deletions and replacements between two short texts.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t k = 0; k < b.size(); ++k) {
      const auto replaced = diagonal + (a[i] == b[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& names) {
  if (names.empty()) return {};
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const auto n : names) {
    if (near.size() == kCompared) break;
    if (n.size() <= kCompared && name.size() <= kCompared) {
      const auto d = distance(name, n);
      if (d <= std::max<std::size_t>(1, name.size() / 2)) near.emplace_back(d, n);
    }
  }
  std::sort(near.begin(), near.end());
  std::string out;
  for (std::size_t i = 0; i < std::min(near.size(), kShown); ++i)
    out += fmt::format("{}'{}'", i == 0 ? "; did you mean " : " or ", near[i].second);
  if (!out.empty()) return out + "?";
  out = "; there are";
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    out += fmt::format("{}'{}'", i == 0 ? " " : ", ", names[i]);
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

}  // namespace outpost::vm
