// The older single attention cache: vm-builtins.md, section 7.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "builtin/tables.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::ShapeView;
using tvm::ffi::Tensor;

class AttentionCacheObj : public tvm::ffi::Object {
 public:
  Tensor data;
  std::int64_t fill = 0;
  std::int64_t window = 0;  ///< where the next window override writes
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relax.vm.AttentionKVCacheLegacy", AttentionCacheObj,
                                    tvm::ffi::Object);
};

class AttentionCache : public tvm::ffi::ObjectRef {
 public:
  explicit AttentionCache(Tensor data) : ObjectRef{tvm::ffi::make_object<AttentionCacheObj>()} {
    static_cast<AttentionCacheObj*>(data_.get())->data = std::move(data);
  }
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(AttentionCache, tvm::ffi::ObjectRef,
                                             AttentionCacheObj);
};

AttentionCacheObj& cache_of(const Args& args, const TVMFFIAny& value) {
  static const std::int32_t index = AttentionCacheObj::RuntimeTypeIndex();
  if (value.type_index != index)
    args.fail("TypeError", "needs a relax.vm.AttentionKVCacheLegacy, not " + type_key(value));
  return *reinterpret_cast<AttentionCacheObj*>(value.v_obj);
}

std::uint64_t row_bytes(const Tensor& t) {
  const auto shape = t.shape();
  return checked_bytes({shape.data() + 1, shape.size() - 1}, t.dtype());
}

/// Copies `rows` rows of `from`, starting at row `first`, to row `at` of `to`.
void copy_rows(const DLTensor& from, std::int64_t first, const Tensor& to, std::int64_t at,
               std::int64_t rows) {
  if (rows == 0) return;
  const auto bytes = row_bytes(to);
  auto part = from;
  std::vector<std::int64_t> shape(from.shape, from.shape + from.ndim);
  shape[0] = rows;
  part.shape = shape.data();
  part.strides = nullptr;
  part.byte_offset += static_cast<std::uint64_t>(first) * bytes;
  auto target = *to.GetDLTensorPtr();
  target.shape = shape.data();
  target.strides = nullptr;
  target.byte_offset += static_cast<std::uint64_t>(at) * bytes;
  copy_tensor(part, target);
}

/// A value for this cache: same element type and trailing dimensions.
const DLTensor& value_of(const Args& args, const AttentionCacheObj& cache, int i) {
  const auto& t = args.tensor(i);
  const auto& have = *cache.data.GetDLTensorPtr();
  if (t.dtype.code != have.dtype.code || t.dtype.bits != have.dtype.bits ||
      t.dtype.lanes != have.dtype.lanes)
    args.fail("InternalError", "the value's dtype is not the cache's");
  if (t.ndim != have.ndim)
    args.fail("InternalError",
              fmt::format("the value has {} dimensions, the cache {}", t.ndim, have.ndim));
  for (int k = 1; k < t.ndim; ++k)
    if (t.shape[k] != have.shape[k])
      args.fail("InternalError", fmt::format("dimension {} of the value is {}, of the cache {}", k,
                                             t.shape[k], have.shape[k]));
  if (!tvm::ffi::IsContiguous(t)) args.fail("InternalError", "the value must be compact");
  return t;
}

void append_rows(AttentionCacheObj& cache, const DLTensor& value) {
  const auto rows = value.shape[0];
  auto capacity = cache.data.shape()[0];
  if (rows > capacity - cache.fill) {
    capacity = std::max<std::int64_t>(capacity, 1);
    while (rows > capacity - cache.fill) capacity *= 2;
    std::vector<std::int64_t> shape(cache.data.shape().begin(), cache.data.shape().end());
    shape[0] = capacity;
    auto larger = empty({shape.data(), shape.size()}, cache.data.dtype(), cache.data.device());
    copy_rows(*cache.data.GetDLTensorPtr(), 0, larger, 0, cache.fill);
    cache.data = std::move(larger);
  }
  copy_rows(value, 0, cache.data, cache.fill, rows);
  cache.fill += rows;
}

void create(const Args& args, Any* out) {
  args.need(3);
  const auto& init = args.tensor(0);
  const auto reserve = args.shape(1);
  const auto fill = args.integer(2);
  if (reserve.size() == 0) args.fail("InternalError", "the reserve shape has no dimensions");
  AttentionCache made{empty(reserve, init.dtype, init.device)};
  auto& cache = *const_cast<AttentionCacheObj*>(made.get());
  append_rows(cache, value_of(args, cache, 0));
  if (fill >= 0) {
    if (fill > cache.data.shape()[0])
      args.fail("InternalError",
                fmt::format("fill count {} exceeds the buffer of {}", fill, cache.data.shape()[0]));
    cache.fill = fill;
    cache.window = fill;
  }
  put(out, std::move(made));
}

void append(const Args& args, Any* out) {
  args.need(2);
  auto& cache = cache_of(args, args[0]);
  append_rows(cache, value_of(args, cache, 1));
  put(out, keep(args[0]));
}

void update(const Args& args, Any* out) {
  args.need(2);
  auto& cache = cache_of(args, args[0]);
  const auto& value = value_of(args, cache, 1);
  if (value.shape[0] != cache.fill)
    args.fail("InternalError", fmt::format("the value has {} rows, the cache is filled to {}",
                                           value.shape[0], cache.fill));
  copy_rows(value, 0, cache.data, 0, cache.fill);
  put(out, keep(args[0]));
}

void view(const Args& args, Any* out) {
  args.need(1, 2);
  const auto& cache = cache_of(args, args[0]);
  std::vector<std::int64_t> shape(cache.data.shape().begin(), cache.data.shape().end());
  shape[0] = cache.fill;
  if (args.size() == 2) {
    const auto asked = args.shape(1);
    if (asked.size() == 0 || asked[0] != cache.fill)
      args.fail(
          "InternalError",
          fmt::format("the shape asked for does not start with the fill count {}", cache.fill));
    shape.assign(asked.begin(), asked.end());
  }
  put(out, view_of(cache.data, {shape.data(), shape.size()}, cache.data.dtype()));
}

void array_popn(const Args& args, Any*) {
  args.need(2);
  const auto& caches = args.array(0);
  const auto n = args.integer(1);
  const auto* items = static_cast<const TVMFFIAny*>(caches.data);
  for (std::int64_t i = 0; i < caches.size; ++i)
    if (const auto fill = cache_of(args, items[i]).fill; n < 0 || n > fill)
      args.fail("InternalError", fmt::format("cannot take {} rows of {}", n, fill));
  for (std::int64_t i = 0; i < caches.size; ++i) cache_of(args, items[i]).fill -= n;
}

void array_clear(const Args& args, Any*) {
  args.need(1);
  const auto& caches = args.array(0);
  for (std::int64_t i = 0; i < caches.size; ++i)
    cache_of(args, static_cast<const TVMFFIAny*>(caches.data)[i]).fill = 0;
}

/// Writes at the window position and wraps to `sinks` when `max` rows are reached.
void override_window(const Args& args, std::int64_t sinks) {
  auto& cache = cache_of(args, args[0]);
  const auto& value = value_of(args, cache, 1);
  const auto max = args.integer(2);
  const auto rows = value.shape[0];
  if (max < 0 || max > cache.data.shape()[0] || sinks < 0 || sinks > max || rows > max - sinks)
    args.fail("InternalError",
              fmt::format("{} rows do not fit a window of {} with {} sinks in a buffer of {}", rows,
                          max, sinks, cache.data.shape()[0]));
  const auto first = std::min(rows, std::max<std::int64_t>(max - cache.window, 0));
  copy_rows(value, 0, cache.data, cache.window, first);
  cache.fill = std::min(cache.fill + rows, max);
  cache.window += first;
  if (first == rows) return;
  copy_rows(value, first, cache.data, sinks, rows - first);
  cache.window = sinks + rows - first;
}

void window_override(const Args& args, Any* out) {
  args.need(3);
  override_window(args, 0);
  put(out, keep(args[0]));
}

void window_override_with_sinks(const Args& args, Any* out) {
  args.need(4);
  override_window(args, args.integer(3));
  put(out, keep(args[0]));
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.attention_kv_cache_create(init, reserve, fill)", create>(),
    builtin<"vm.builtin.attention_kv_cache_append(cache, value)", append>(),
    builtin<"vm.builtin.attention_kv_cache_update(cache, value)", update>(),
    builtin<"vm.builtin.attention_kv_cache_view(cache[, shape])", view>(),
    builtin<"vm.builtin.attention_kv_cache_array_popn(caches, n)", array_popn>(),
    builtin<"vm.builtin.attention_kv_cache_array_clear(caches)", array_clear>(),
    builtin<"vm.builtin.attention_kv_cache_window_override(cache, value, max)", window_override>(),
    builtin<"vm.builtin.attention_kv_cache_window_override_with_sinks(cache, value, max, sinks)",
            window_override_with_sinks>(),
};

}  // namespace

std::span<const Builtin> attention_legacy_builtins() {
  return kTable;
}
}  // namespace outpost::vm
