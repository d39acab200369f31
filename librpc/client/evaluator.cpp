#include <outpost/rpc/client.h>
#include <outpost/rpc/evaluator.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "client/link.h"

namespace outpost::client {
namespace {

using detail::Access;

Function make_evaluator(detail::Link& link, const rpc::Value& module, std::string_view name,
                        const EvaluatorOptions& o) {
  const auto make = link.kept_global("runtime.RPCTimeEvaluator");
  using rpc::arg::integer;
  return link
      .call(make, std::vector{module, rpc::arg::string(name), integer(o.device.type),
                              integer(o.device.id), integer(o.number), integer(o.repeat),
                              integer(o.min_repeat_ms), integer(o.limit_zero_time_iterations),
                              integer(o.cooldown_interval_ms), integer(o.repeats_to_cooldown),
                              integer(o.cache_flush_bytes), rpc::arg::string(o.preproc)})
      .as_function();
}

}  // namespace

TimeEvaluator Module::time_evaluator(std::string_view name, const EvaluatorOptions& options) const {
  const auto& held = Access::reference(*this);
  return Access::make_evaluator(
      make_evaluator(*held.link, rpc::arg::module(held.handle), name, options));
}

TimeEvaluator Session::time_evaluator(std::string_view name,
                                      const EvaluatorOptions& options) const {
  return Access::make_evaluator(
      make_evaluator(Access::link(*this), rpc::arg::none(), name, options));
}

TimingResult TimeEvaluator::measure(std::span<const Argument> args) const {
  const auto raw = function_.call(args);
  const auto& bytes = raw.as_bytes();
  if (bytes.size() % sizeof(double) != 0)
    throw TypeError{
        fmt::format("the evaluator answered with {} bytes, which are no doubles", bytes.size())};
  TimingResult out;
  out.seconds.resize(bytes.size() / sizeof(double));
  if (!bytes.empty()) std::memcpy(out.seconds.data(), bytes.data(), bytes.size());
  return out;
}

double TimingResult::mean() const {
  if (seconds.empty()) return 0;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

double TimingResult::median() const {
  if (seconds.empty()) return 0;
  auto sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const auto half = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double TimingResult::min() const {
  return seconds.empty() ? 0 : *std::min_element(seconds.begin(), seconds.end());
}

double TimingResult::max() const {
  return seconds.empty() ? 0 : *std::max_element(seconds.begin(), seconds.end());
}

double TimingResult::deviation() const {
  if (seconds.empty()) return 0;
  const double middle = mean();
  double sum = 0;
  for (const double s : seconds) sum += (s - middle) * (s - middle);
  return std::sqrt(sum / static_cast<double>(seconds.size()));
}

}  // namespace outpost::client
