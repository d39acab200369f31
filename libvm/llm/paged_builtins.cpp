// The paged attention cache as builtins: vm-llm-state.md, sections 1 to 7.
#include <fmt/format.h>
#include <tvm/ffi/string.h>

#include <algorithm>

#include "llm/paged_cache.h"
#include "llm/tables.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::Function;

constexpr std::int64_t kCountMax = std::int64_t{1} << 31;

std::int64_t bounded(const Args& args, std::int64_t value, const char* what) {
  if (value <= 0 || value >= kCountMax)
    args.fail("InternalError", fmt::format("{} is {}, expected a positive number", what, value));
  return value;
}

Function optional_function(const Args& args, int i) {
  return args[i].type_index == kTVMFFIFunction ? args.function(i) : Function{nullptr};
}

/// () for none, ("tirx", function).
Function kernel(const Args& args, int i) {
  const auto& items = args.array(i);
  if (items.size == 0) return Function{nullptr};
  const auto* values = static_cast<const Any*>(items.data);
  const auto kind = values[0].as<tvm::ffi::String>();
  if (!kind || *kind != "tirx" || items.size < 2)
    args.fail("InternalError",
              fmt::format("argument {}: only kernels of kind \"tirx\" are supported here", i));
  const auto f = values[1].as<Function>();
  if (!f) args.fail("TypeError", fmt::format("argument {}: the kernel is no function", i));
  return *f;
}

PagedCache::Options options_of(const Args& args) {
  PagedCache::Options o;
  const auto sizes = args.shape(0);
  const auto layers = args.shape(1);
  const auto kinds = args.shape(6);
  if (sizes.size() < 5 || sizes.size() > 6)
    args.fail("InternalError",
              fmt::format("argument 0 has {} sizes, expected 5 or 6", sizes.size()));
  if (layers.size() < 2) args.fail("InternalError", "argument 1 needs at least two boundaries");
  auto& b = o.books;
  b.sequences_max = bounded(args, sizes[0], "the number of sequences");
  const auto capacity = bounded(args, sizes[1], "the token capacity");
  b.chunk = bounded(args, sizes[2], "the prefill chunk");
  b.page_size = bounded(args, sizes[3], "the page size");
  b.sliding = sizes[4] != 0;
  b.layer_window = sizes.size() == 6 ? bounded(args, sizes[5], "the layer window") : 1024;
  o.layer_begin = layers[0];
  o.layer_end = layers[1];
  if (o.layer_begin < 0 || o.layer_end <= o.layer_begin ||
      o.layer_end > static_cast<std::int64_t>(kinds.size()))
    args.fail("InternalError",
              fmt::format("layers [{}, {}) of {} kinds", o.layer_begin, o.layer_end, kinds.size()));
  o.qo_heads = bounded(args, args.integer(2), "the number of query heads");
  o.kv_heads = bounded(args, args.integer(3), "the number of kv heads");
  o.qk_dim = bounded(args, args.integer(4), "the qk dimension");
  o.v_dim = bounded(args, args.integer(5), "the v dimension");
  for (auto i = o.layer_begin; i < o.layer_end; ++i) {
    const auto kind = kinds[static_cast<std::size_t>(i)];
    if (kind < 0 || kind > 3)
      args.fail("InternalError",
                fmt::format("layer {} has attention kind {}, 0 to 3 exist", i, kind));
    o.kinds.push_back(static_cast<AttentionKind>(kind));
    b.layer_sliding |= o.kinds.back() == AttentionKind::mha_sliding;
  }
  if (b.layer_sliding) b.sliding = false;
  const auto rope = args.integer(8);
  if (rope < 0 || rope > 2)
    args.fail("InternalError", fmt::format("RoPE mode {}, 0 to 2 exist", rope));
  o.rope = static_cast<RopeMode>(rope);
  if (b.sliding && o.rope != RopeMode::none) o.rope = RopeMode::inline_;
  b.inline_rope = o.rope == RopeMode::inline_;
  o.rope_scale = args.real(9);
  o.rope_theta = args.real(10);
  if (tensor_of(args[11]) != nullptr) {
    if (o.rope != RopeMode::normal)
      args.fail("InternalError", "RoPE extension factors go with the normal mode only");
    o.rope_factors = args.owned_tensor(11);
  }
  const auto& sample = args.tensor(12);
  o.dtype = sample.dtype;
  o.device = sample.device;
  b.pages = (capacity + b.page_size - 1) / b.page_size + 1 + (b.sliding ? 2 * b.sequences_max : 0);
  return o;
}

void create(const Args& args, Any* out) {
  args.need(28, 29);
  auto options = options_of(args);
  if (args.integer(7) != 0)
    args.fail("InternalError", "this runtime has no transfer of caches between machines");
  PagedCache::Kernels k;
  k.append_mha = optional_function(args, 13);
  k.append_mla = optional_function(args, 14);
  k.ragged = kernel(args, 15);
  k.prefill = kernel(args, 16);
  k.decode = kernel(args, 17);
  k.prefill_sliding = kernel(args, 18);
  k.decode_sliding = kernel(args, 19);
  k.tree_paged = kernel(args, 20);
  k.tree_ragged = kernel(args, 21);
  k.mla_prefill = kernel(args, 22);
  const auto& merge = args.array(23);
  for (std::int64_t i = 0; i < merge.size; ++i) {
    const auto f = static_cast<const Any*>(merge.data)[i].as<Function>();
    if (!f) args.fail("TypeError", "a merge kernel is no function");
    k.merge.push_back(*f);
  }
  if (k.merge.empty()) args.fail("InternalError", "at least one merge kernel is needed");
  k.split_rotary = args.function(24);
  k.copy_page = args.function(25);
  k.debug_get = args.function(26);
  k.compact = args.function(27);
  auto object = tvm::ffi::make_object<PagedAttentionKvCacheObj>();
  object->impl = std::make_unique<PagedCache>(std::move(options), std::move(k));
  put(out, tvm::ffi::ObjectRef{std::move(object)});
}

PagedCache& cache(const Args& args) {
  return static_cast<PagedCache&>(*state_of<PagedAttentionKvCacheObj>(args, 0).impl);
}
std::vector<std::int64_t> numbers(const Args& args, int i) {
  const auto shape = args.shape(i);
  return {shape.begin(), shape.end()};
}

void is_empty(const Args& args, Any* out) {
  args.need(1);
  put(out, cache(args).books().empty());
}
void available_pages(const Args& args, Any* out) {
  args.need(1);
  put(out, cache(args).books().available_pages());
}
void total_length(const Args& args, Any* out) {
  args.need(1);
  put(out, cache(args).books().total_length());
}
void sequence_length(const Args& args, Any* out) {
  args.need(2);
  put(out, cache(args).sequence_length(args.integer(1)));
}
void query_positions(const Args& args, Any* out) {
  args.need(1);
  put(out, cache(args).query_positions());
}
void enable_window(const Args& args, Any*) {
  args.need(4);
  cache(args).enable_window(args.integer(1), args.integer(2), args.integer(3));
}
void commit(const Args& args, Any*) {
  args.need(3);
  cache(args).commit(numbers(args, 1), numbers(args, 2));
}
void debug_get(const Args& args, Any*) {
  args.need(6);
  args.tensor(4);
  args.tensor(5);
  cache(args).debug_get(args.integer(1), args.integer(2), args.integer(3), args[4], args[5]);
}

/// A result that the caller reads afterwards: a copy of a view would be lost.
tvm::ffi::Tensor target(const Args& args, int i) {
  const auto t = args.view(i).as<tvm::ffi::Tensor>();
  if (!t) args.wrong_type(i, "ffi.Tensor");
  return *t;
}

void fused(const Args& args, Any*) {
  args.need(5);
  cache(args).fused_attention(args.integer(1), args.real(2), args.owned_tensor(3), target(args, 4));
}
void self_attention(const Args& args, Any*) {
  args.need(8);
  cache(args).self_attention(args.integer(1), args.real(2), args.owned_tensor(3),
                             args.owned_tensor(4), args.owned_tensor(5), target(args, 6),
                             target(args, 7));
}
void cross_attention(const Args& args, Any*) {
  args.need(6);
  cache(args).cross_attention(args.integer(1), args.real(2), args.owned_tensor(3), target(args, 4),
                              target(args, 5));
}
void shared_attention(const Args& args, Any*) {
  args.need(7);
  cache(args).shared_attention(args.integer(1), args.real(2), args.owned_tensor(3),
                               args.owned_tensor(4), args.owned_tensor(5), target(args, 6));
}
void append_mla(const Args& args, Any* out) {
  args.need(3);
  cache(args).append_mla(args.integer(1), args.owned_tensor(2));
  put(out, keep(args[0]));
}
void merge_inplace(const Args& args, Any* out) {
  args.need(5);
  cache(args).merge_inplace(target(args, 1), target(args, 2), args.owned_tensor(3),
                            args.owned_tensor(4));
  put(out, tvm::ffi::Array<Any>{keep(args[1]), keep(args[2])});
}

void layout_hash(const Args& args, Any* out) {
  args.need(1);
  put(out, tvm::ffi::String{cache(args).layout_hash()});
}
void metadata(const Args& args, Any* out) {
  args.need(2);
  put(out, tvm::ffi::String{cache(args).checkpoint_metadata(args.integer(1))});
}
void export_group(const Args& args, Any*) {
  args.need(4);
  cache(args).export_group(args.integer(1), args.integer(2), target(args, 3));
}
void prepare_import(const Args& args, Any*) {
  args.need(3);
  cache(args).prepare_import(args.integer(1), std::string{args.text(2)});
}
void import_group(const Args& args, Any*) {
  args.need(4);
  cache(args).import_group(args.integer(1), args.integer(2), args.owned_tensor(3));
}
void finish_import(const Args& args, Any*) {
  args.need(2);
  cache(args).finish_import(args.integer(1));
}

#define OUTPOST_CACHE(signature) "vm.builtin.attention_kv_cache_" signature
constexpr Builtin kTable[] = {
    builtin<"vm.builtin.paged_attention_kv_cache_create(sizes, ...)", create>(),
    builtin<OUTPOST_CACHE("empty(cache)"), is_empty>(),
    builtin<OUTPOST_CACHE("get_num_available_pages(cache)"), available_pages>(),
    builtin<OUTPOST_CACHE("get_total_sequence_length(cache)"), total_length>(),
    builtin<OUTPOST_CACHE("get_sequence_length(cache, id)"), sequence_length>(),
    builtin<OUTPOST_CACHE("get_query_positions(cache)"), query_positions>(),
    builtin<OUTPOST_CACHE("enable_sliding_window_for_seq(cache, id, window, sink)"),
            enable_window>(),
    builtin<OUTPOST_CACHE("commit_accepted_token_tree_nodes(cache, ids, leaves)"), commit>(),
    builtin<OUTPOST_CACHE("debug_get_kv(cache, id, begin, end, k, v)"), debug_get>(),
    builtin<OUTPOST_CACHE("attention_with_fused_qkv(cache, layer, scale, qkv, output)"), fused>(),
    builtin<OUTPOST_CACHE("self_attention(cache, layer, scale, q, k, v, output, lse)"),
            self_attention>(),
    builtin<OUTPOST_CACHE("cross_attention(cache, layer, scale, q, output, lse)"),
            cross_attention>(),
    builtin<OUTPOST_CACHE("attention_with_shared_kv(cache, source, scale, q, k, v, output)"),
            shared_attention>(),
    builtin<OUTPOST_CACHE("append_mla_kv(cache, layer, kv)"), append_mla>(),
    builtin<OUTPOST_CACHE("merge_attn_output_inplace(cache, o1, lse1, o2, lse2)"), merge_inplace>(),
    builtin<OUTPOST_CACHE("get_layout_hash(cache)"), layout_hash>(),
    builtin<OUTPOST_CACHE("get_checkpoint_metadata(cache, id)"), metadata>(),
    builtin<OUTPOST_CACHE("export_page_group(cache, id, layer, target)"), export_group>(),
    builtin<OUTPOST_CACHE("prepare_import(cache, id, metadata)"), prepare_import>(),
    builtin<OUTPOST_CACHE("import_page_group(cache, id, layer, source)"), import_group>(),
    builtin<OUTPOST_CACHE("finish_import(cache, id)"), finish_import>(),
};
#undef OUTPOST_CACHE

}  // namespace

std::span<const Builtin> paged_builtins() {
  return kTable;
}
}  // namespace outpost::vm
