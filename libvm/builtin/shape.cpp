// Shapes and symbolic values: vm-builtins.md, section 1.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <vector>

#include "builtin/tables.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::Shape;

/// The symbolic values of a program: a rank-1 int64 tensor on the host. Indices come from the
/// executable, so each is checked.
class Heap {
 public:
  Heap(const Args& args, int position) : args_{&args} {
    if (args[position].type_index == kTVMFFINone) return;
    const auto& t = args.tensor(position);
    if (t.device.device_type != kDLCPU || t.ndim != 1 || t.dtype.code != kDLInt ||
        t.dtype.bits != 64 || t.dtype.lanes != 1)
      args.fail("ValueError", "the shape heap must be a rank-1 int64 tensor on the cpu");
    data_ = reinterpret_cast<std::int64_t*>(static_cast<char*>(t.data) + t.byte_offset);
    size_ = t.shape[0];
  }
  std::int64_t& at(std::int64_t index) const {
    if (index < 0 || index >= size_)
      args_->fail("ValueError",
                  fmt::format("shape heap index {} out of range, the heap has {}", index, size_));
    return data_[index];
  }

 private:
  const Args* args_;
  std::int64_t* data_ = nullptr;
  std::int64_t size_ = 0;
};

enum class Match : std::int64_t { equal = 0, store = 1, nothing = 2, same = 3 };
enum class Make : std::int64_t { value = 0, load = 1 };

[[noreturn]] void mismatch(const Args& args, const std::string& what, const char* to,
                           std::int64_t got, std::int64_t wanted) {
  raise("RuntimeError", fmt::format("{}match_cast error,  {} mismatch to {}. (got {}, expected {})",
                                    args.context(args.size() - 1), what, to, got, wanted));
}

/// Applies one (code, value) pair; `dim` is the dimension's index, or -1 for a prim value.
inline void match(const Args& args, const Heap& heap, std::int64_t code, std::int64_t value,
                  std::int64_t got, std::int64_t dim) {
  const auto what = [dim] { return dim < 0 ? "PrimExpr" : fmt::format("shape[{}]", dim); };
  switch (static_cast<Match>(code)) {
    case Match::equal:
      if (got != value) mismatch(args, what(), "specified constant", got, value);
      return;
    case Match::store:
      heap.at(value) = got;
      return;
    case Match::nothing:
      return;
    case Match::same:
      if (const auto wanted = heap.at(value); got != wanted)
        mismatch(args, what(), "a previous populated value", got, wanted);
      return;
  }
  args.fail("InternalError", fmt::format("unknown match code {}, 0 to 3 exist", code));
}

/// Number of (code, value) pairs that follow, believed only if they are all there.
std::int64_t pairs(const Args& args, int at, int after) {
  const auto n = args.integer(at);
  const auto left = args.size() - at - 1 - after;
  if (n < 0 || left < 0 || n != left / 2 || left % 2 != 0)
    args.fail("TypeError", fmt::format("{} dimensions need two values each, {} follow", n, left));
  return n;
}

void match_shape(const Args& args, Any*) {
  args.need(4, -1);
  const std::int64_t* dims = nullptr;
  std::int64_t ndim = 0;
  Shape converted;
  if (const auto* t = tensor_of(args[0])) {
    dims = t->shape;
    ndim = t->ndim;
  } else {
    if (args[0].type_index != kTVMFFIShape) converted = args.shape(0);
    const auto* s = args[0].type_index == kTVMFFIShape ? vm::shape_of(args[0]) : converted.get();
    dims = s->data;
    ndim = static_cast<std::int64_t>(s->size);
  }
  const Heap heap{args, 1};
  const auto n = pairs(args, 2, 1);
  if (args[args.size() - 1].type_index != kTVMFFINone) args.text(args.size() - 1);
  if (ndim != n)
    raise("RuntimeError",
          fmt::format("{}match_cast shape size mismatch. (got rank {}, expected {})",
                      args.context(args.size() - 1), ndim, n));
  for (int i = 0; i < n; ++i)
    match(args, heap, args.integer(3 + 2 * i), args.integer(4 + 2 * i), dims[i], i);
}

void match_prim_value(const Args& args, Any*) {
  args.need(5);
  args.tensor(1);
  match(args, Heap{args, 1}, args.integer(2), args.integer(3), args.integer(0), -1);
}

std::int64_t made(const Args& args, const Heap& heap, std::int64_t code, std::int64_t value) {
  switch (static_cast<Make>(code)) {
    case Make::value:
      return value;
    case Make::load:
      return heap.at(value);
  }
  args.fail("InternalError", fmt::format("unknown shape code {}, 0 and 1 exist", code));
}

void make_shape(const Args& args, Any* out) {
  args.need(2, -1);
  const Heap heap{args, 0};
  const auto n = pairs(args, 1, 0);
  std::int64_t* dims = nullptr;
  auto shape = tvm::ffi::detail::MakeEmptyShape(static_cast<std::size_t>(n), &dims);
  for (int i = 0; i < n; ++i)
    dims[i] = made(args, heap, args.integer(2 + 2 * i), args.integer(3 + 2 * i));
  put(out, tvm::ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<Shape>(std::move(shape)));
}

void make_prim_value(const Args& args, Any* out) {
  args.need(3);
  args.tensor(0);
  put(out, made(args, Heap{args, 0}, args.integer(1), args.integer(2)));
}

void shape_of(const Args& args, Any* out) {
  args.need(1);
  const auto& t = args.tensor(0);
  put(out, Shape{t.shape, t.shape + t.ndim});
}

void tensor_to_shape(const Args& args, Any* out) {
  args.need(1);
  const auto& t = args.tensor(0);
  if (t.dtype.code != kDLInt || t.dtype.lanes != 1 || t.dtype.bits < 16 || t.ndim != 1)
    args.fail("InternalError", "needs a rank-1 tensor of int16, int32 or int64");
  const auto bytes = t.dtype.bits / 8U;
  const auto n = static_cast<std::size_t>(t.shape[0]);
  std::vector<char> raw(n * bytes);
  if (n != 0) read_bytes(t, raw.data(), raw.size());
  std::vector<std::int64_t> dims(n);
  for (std::size_t i = 0; i < n; ++i) {
    const char* at = raw.data() + i * bytes;
    std::int16_t i16 = 0;
    std::int32_t i32 = 0;
    if (bytes == 2) std::memcpy(&i16, at, 2);
    if (bytes == 4) std::memcpy(&i32, at, 4);
    if (bytes == 8) std::memcpy(&dims[i], at, 8);
    if (bytes != 8) dims[i] = bytes == 2 ? i16 : i32;
  }
  put(out, Shape{dims.begin(), dims.end()});
}

void reshape(const Args& args, Any* out) {
  args.need(2);
  args.tensor(0);
  const auto source = args.owned_tensor(0);
  put(out, view_of(source, args.shape(1), source.dtype()));
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.match_shape(value, heap, n, code, value, ..., context)", match_shape>(),
    builtin<"vm.builtin.match_prim_value(value, heap, code, value, context)", match_prim_value>(),
    builtin<"vm.builtin.make_shape(heap, n, code, value, ...)", make_shape>(),
    builtin<"vm.builtin.make_prim_value(heap, code, value)", make_prim_value>(),
    builtin<"vm.builtin.shape_of(tensor)", shape_of>(),
    builtin<"vm.builtin.tensor_to_shape(tensor)", tensor_to_shape>(),
    builtin<"vm.builtin.reshape(tensor, shape)", reshape>(),
};

}  // namespace

std::span<const Builtin> shape_builtins() {
  return kTable;
}
}  // namespace outpost::vm
