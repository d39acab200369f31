#include <algorithm>
#include <numeric>

#include "common/options.h"

namespace outpost::app {
namespace {

/// Edit distance in single characters, a swap of two neighbours counting as one.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  auto least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto& name : names) {
    auto d = distance(word, name);
    // a cut word ("trac") or a longer one ("tracker-addr") is near, though many letters are off
    if (d >= least && (name.starts_with(word) || word.starts_with(name))) d = least - 1;
    if (d >= least) continue;
    least = d;
    best = name;
  }
  return best;
}

}  // namespace outpost::app
