#include "builtin/unique.h"

#include <fmt/format.h>
#include <tvm/ffi/dtype.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "builtin/half.h"
#include "builtin/packed.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {

/// Elements as numbers that compare as they do: no conversion loses anything.
struct Half {
  std::uint16_t bits;
  float value() const { return half_to_float(bits); }
};

template <class T>
int compare(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool a_nan = std::isnan(a);
    const bool b_nan = std::isnan(b);
    if (a_nan || b_nan) return a_nan == b_nan ? 0 : (a_nan ? 1 : -1);
  }
  return a < b ? -1 : (b < a ? 1 : 0);
}
inline int compare(Half a, Half b) {
  return compare(a.value(), b.value());
}

/// Calls `f` with a value of the C++ type that holds an element of this type.
template <class F>
auto with_element(DLDataType t, F&& f) {
  if (t.lanes == 1) {
    switch (t.code * 256 + t.bits) {
      case kDLInt * 256 + 8:
        return f(std::int8_t{});
      case kDLInt * 256 + 16:
        return f(std::int16_t{});
      case kDLInt * 256 + 32:
        return f(std::int32_t{});
      case kDLInt * 256 + 64:
        return f(std::int64_t{});
      case kDLUInt * 256 + 8:
      case kDLBool * 256 + 8:
        return f(std::uint8_t{});
      case kDLUInt * 256 + 16:
        return f(std::uint16_t{});
      case kDLUInt * 256 + 32:
        return f(std::uint32_t{});
      case kDLUInt * 256 + 64:
        return f(std::uint64_t{});
      case kDLFloat * 256 + 16:
        return f(Half{});
      case kDLFloat * 256 + 32:
        return f(float{});
      case kDLFloat * 256 + 64:
        return f(double{});
      default:
        break;
    }
  }
  raise("TypeError",
        "elements of " + std::string{tvm::ffi::DLDataTypeToString(t)} + " cannot be compared here");
}

template <class T>
std::vector<T> elements(const DLTensor& t) {
  const auto bytes = checked_bytes(t);
  std::vector<T> out(bytes / sizeof(T));
  if (!out.empty()) read_bytes(t, out.data(), bytes);
  return out;
}

/// The tensor as `rows` slices of `width` elements each; `outer` and `inner` are the products of
/// the dimensions before and after the axis.
struct Layout {
  std::int64_t outer = 1;
  std::int64_t rows = 1;
  std::int64_t inner = 1;
  std::int64_t width() const { return outer * inner; }
  /// Place of element k of a row in a tensor with `n` rows.
  std::size_t at(std::int64_t row, std::int64_t k, std::int64_t n) const {
    return static_cast<std::size_t>((k / inner * n + row) * inner + k % inner);
  }
};

Layout layout_of(const DLTensor& t, std::optional<std::int64_t> axis) {
  Layout l;
  if (!axis) {
    for (int i = 0; i < t.ndim; ++i) l.rows *= t.shape[i];
    return l;
  }
  const auto a = *axis < 0 ? *axis + t.ndim : *axis;
  if (a < 0 || a >= t.ndim)
    raise("IndexError", fmt::format("axis {} of a tensor with {} dimensions", *axis, t.ndim));
  for (int i = 0; i < a; ++i) l.outer *= t.shape[i];
  l.rows = t.shape[a];
  for (auto i = a + 1; i < t.ndim; ++i) l.inner *= t.shape[i];
  return l;
}

/// Groups equal rows: `order` gives the first row of each group.
template <class Compare>
Unique grouped(std::int64_t rows, bool sorted, Compare compare_rows) {
  Unique u;
  std::vector<std::int64_t> by_value(static_cast<std::size_t>(rows));
  std::iota(by_value.begin(), by_value.end(), std::int64_t{0});
  std::stable_sort(by_value.begin(), by_value.end(),
                   [&](std::int64_t a, std::int64_t b) { return compare_rows(a, b) < 0; });
  u.inverse.resize(by_value.size());
  for (std::size_t i = 0; i < by_value.size(); ++i) {
    if (i == 0 || compare_rows(by_value[i - 1], by_value[i]) != 0) {
      u.index.push_back(by_value[i]);
      u.counts.push_back(0);
    }
    ++u.counts.back();
    u.inverse[static_cast<std::size_t>(by_value[i])] = std::ssize(u.index) - 1;
  }
  if (sorted) return u;
  std::vector<std::size_t> order(u.index.size());  // groups by first appearance
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&u](std::size_t a, std::size_t b) { return u.index[a] < u.index[b]; });
  Unique out;
  std::vector<std::int64_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    out.index.push_back(u.index[order[i]]);
    out.counts.push_back(u.counts[order[i]]);
    place[order[i]] = static_cast<std::int64_t>(i);
  }
  for (const auto group : u.inverse) out.inverse.push_back(place[static_cast<std::size_t>(group)]);
  return out;
}

template <class T>
Unique unique_of(const DLTensor& t, bool sorted, std::optional<std::int64_t> axis) {
  const auto data = elements<T>(t);
  const auto l = layout_of(t, axis);
  auto u = grouped(l.rows, sorted, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t k = 0; k < l.width(); ++k)
      if (const int c = compare(data[l.at(a, k, l.rows)], data[l.at(b, k, l.rows)]); c != 0)
        return c;
    return 0;
  });
  const auto n = std::ssize(u.index);
  std::vector<T> kept(static_cast<std::size_t>(n * l.width()));
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t k = 0; k < l.width(); ++k)
      kept[l.at(row, k, n)] = data[l.at(u.index[static_cast<std::size_t>(row)], k, l.rows)];
  std::vector<std::int64_t> shape{n};
  if (axis) {
    shape.assign(t.shape, t.shape + t.ndim);
    shape[static_cast<std::size_t>(*axis < 0 ? *axis + t.ndim : *axis)] = n;
  }
  u.values = empty({shape.data(), shape.size()}, t.dtype, {kDLCPU, 0});
  if (!kept.empty()) std::memcpy(u.values.data_ptr(), kept.data(), kept.size() * sizeof(T));
  return u;
}

}  // namespace

Unique unique(const DLTensor& tensor, bool sorted, std::optional<std::int64_t> axis) {
  return with_element(tensor.dtype, [&](auto element) {
    return unique_of<decltype(element)>(tensor, sorted, axis);
  });
}

std::vector<bool> nonzero(const DLTensor& tensor) {
  return with_element(tensor.dtype, [&](auto element) {
    std::vector<bool> out;
    for (const auto e : elements<decltype(element)>(tensor))
      out.push_back(compare(e, decltype(element){}) != 0);
    return out;
  });
}

}  // namespace outpost::vm
