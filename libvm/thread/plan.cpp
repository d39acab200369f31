#include "thread/plan.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace outpost::vm {
namespace {

int bounded(int workers) {
  return std::clamp(workers, 1, kWorkersMax);
}

/// Cores of the fastest (or slowest) kind; empty when all are alike and so no kind is meant.
std::vector<int> cores_of_kind(const std::vector<Core>& cores, ThreadMode mode) {
  if (cores.empty()) return {};
  const auto [slow, fast] =
      std::minmax_element(cores.begin(), cores.end(),
                          [](const Core& a, const Core& b) { return a.khz_max < b.khz_max; });
  if (slow->khz_max == fast->khz_max) return {};
  const long khz = mode == ThreadMode::big ? fast->khz_max : slow->khz_max;
  std::vector<int> out;
  for (const auto& core : cores)
    if (core.khz_max == khz) out.push_back(core.id);
  return out;
}

std::vector<std::vector<int>> one_each(const std::vector<int>& cores, int workers) {
  std::vector<std::vector<int>> out;
  for (int i = 0; i < workers; ++i)
    out.push_back({cores[static_cast<std::size_t>(i) % cores.size()]});
  return out;
}

}  // namespace

std::optional<int> leading_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value <= 0) return std::nullopt;
  return value;
}

ThreadPlan default_plan(const ThreadEnvironment& env, const std::vector<Core>& cores,
                        bool halve_cores) {
  const auto all = static_cast<int>(cores.size());
  ThreadPlan plan;
  plan.workers = bounded(env.workers.value_or(halve_cores ? all / 2 : all));
  if (!env.pin || cores.empty()) return plan;
  auto fastest_first = cores;
  std::stable_sort(fastest_first.begin(), fastest_first.end(),
                   [](const Core& a, const Core& b) { return a.khz_max > b.khz_max; });
  std::vector<int> ids;
  for (const auto& core : fastest_first) ids.push_back(core.id);
  plan.cores = one_each(ids, plan.workers);
  return plan;
}

ThreadPlan configured_plan(int mode, int threads, const std::vector<int>& listed,
                           const ThreadEnvironment& env, const std::vector<Core>& cores,
                           bool halve_cores) {
  const auto fallback = default_plan(env, cores, halve_cores);
  const int most =
      bounded(std::max({static_cast<int>(cores.size()), fallback.workers,
                        static_cast<int>(std::min<std::size_t>(listed.size(), kWorkersMax))}));
  std::vector<int> where;
  bool share = false;
  switch (mode) {
    case static_cast<int>(ThreadMode::big):
    case static_cast<int>(ThreadMode::little):
      where = cores_of_kind(cores, static_cast<ThreadMode>(mode));
      break;
    case static_cast<int>(ThreadMode::all_share):
      share = true;
      [[fallthrough]];
    case static_cast<int>(ThreadMode::one_core_each):
      where = listed;
      break;
    default:  // any other number means "all workers": the caller's number, not a closed set
      break;
  }
  if (where.empty() && threads <= 0) return fallback;
  ThreadPlan plan;
  plan.workers = std::min(threads > 0 ? threads : static_cast<int>(where.size()), most);
  if (where.empty()) return plan;
  plan.cores = share ? std::vector<std::vector<int>>(static_cast<std::size_t>(plan.workers), where)
                     : one_each(where, plan.workers);
  return plan;
}

int spin_rounds(const ThreadEnvironment& env, int workers, std::size_t cores) {
  // About 20 us: longer than the gap between two loops of one kernel, shorter than anyone notices.
  constexpr int kRounds = 1000;
  constexpr int kRoundsMax = 10'000'000;
  if (env.spin_rounds) return std::min(*env.spin_rounds, kRoundsMax);
  return static_cast<std::size_t>(workers) > cores ? 0 : kRounds;
}

}  // namespace outpost::vm
