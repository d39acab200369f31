// Sorting along one axis: vm-builtins.md, section 6.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "builtin/half.h"
#include "builtin/tables.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;

std::string text(DLDataType dtype) {
  const auto s = tvm::ffi::DLDataTypeToString(dtype);
  return {s.data(), s.size()};
}
bool equal(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/// A tensor seen as lines along one axis: element i of a line is at start + i * inner.
struct Lines {
  std::size_t outer = 1;
  std::size_t length = 1;
  std::size_t inner = 1;
  std::size_t count() const { return outer * inner; }
  std::size_t start(std::size_t line, std::size_t line_length) const {
    return line / inner * line_length * inner + line % inner;
  }
};

int axis_of(const Args& args, int i, const DLTensor& input) {
  const auto axis = args.integer(i);
  const auto from_front = axis < 0 ? axis + input.ndim : axis;
  if (from_front < 0 || from_front >= input.ndim)
    args.fail("InternalError",
              fmt::format("axis {} of an input with {} dimensions", axis, input.ndim));
  return static_cast<int>(from_front);
}

Lines lines_of(const DLTensor& t, int axis) {
  Lines lines;
  for (int i = 0; i < t.ndim; ++i) {
    const auto dim = static_cast<std::size_t>(t.shape[i]);
    (i < axis ? lines.outer : i == axis ? lines.length : lines.inner) *= dim;
  }
  return lines;
}

/// `output` has the input's shape, but `length` along the axis.
void check_shape(const Args& args, const DLTensor& input, const DLTensor& output, int axis,
                 std::size_t length, const char* what) {
  bool same = input.ndim == output.ndim;
  for (int i = 0; same && i < input.ndim; ++i)
    same = output.shape[i] == (i == axis ? static_cast<std::int64_t>(length) : input.shape[i]);
  if (!same)
    args.fail("ValueError", fmt::format("{} must have the input's shape with {} along axis {}",
                                        what, length, axis));
}

struct Half {
  std::uint16_t bits;
};
template <class T>
auto key_of(T value) {
  if constexpr (std::is_same_v<T, Half>)
    return half_to_float(value.bits);
  else
    return value;
}

/// NaN counts as the largest, so that the order is one whatever the input.
template <class K>
bool less(K a, K b) {
  if constexpr (std::is_floating_point_v<K>)
    return a < b || (std::isnan(b) && !std::isnan(a));
  else
    return a < b;
}

/// The order of one line after another: `emit(line, indices)` for each.
struct Sorter {
  const Args& args;
  const DLTensor& input;
  Lines lines;
  bool ascending;
  const std::int32_t* counts = nullptr;  ///< per line, how many elements to sort; null is all

  template <class T, class Emit>
  void run(const Emit& emit) const {
    using Key = decltype(key_of(T{}));
    const auto* data = static_cast<const T*>(cpu_data(input, "the input"));
    std::vector<std::pair<Key, std::size_t>> keys;
    std::vector<std::size_t> order(lines.length);
    for (std::size_t line = 0; line < lines.count(); ++line) {
      const auto* first = data + lines.start(line, lines.length);
      const auto sorted = sorted_count(line);
      keys.clear();
      for (std::size_t i = 0; i < sorted; ++i) keys.emplace_back(key_of(first[i * lines.inner]), i);
      std::stable_sort(keys.begin(), keys.end(), [up = ascending](const auto& a, const auto& b) {
        return up ? less(a.first, b.first) : less(b.first, a.first);
      });
      for (std::size_t i = 0; i < lines.length; ++i) order[i] = i < sorted ? keys[i].second : i;
      emit(line, order);
    }
  }
  std::size_t sorted_count(std::size_t line) const {
    if (counts == nullptr) return lines.length;
    return std::min(lines.length, static_cast<std::size_t>(std::max(counts[line], 0)));
  }

  template <class Emit>
  void operator()(const Emit& emit) const {
    const auto& t = input.dtype;
    const int bits = t.lanes == 1 ? t.bits : 0;
    if (t.code == kDLFloat && bits == 32) return run<float>(emit);
    if (t.code == kDLFloat && bits == 64) return run<double>(emit);
    if (t.code == kDLFloat && bits == 16) return run<Half>(emit);
    if (t.code == kDLInt && bits == 32) return run<std::int32_t>(emit);
    if (t.code == kDLInt && bits == 64) return run<std::int64_t>(emit);
    if (t.code == kDLInt && bits == 8) return run<std::int8_t>(emit);
    if (t.code == kDLUInt && bits == 8) return run<std::uint8_t>(emit);
    args.fail("InternalError", "Unsupported input dtype: " + text(t));
  }
};

template <class T>
void store(void* out, std::size_t at, std::size_t stride, const std::vector<std::size_t>& order,
           std::size_t count) {
  auto* data = static_cast<T*>(out) + at;
  for (std::size_t i = 0; i < count; ++i) data[i * stride] = static_cast<T>(order[i]);
}

/// Writes the first `count` indices of a line, in the output's own type.
class IndexOutput {
 public:
  IndexOutput(const Args& args, const DLTensor& out, const Lines& lines, std::size_t count)
      : lines_{lines}, count_{count}, data_{cpu_data(out, "the output of indices")} {
    const auto& t = out.dtype;
    if (t.code == kDLInt && t.bits == 32 && t.lanes == 1) store_ = store<std::int32_t>;
    if (t.code == kDLInt && t.bits == 64 && t.lanes == 1) store_ = store<std::int64_t>;
    if (t.code == kDLFloat && t.bits == 32 && t.lanes == 1) store_ = store<float>;
    if (t.code == kDLFloat && t.bits == 64 && t.lanes == 1) store_ = store<double>;
    if (store_ == nullptr) args.fail("InternalError", "Unsupported output dtype: " + text(t));
  }
  void write(std::size_t line, const std::vector<std::size_t>& order) const {
    store_(data_, lines_.start(line, count_), lines_.inner, order, count_);
  }

 private:
  Lines lines_;
  std::size_t count_;
  void* data_;
  void (*store_)(void*, std::size_t, std::size_t, const std::vector<std::size_t>&,
                 std::size_t) = nullptr;
};

/// Writes the first `count` elements of a line in their new order.
class ValueOutput {
 public:
  ValueOutput(const Args& args, const DLTensor& input, const DLTensor& out, const Lines& lines,
              std::size_t count)
      : lines_{lines},
        count_{count},
        width_{std::size_t{input.dtype.bits} / 8},
        from_{static_cast<const char*>(cpu_data(input, "the input"))},
        to_{static_cast<char*>(cpu_data(out, "the output of values"))} {
    if (!equal(input.dtype, out.dtype))
      args.fail("InternalError",
                fmt::format("the output is {}, the input {}", text(out.dtype), text(input.dtype)));
  }
  void write(std::size_t line, const std::vector<std::size_t>& order) const {
    const auto* from = from_ + lines_.start(line, lines_.length) * width_;
    auto* to = to_ + lines_.start(line, count_) * width_;
    for (std::size_t i = 0; i < count_; ++i)
      std::memcpy(to + i * lines_.inner * width_, from + order[i] * lines_.inner * width_, width_);
  }

 private:
  Lines lines_;
  std::size_t count_;
  std::size_t width_;
  const char* from_;
  char* to_;
};

/// Memory that is read and written must not be one: a line would be lost half way.
void check_apart(const Args& args, const DLTensor& input, const DLTensor& output) {
  if (input.data != nullptr && input.data == output.data && input.byte_offset == output.byte_offset)
    args.fail("ValueError", "the output must not be the input itself");
}

void sort(const Args& args, Any*) {
  args.need(4);
  const auto& input = args.tensor(0);
  const auto& output = args.tensor(1);
  const int axis = axis_of(args, 2, input);
  const auto lines = lines_of(input, axis);
  check_shape(args, input, output, axis, lines.length, "the output");
  check_apart(args, input, output);
  const Sorter sorter{args, input, lines, args.integer(3) != 0};
  const ValueOutput values{args, input, output, lines, lines.length};
  sorter([&](std::size_t line, const auto& order) { values.write(line, order); });
}

void argsort(const Args& args, Any*) {
  args.need(4);
  const auto& input = args.tensor(0);
  const auto& output = args.tensor(1);
  const int axis = axis_of(args, 2, input);
  const auto lines = lines_of(input, axis);
  check_shape(args, input, output, axis, lines.length, "the output");
  const Sorter sorter{args, input, lines, args.integer(3) != 0};
  const IndexOutput indices{args, output, lines, lines.length};
  sorter([&](std::size_t line, const auto& order) { indices.write(line, order); });
}

void topk(const Args& args, Any*) {
  args.need(6, 7);
  const auto kind = args.text(args.size() - 2);
  const bool values = kind == "both" || kind == "values";
  const bool indices = kind == "both" || kind == "indices";
  if (!values && !indices)
    args.fail("InternalError", fmt::format("Unsupported ret type: {}", kind));
  if (args.size() != (values && indices ? 7 : 6)) args.wrong_count(6, 7);
  const auto& input = args.tensor(0);
  const int at = args.size() - 4;  // of k
  const int axis = axis_of(args, at + 1, input);
  const auto lines = lines_of(input, axis);
  const auto k = args.integer(at);
  const auto count = k < 1 ? lines.length : std::min(lines.length, static_cast<std::size_t>(k));
  for (int i = 1; i < at; ++i) check_shape(args, input, args.tensor(i), axis, count, "an output");
  const Sorter sorter{args, input, lines, args.integer(at + 3) != 0};
  std::optional<ValueOutput> value_output;
  std::optional<IndexOutput> index_output;
  if (values) {
    check_apart(args, input, args.tensor(1));
    value_output.emplace(args, input, args.tensor(1), lines, count);
  }
  if (indices) index_output.emplace(args, args.tensor(at - 1), lines, count);
  sorter([&](std::size_t line, const auto& order) {
    if (value_output) value_output->write(line, order);
    if (index_output) index_output->write(line, order);
  });
}

void argsort_nms(const Args& args, Any*) {
  args.need(5);
  const auto& input = args.tensor(0);
  const auto& counts = args.tensor(1);
  const auto& output = args.tensor(2);
  const int axis = axis_of(args, 3, input);
  const auto lines = lines_of(input, axis);
  check_shape(args, input, output, axis, lines.length, "the output");
  if (!equal(counts.dtype, {kDLInt, 32, 1}) || checked_bytes(counts) != lines.count() * 4)
    args.fail("ValueError", fmt::format("the counts must be {} numbers of int32", lines.count()));
  Sorter sorter{args, input, lines, args.integer(4) != 0};
  sorter.counts = static_cast<const std::int32_t*>(cpu_data(counts, "the counts"));
  const IndexOutput indices{args, output, lines, lines.length};
  sorter([&](std::size_t line, const auto& order) { indices.write(line, order); });
}

constexpr Builtin kTable[] = {
    builtin<"tvm.contrib.sort.sort(input, output, axis, ascending)", sort>(),
    builtin<"tvm.contrib.sort.argsort(input, output, axis, ascending)", argsort>(),
    builtin<"tvm.contrib.sort.topk(input, [values,] [indices,] k, axis, returned, ascending)",
            topk>(),
    builtin<"tvm.contrib.sort.argsort_nms(input, counts, output, axis, ascending)", argsort_nms>(),
};

}  // namespace

std::span<const Builtin> sort_builtins() {
  return kTable;
}

}  // namespace outpost::vm
