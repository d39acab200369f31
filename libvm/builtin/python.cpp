// What the peer has only in Python: relax.run.* and debug_print (vm-builtins.md, section 6).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tvm/ffi/dtype.h>

#include <cstdio>
#include <cstring>

#include "builtin/half.h"
#include "builtin/tables.h"
#include "builtin/unique.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Tensor;

Tensor ints(const std::vector<std::int64_t>& values, tvm::ffi::ShapeView shape) {
  auto t = empty(shape, {kDLInt, 64, 1}, {kDLCPU, 0});
  if (!values.empty()) std::memcpy(t.data_ptr(), values.data(), values.size() * 8);
  return t;
}
Tensor ints(const std::vector<std::int64_t>& values) {
  return ints(values, {std::ssize(values)});
}

void shape_to_tensor(const Args& args, Any* out) {
  args.need(1);
  const auto shape = args.shape(0);
  put(out, ints({shape.begin(), shape.end()}));
}

void find_nonzero(const Args& args, Any* out) {
  args.need(1);
  const auto& t = args.tensor(0);
  const auto marks = nonzero(t);
  const auto rank = std::max(t.ndim, 1);
  std::vector<std::vector<std::int64_t>> places(static_cast<std::size_t>(rank));
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (!marks[i]) continue;
    auto rest = static_cast<std::int64_t>(i);
    for (int d = rank - 1; d >= 0; --d) {
      const auto dim = t.ndim == 0 ? 1 : t.shape[d];
      places[static_cast<std::size_t>(d)].push_back(rest % dim);
      rest /= dim;
    }
  }
  std::vector<std::int64_t> all;
  for (const auto& row : places) all.insert(all.end(), row.begin(), row.end());
  put(out, ints(all, {rank, std::ssize(places[0])}));
}

void find_unique(const Args& args, Any* out) {
  args.need(5, 6);
  const auto& t = args.tensor(0);
  const auto flag = [&args](int i) {
    return args[i].type_index != kTVMFFINone && args.integer(i) != 0;
  };
  std::optional<std::int64_t> axis;
  if (args.size() == 6 && args[5].type_index != kTVMFFINone) axis = args.integer(5);
  auto u = unique(t, flag(1), axis);
  if (!flag(2) && !flag(3) && !flag(4)) return put(out, u.values);
  Array<Any> all{u.values};
  if (flag(2)) all.push_back(ints(u.index));
  if (flag(3))
    all.push_back(axis ? ints(u.inverse)
                       : ints(u.inverse, {t.shape, static_cast<std::size_t>(t.ndim)}));
  if (flag(4)) all.push_back(ints(u.counts));
  put(out, all);
}

template <class T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::string element_text(DLDataType t, const char* at) {
  if (t.code == kDLBool) return *at != 0 ? "True" : "False";
  if (t.code == kDLFloat && t.bits == 64) return fmt::format("{:g}", load<double>(at));
  if (t.code == kDLFloat && t.bits == 32) return fmt::format("{:g}", load<float>(at));
  if (t.code == kDLFloat && t.bits == 16)
    return fmt::format("{:g}", half_to_float(load<std::uint16_t>(at)));
  const bool is_signed = t.code == kDLInt;
  if (is_signed || t.code == kDLUInt) switch (t.bits) {
      case 8:
        return is_signed ? fmt::format("{}", int{load<std::int8_t>(at)})
                         : fmt::format("{}", int{load<std::uint8_t>(at)});
      case 16:
        return is_signed ? fmt::format("{}", load<std::int16_t>(at))
                         : fmt::format("{}", load<std::uint16_t>(at));
      case 32:
        return is_signed ? fmt::format("{}", load<std::int32_t>(at))
                         : fmt::format("{}", load<std::uint32_t>(at));
      case 64:
        return is_signed ? fmt::format("{}", load<std::int64_t>(at))
                         : fmt::format("{}", load<std::uint64_t>(at));
      default:
        break;
    }
  return "?";
}

constexpr std::int64_t kElementsShown = 1000;

std::string tensor_text(const DLTensor& t) {
  const auto bytes = checked_bytes(t);
  const std::size_t element = t.dtype.bits / 8U * t.dtype.lanes;
  if (element == 0 || t.dtype.lanes != 1) return "...";
  std::vector<char> raw(bytes);
  if (bytes != 0) read_bytes(t, raw.data(), bytes);
  const auto count = static_cast<std::int64_t>(bytes / element);
  const auto closes = [&t](std::int64_t i) {  // dimensions that begin at element i
    int n = 0;
    std::int64_t size = 1;
    for (int d = t.ndim - 1; d >= 0; --d) {
      size *= t.shape[d];
      if (i % size != 0) break;
      ++n;
    }
    return n;
  };
  if (count == 0) return "[]";
  std::string out;
  for (std::int64_t i = 0; i < std::min(count, kElementsShown); ++i) {
    if (i != 0) out += std::string(static_cast<std::size_t>(closes(i)), ']') + " ";
    out += std::string(static_cast<std::size_t>(closes(i)), '[');
    out += element_text(t.dtype, raw.data() + static_cast<std::size_t>(i) * element);
  }
  if (count > kElementsShown) return out + " ...";
  return out + std::string(static_cast<std::size_t>(t.ndim), ']');
}

std::string value_text(const TVMFFIAny& v) {
  if (const auto* t = tensor_of(v)) return tensor_text(*t);
  if (const auto text = text_of(v)) return std::string{*text};
  if (const auto* s = vm::shape_of(v))
    return fmt::format("({})", fmt::join(s->data, s->data + s->size, ", "));
  switch (v.type_index) {
    case kTVMFFINone:
      return "None";
    case kTVMFFIInt:
      return fmt::format("{}", v.v_int64);
    case kTVMFFIBool:
      return v.v_int64 != 0 ? "True" : "False";
    case kTVMFFIFloat:
      return fmt::format("{}", v.v_float64);
    case kTVMFFIDataType:
      return tvm::ffi::DLDataTypeToString(v.v_dtype);
    default:
      return type_key(v);
  }
}

/// `format` with each {} replaced by the next value from `first` on; all values, separated by
/// blanks, when it is empty.
std::string formatted(const Args& args, int format, int first) {
  const auto text = format < args.size() ? args.text(format) : std::string_view{};
  std::string out;
  if (text.empty()) {
    for (int i = first; i < args.size(); ++i) out += (i == first ? "" : " ") + value_text(args[i]);
    return out;
  }
  int next = first;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 2) != "{}") {
      out += text[at];
      continue;
    }
    if (next >= args.size())
      args.fail("IndexError", fmt::format("the format '{}' needs more than {} values", text,
                                          args.size() - first));
    out += value_text(args[next++]);
    ++at;
  }
  return out;
}

void print(const Args& args, Any*) {
  args.need(1, -1);
  const auto text = formatted(args, 0, 1) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool condition(const Args& args) {
  const auto& x = args[0];
  if (x.type_index == kTVMFFIBool || x.type_index == kTVMFFIInt) return x.v_int64 != 0;
  const auto* t = tensor_of(x);
  if (t == nullptr)
    args.fail("ValueError", "the condition must be a bool, int or tensor, not " + type_key(x));
  const bool is_bool = t->dtype.code == kDLBool || (t->dtype.code == kDLUInt && t->dtype.bits == 1);
  if (t->ndim != 0 || !is_bool)
    args.fail("ValueError",
              fmt::format("the condition must be a bool scalar, not {} with {} dimensions",
                          std::string{tvm::ffi::DLDataTypeToString(t->dtype)}, t->ndim));
  std::uint8_t value = 0;
  read_bytes(*t, &value, 1);
  return value != 0;
}

void assert_op(const Args& args, Any*) {
  args.need(1, -1);
  if (condition(args)) return;
  auto text = formatted(args, 1, 2);
  raise("AssertionError", text.empty() ? "Assertion Failed" : std::move(text));
}

void debug_print(const Args& args, Any*) {
  args.need(2);
  const auto* t = tensor_of(args[1]);
  const auto text =
      t == nullptr
          ? fmt::format("{}: {}\n", args.text(0), value_text(args[1]))
          : fmt::format("{}: shape = ({}), dtype = {}, data =\n{}\n", args.text(0),
                        fmt::join(t->shape, t->shape + t->ndim, ", "),
                        std::string{tvm::ffi::DLDataTypeToString(t->dtype)}, tensor_text(*t));
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

constexpr Builtin kTable[] = {
    builtin<"relax.run.shape_to_tensor(shape)", shape_to_tensor>(),
    builtin<"relax.run.nonzero(tensor)", find_nonzero>(),
    builtin<"relax.run.unique(tensor, sorted, index, inverse, counts[, axis])", find_unique>(),
    builtin<"relax.run.print(format, values...)", print>(),
    builtin<"relax.run.assert_op(condition, format, values...)", assert_op>(),
    builtin<"vm.builtin.debug_print(line, tensor)", debug_print>(),
};

}  // namespace

std::span<const Builtin> python_builtins() {
  return kTable;
}
}  // namespace outpost::vm
