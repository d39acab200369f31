// Sampling and penalties on the host: vm-builtins.md, section 5. The order of the float operations
// is part of the result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "builtin/tables.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;

bool is(DLDataType t, int code, int bits) {
  return t.code == code && t.bits == bits && t.lanes == 1;
}

std::int64_t elements(const DLTensor& t) {
  std::int64_t n = 1;
  for (int i = 0; i < t.ndim; ++i) n *= t.shape[i];
  return n;
}

/// The elements of a tensor of any device.
template <class T>
std::vector<T> values_of(const Args& args, int i, int code) {
  const auto& t = args.tensor(i);
  if (!is(t.dtype, code, sizeof(T) * 8))
    args.fail("InternalError", fmt::format("argument {} must be {}{}", i,
                                           code == kDLFloat ? "float" : "int", sizeof(T) * 8));
  const auto bytes = checked_bytes(t);
  std::vector<T> out(bytes / sizeof(T));
  if (!out.empty()) read_bytes(t, out.data(), bytes);
  return out;
}

/// The elements in place; only on the host.
template <class T>
T* in_place(const Args& args, int i, int code) {
  const auto& t = args.tensor(i);
  if (!is(t.dtype, code, sizeof(T) * 8))
    args.fail("InternalError", fmt::format("argument {} must be {}{}", i,
                                           code == kDLFloat ? "float" : "int", sizeof(T) * 8));
  checked_bytes(t);
  return static_cast<T*>(cpu_data(t, fmt::format("argument {}", i)));
}

/// One row of float32 with leading dimensions of 1.
std::vector<float> one_row(const Args& args) {
  const auto& t = args.tensor(0);
  for (int i = 0; i + 1 < t.ndim; ++i)
    if (t.shape[i] != 1)
      args.fail("InternalError",
                fmt::format("the leading dimensions must be 1, dimension {} is {}", i, t.shape[i]));
  auto row = values_of<float>(args, 0, kDLFloat);
  if (row.empty()) args.fail("InternalError", "there is nothing to sample from");
  return row;
}

using Ranked = std::vector<std::pair<float, int>>;

void sort_descending(Ranked& ranked) {
  // NaN compares false with everything, which no sort may be given.
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    if (std::isnan(a.first) || std::isnan(b.first))
      return !std::isnan(a.first) && std::isnan(b.first);
    return a.first > b.first;
  });
}

void sample_top_p_from_logits(const Args& args, Any* out) {
  args.need(4);
  const auto row = one_row(args);
  const auto temperature = static_cast<float>(args.real(1));
  const auto top_p = static_cast<float>(args.real(2));
  const auto u = static_cast<float>(args.real(3));
  Ranked ranked;
  for (std::size_t i = 0; i < row.size(); ++i) ranked.emplace_back(row[i], static_cast<int>(i));
  sort_descending(ranked);
  if (temperature < 1e-6F) return put(out, std::int64_t{ranked[0].second});
  const float max = ranked[0].first;
  float sum = 0;
  for (auto& [value, index] : ranked) {
    value = std::exp((value - max) * (1 / temperature));
    sum += value;
  }
  float running = 0;
  float top_p_sum = 0;
  for (auto& [value, index] : ranked) {
    value /= sum;
    if (running < top_p) top_p_sum += value;
    running += value;
    value = running;
  }
  for (const auto& [value, index] : ranked)
    if (u < value / top_p_sum) return put(out, std::int64_t{index});
  put(out, std::int64_t{ranked.back().second});
}

/// The sample among the sorted probabilities, or -1 when they do not reach top_p.
int pick(const Ranked& ranked, float top_p, float u) {
  if (ranked.empty()) return -1;
  if (u < ranked[0].first / top_p) return ranked[0].second;
  float sum = 0;
  float below = 0;  // of the elements up to the cut
  std::size_t cut = 0;
  while (cut < ranked.size() && below < top_p) below += ranked[cut++].first;
  if (below < top_p && top_p < 1) return -1;
  for (std::size_t i = 0; i < cut; ++i) {
    sum += ranked[i].first;
    if (u < sum / below) return ranked[i].second;
  }
  return ranked[cut - 1].second;
}

void sample_top_p_from_prob(const Args& args, Any* out) {
  args.need(3);
  const auto row = one_row(args);
  const auto top_p = static_cast<float>(args.real(1));
  const auto u = static_cast<float>(args.real(2));
  const auto above = [&row](float least) {
    Ranked ranked;
    for (std::size_t i = 0; i < row.size(); ++i)
      if (row[i] >= least) ranked.emplace_back(row[i], static_cast<int>(i));
    sort_descending(ranked);
    return ranked;
  };
  if (top_p < 1) {
    const int sample = pick(above(top_p / 1024), top_p, u);
    if (sample >= 0) return put(out, std::int64_t{sample});
  }
  const auto all = above(-std::numeric_limits<float>::infinity());
  if (all.empty())
    args.fail("InternalError", "the probabilities are all NaN, there is nothing to sample from");
  // All together may stay below top_p by rounding: the last element is in.
  float total = 0;
  for (const auto& [value, index] : all) total += value;
  const int sample =
      pick(all, std::min(top_p, std::max(total, std::numeric_limits<float>::min())), u);
  put(out, std::int64_t{sample >= 0 ? sample : all.back().second});
}

void multinomial_from_uniform(const Args& args, Any* out) {
  args.need(2);
  const auto& prob = args.tensor(0);
  const auto& u = args.tensor(1);
  if (prob.ndim != 2 || u.ndim != 2 || u.shape[0] != prob.shape[0] || u.shape[1] != 1)
    args.fail("InternalError", "needs probabilities [b, v] and numbers [b, 1]");
  const auto p = values_of<float>(args, 0, kDLFloat);
  const auto numbers = values_of<float>(args, 1, kDLFloat);
  const auto rows = prob.shape[0];
  const auto columns = prob.shape[1];
  if (columns == 0) args.fail("InternalError", "there is nothing to sample from");
  auto result = empty({rows, 1}, {kDLInt, 64, 1}, {kDLCPU, 0});
  auto* samples = static_cast<std::int64_t*>(result.data_ptr());
  for (std::int64_t i = 0; i < rows; ++i) {
    float sum = 0;
    samples[i] = columns - 1;
    for (std::int64_t k = 0; k < columns; ++k) {
      sum += p[static_cast<std::size_t>(i * columns + k)];
      if (sum > numbers[static_cast<std::size_t>(i)]) {
        samples[i] = k;
        break;
      }
    }
  }
  put(out, result);
}

std::size_t checked_id(const Args& args, std::int32_t id, std::int64_t size) {
  if (id < 0 || id >= size)
    args.fail("ValueError", fmt::format("token id {} out of range, there are {} logits", id, size));
  return static_cast<std::size_t>(id);
}

void apply_repetition_penalty(const Args& args, Any*) {
  args.need(3);
  auto* logits = in_place<float>(args, 0, kDLFloat);
  const auto size = elements(args.tensor(0));
  const auto penalty = static_cast<float>(args.real(2));
  const auto ids = values_of<std::int32_t>(args, 1, kDLInt);
  for (const auto id : ids) checked_id(args, id, size);
  for (const auto id : ids) {
    auto& x = logits[checked_id(args, id, size)];
    x = x <= 0 ? x * penalty : x / penalty;
  }
}

void apply_presence_and_frequency_penalty(const Args& args, Any*) {
  args.need(5);
  auto* logits = in_place<float>(args, 0, kDLFloat);
  const auto size = elements(args.tensor(0));
  const auto ids = values_of<std::int32_t>(args, 1, kDLInt);
  const auto counts = values_of<std::int32_t>(args, 2, kDLInt);
  const auto presence = static_cast<float>(args.real(3));
  const auto frequency = static_cast<float>(args.real(4));
  if (ids.size() != counts.size())
    args.fail("ValueError", fmt::format("{} token ids, but {} counts", ids.size(), counts.size()));
  for (const auto id : ids) checked_id(args, id, size);
  for (std::size_t i = 0; i < ids.size(); ++i)
    logits[checked_id(args, ids[i], size)] -= static_cast<float>(counts[i]) * frequency + presence;
}

void apply_softmax_with_temperature(const Args& args, Any*) {
  args.need(2);
  auto* logits = in_place<float>(args, 0, kDLFloat);
  const auto& t = args.tensor(0);
  const auto inverse = 1.0F / static_cast<float>(args.real(1));
  const auto n = t.ndim == 0 ? 1 : t.shape[t.ndim - 1];
  if (elements(t) == 0) return;
  float max = -std::numeric_limits<float>::infinity();
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = logits[i] * inverse;
    const float before = max;
    max = std::max(max, x);
    sum = sum * std::exp(before - max) + std::exp(x - max);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = logits[i] * inverse;
    logits[i] = static_cast<float>(std::exp(x - max) / sum);
  }
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.sample_top_p_from_logits(logits, temperature, top_p, u)",
            sample_top_p_from_logits>(),
    builtin<"vm.builtin.sample_top_p_from_prob(prob, top_p, u)", sample_top_p_from_prob>(),
    builtin<"vm.builtin.multinomial_from_uniform(prob, u)", multinomial_from_uniform>(),
    builtin<"vm.builtin.apply_repetition_penalty(logits, ids, penalty)",
            apply_repetition_penalty>(),
    builtin<"vm.builtin.apply_presence_and_frequency_penalty(logits, ids, counts, presence, "
            "frequency)",
            apply_presence_and_frequency_penalty>(),
    builtin<"vm.builtin.apply_softmax_with_temperature(logits, temperature)",
            apply_softmax_with_temperature>(),
};

}  // namespace

std::span<const Builtin> sampling_builtins() {
  return kTable;
}
}  // namespace outpost::vm
