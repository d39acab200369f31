#include "llm/paged_cache.h"

#include <fmt/format.h>

#include <cstring>

#include "device/tensor.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;
using ffi::Tensor;

[[noreturn]] void refuse(std::string text) {
  raise("InternalError", std::move(text));
}

template <class... A>
void call(const ffi::Function& f, const char* name, A&&... args) {
  if (f == nullptr) refuse(fmt::format("the model's library has no {} kernel", name));
  f(std::forward<A>(args)...);
}

/// All index tables of a batch in one upload; each table is a view that starts at 16 bytes.
class Tables {
 public:
  struct Slot {
    std::size_t at;
    std::vector<std::int64_t> shape;
  };
  Slot add(const std::vector<std::int32_t>& values) { return add({&values}, 1); }
  /// Rows of equal length below each other.
  Slot add(std::initializer_list<const std::vector<std::int32_t>*> rows, int rank = 2) {
    words_.resize((words_.size() + 3) / 4 * 4);
    Slot slot{words_.size(), {}};
    if (rank == 2) slot.shape.push_back(static_cast<std::int64_t>(rows.size()));
    slot.shape.push_back(std::ssize(**rows.begin()));
    for (const auto* row : rows) words_.insert(words_.end(), row->begin(), row->end());
    return slot;
  }
  void upload(DLDevice device) {
    words_.resize(std::max<std::size_t>(words_.size(), 1));
    all_ = empty({std::ssize(words_)}, kInt, device);
    write_bytes(*all_.GetDLTensorPtr(), words_.data(), words_.size() * sizeof(std::int32_t));
  }
  Tensor view(const Slot& slot) const {
    return view_of(all_, {slot.shape.data(), slot.shape.size()}, kInt,
                   slot.at * sizeof(std::int32_t));
  }

 private:
  static constexpr DLDataType kInt{kDLInt, 32, 1};
  std::vector<std::int32_t> words_;
  Tensor all_;
};

}  // namespace

PagedCache::PagedCache(Options options, Kernels kernels)
    : options_{std::move(options)}, kernels_{std::move(kernels)}, books_{options_.books} {
  const auto& b = options_.books;
  for (const auto kind : options_.kinds) {
    std::vector<std::int64_t> shape{b.pages, 2, options_.kv_heads, b.page_size, options_.qk_dim};
    if (kind == AttentionKind::mla) shape = {b.pages, b.page_size, options_.qk_dim};
    if (kind == AttentionKind::linear) shape = {0};
    pages_.push_back(empty({shape.data(), shape.size()}, options_.dtype, options_.device));
  }
  const auto temporary = [this, &b](std::int64_t heads, std::int64_t dim) {
    return empty({b.chunk, heads, dim}, options_.dtype, options_.device);
  };
  q_ = temporary(options_.qo_heads, options_.qk_dim);
  k_ = temporary(options_.kv_heads, options_.qk_dim);
  v_ = temporary(options_.kv_heads, options_.v_dim);
  other_output_ = temporary(options_.qo_heads, options_.v_dim);
  const auto logs = [this, &b] {
    return empty({b.chunk, options_.qo_heads}, {kDLFloat, 32, 1}, options_.device);
  };
  lse_ = logs();
  other_lse_ = logs();
}

template <class F>
void PagedCache::change(F&& f) {
  require_no_import();
  auto before = books_;
  try {
    f();
  } catch (...) {
    books_ = std::move(before);
    throw;
  }
}

void PagedCache::require_no_import() const {
  if (importing_) refuse("a checkpoint is being imported; finish_import comes first");
}

void PagedCache::require_open() const {
  require_no_import();
  if (!batch_) refuse("no batch is open: call begin_forward first");
}

std::size_t PagedCache::layer_index(std::int64_t layer) const {
  if (layer < options_.layer_begin || layer >= options_.layer_end)
    refuse(fmt::format("layer {} is not among [{}, {})", layer, options_.layer_begin,
                       options_.layer_end));
  return static_cast<std::size_t>(layer - options_.layer_begin);
}

void PagedCache::clear() {
  books_.clear();
  batch_.reset();
  tensors_.reset();
  importing_.reset();
}

void PagedCache::add_sequence(Id id) {
  change([&] { books_.add(id); });
}

void PagedCache::remove_sequence(Id id) {
  change([&] { books_.remove(id); });
}

void PagedCache::copy_page(std::int32_t from, std::int32_t to, std::int64_t tokens) const {
  for (std::size_t i = 0; i < pages_.size(); ++i)
    if (options_.kinds[i] != AttentionKind::linear)
      call(kernels_.copy_page, "copy_single_page", pages_[i], std::int64_t{from}, std::int64_t{to},
           tokens);
}

void PagedCache::fork_sequence(Id parent, Id child, std::int64_t position) {
  change([&] {
    books_.fork(parent, child, position,
                [this](auto from, auto to, auto n) { copy_page(from, to, n); });
  });
}

void PagedCache::popn(Id id, std::int64_t n) {
  change([&] {
    books_.popn(id, n, [this](auto from, auto to, auto tokens) { copy_page(from, to, tokens); });
  });
}

void PagedCache::enable_window(Id id, std::int64_t window, std::int64_t sink) {
  change([&] { books_.enable_window(id, window, sink); });
}

void PagedCache::begin_forward(const std::vector<Id>& ids, const std::vector<std::int64_t>& lengths,
                               const std::optional<std::vector<std::int64_t>>& parents) {
  change([&] { batch_ = books_.begin(ids, lengths, parents); });
  tensors_.reset();
}

void PagedCache::end_forward() {}

std::int64_t PagedCache::sequence_length(Id id) const {
  require_no_import();
  return books_.length(id);
}

void PagedCache::commit(const std::vector<Id>& ids, const std::vector<std::int64_t>& leaves) {
  require_open();
  if (ids != batch_->ids) refuse("the sequences must be those of the current batch, in its order");
  const auto moves = books_.accepted(ids, leaves);
  if (!moves.from.empty()) {
    Tables tables;
    const auto indptr = tables.add(moves.indptr);
    const auto places = tables.add({&moves.from, &moves.to});
    tables.upload(options_.device);
    for (const auto& pages : pages_)
      call(kernels_.compact, "compact_copy", pages, tables.view(indptr), tables.view(places),
           std::ssize(ids));
  }
  change([&] { books_.commit(ids, leaves); });
}

void PagedCache::upload() {
  if (tensors_) return;
  Tables tables;
  const auto& b = *batch_;
  const auto positions = tables.add(b.query_positions);  // first: kernels take it without offset
  const auto append_indptr = tables.add(b.append_indptr);
  const auto ragged = tables.add(b.ragged_k_offset);
  const auto append_positions = tables.add(b.append_positions);
  struct Slots {
    Tables::Slot qo, indptr, pages, info, k, w_indptr, w_pages, w_info, w_k, mn, mask;
  };
  std::vector<Slots> slots;
  const auto windows = options_.books.sliding;
  for (const auto& d : b.depths) {
    Slots s;
    s.qo = tables.add(d.qo_indptr);
    s.indptr = tables.add(d.page_indptr);
    s.pages = tables.add(d.page_indices);
    s.info =
        windows ? tables.add({&d.last_page_len, &d.offset, &d.sink}) : tables.add(d.last_page_len);
    s.k = tables.add(d.k_offset);
    s.w_indptr = tables.add(d.window_page_indptr);
    s.w_pages = tables.add(d.window_page_indices);
    s.w_info = tables.add({&d.window_last_page_len, &d.window_offset, &d.window_sink});
    s.w_k = tables.add(d.window_k_offset);
    s.mn = tables.add(d.mn_indptr);
    s.mask = tables.add(d.mask);
    s.mask.shape = {std::ssize(d.mask) / 2, 2};
    slots.push_back(std::move(s));
  }
  tables.upload(options_.device);
  BatchTensors t{tables.view(positions),
                 tables.view(append_indptr),
                 tables.view(ragged),
                 tables.view(append_positions),
                 {}};
  for (const auto& s : slots)
    t.depths.push_back({tables.view(s.qo), tables.view(s.indptr), tables.view(s.pages),
                        tables.view(s.info), tables.view(s.k), tables.view(s.w_indptr),
                        tables.view(s.w_pages), tables.view(s.w_info), tables.view(s.w_k),
                        tables.view(s.mn), tables.view(s.mask)});
  tensors_ = std::move(t);
}

Tensor PagedCache::query_positions() {
  require_open();
  upload();
  return tensors_->query_positions;
}

void PagedCache::debug_get(Id id, std::int64_t begin, std::int64_t end, const TVMFFIAny& k,
                           const TVMFFIAny& v) {
  require_no_import();
  const auto places = books_.positions(id, begin, end);
  Tables tables;
  const auto slot = tables.add(places);
  tables.upload(options_.device);
  const auto borrowed = [](const TVMFFIAny& a) { return ffi::AnyView::CopyFromTVMFFIAny(a); };
  for (std::size_t i = 0; i < pages_.size(); ++i)
    if (options_.kinds[i] != AttentionKind::linear)
      call(kernels_.debug_get, "debug_get_kv", pages_[i], tables.view(slot), borrowed(k),
           borrowed(v), static_cast<std::int64_t>(i));
}

Tensor PagedCache::rows(const Tensor& t, std::int64_t n) const {
  std::vector<std::int64_t> shape(t.shape().begin(), t.shape().end());
  if (shape.empty() || shape[0] < n)
    refuse(fmt::format("a tensor of {} rows for {} tokens", shape.empty() ? 0 : shape[0], n));
  if (shape[0] == n) return t;
  shape[0] = n;
  return view_of(t, {shape.data(), shape.size()}, t.dtype());
}

void PagedCache::append(std::size_t layer, const Tensor& k, const Tensor& v) {
  if (kernels_.append_mha == nullptr) refuse("the model's library has no append kernel");
  call(kernels_.append_mha, "transpose_append", pages_[layer], k, v, tensors_->append_positions);
}

void PagedCache::fused_attention(std::int64_t layer, double sm_scale, const Tensor& qkv,
                                 const Tensor& output) {
  require_open();
  const auto index = layer_index(layer);
  const auto heads = options_.qo_heads + 2 * options_.kv_heads;
  if (qkv.ndim() != 3 || qkv.size(1) != heads || qkv.size(2) != options_.qk_dim ||
      output.ndim() != 3 || output.size(1) != options_.qo_heads || output.size(2) != options_.v_dim)
    refuse(fmt::format("needs qkv (n, {}, {}) and output (n, {}, {})", heads, options_.qk_dim,
                       options_.qo_heads, options_.v_dim));
  upload();
  const auto n = batch_->total;
  const auto input = rows(qkv, n);
  const auto result = rows(output, n);
  const auto q = rows(q_, n);
  const auto k = rows(k_, n);
  const auto v = rows(v_, n);
  const auto lse = rows(lse_, n);
  if (options_.rope_factors)
    call(kernels_.split_rotary, "split_rotary", input, tensors_->query_positions, q, k, v,
         *options_.rope_factors);
  else
    call(kernels_.split_rotary, "split_rotary", input, tensors_->query_positions, q, k, v,
         std::int64_t{options_.rope == RopeMode::normal ? 1 : 0});
  if (batch_->append_first) append(index, k, v);
  const bool self = self_step(index, sm_scale, q, k, v, result, lse);
  if (!cross_step(index, sm_scale, q, result, lse, self) && !self)
    refuse("the batch has nothing to attend to");
  if (!batch_->append_first) append(index, k, v);
}

bool PagedCache::self_step(std::size_t layer, double sm_scale, const Tensor& q, const Tensor& k,
                           const Tensor& v, const Tensor& output, const Tensor& lse) {
  if (batch_->append_first) return false;
  const auto& t = *tensors_;
  const bool own_window = options_.kinds[layer] == AttentionKind::mha_sliding;
  const double theta = own_window ? 10000 : options_.rope_theta;
  const double scale = own_window ? 1 : options_.rope_scale;
  if (batch_->depths[0].chain)
    call(kernels_.ragged, "ragged prefill", q, t.append_indptr, k, v, t.append_indptr,
         t.query_positions, t.ragged_k_offset, output, lse, std::int64_t{1}, rotate(), scale, theta,
         sm_scale);
  else
    call(kernels_.tree_ragged, "ragged tree", q, t.append_indptr, k, v, t.append_indptr,
         t.query_positions, t.depths[0].mn_indptr, t.depths[0].mask, output, lse, rotate(), scale,
         theta, sm_scale);
  return true;
}

bool PagedCache::cross_step(std::size_t layer, double sm_scale, const Tensor& q,
                            const Tensor& output, const Tensor& lse, bool merged) {
  bool any = false;
  for (std::size_t d = 0; d < batch_->depths.size(); ++d) {
    if (batch_->depths[d].page_indices.empty()) continue;
    any = true;
    if (!merged) {
      cross_kernel(layer, d, sm_scale, q, output, lse);
      merged = true;
      continue;
    }
    const auto other = rows(other_output_, batch_->total);
    const auto other_lse = rows(other_lse_, batch_->total);
    cross_kernel(layer, d, sm_scale, q, other, other_lse);
    call(kernels_.merge[0], "merge", output, lse, other, other_lse);
  }
  return any;
}

void PagedCache::cross_kernel(std::size_t layer, std::size_t depth, double sm_scale,
                              const Tensor& q, const Tensor& output, const Tensor& lse) {
  const auto& d = batch_->depths[depth];
  const auto& t = tensors_->depths[depth];
  const auto& pages = pages_[layer];
  const auto& positions = tensors_->query_positions;
  const bool own_window = options_.kinds[layer] == AttentionKind::mha_sliding;
  const bool sliding = own_window || options_.books.sliding;
  const auto& indptr = own_window ? t.window_page_indptr : t.page_indptr;
  const auto& indices = own_window ? t.window_page_indices : t.page_indices;
  const auto& info = own_window ? t.window_length_info : t.length_info;
  const auto& k_offset = own_window ? t.window_k_offset : t.k_offset;
  const double theta = own_window ? 10000 : options_.rope_theta;
  const double scale = own_window ? 1 : options_.rope_scale;
  if (batch_->append_first && !d.chain)
    return call(kernels_.tree_paged, "paged tree", q, t.qo_indptr, pages, indptr, indices, info,
                k_offset, positions, output, lse, rotate(), scale, theta, sm_scale, t.mn_indptr,
                t.mask);
  if (d.decode)
    return call(sliding ? kernels_.decode_sliding : kernels_.decode,
                sliding ? "sliding decode" : "decode", q, pages, indptr, indices, info, k_offset,
                positions, output, lse, rotate(), scale, theta, sm_scale);
  const std::int64_t causal = own_window && !batch_->append_first ? 1 : 0;
  call(sliding ? kernels_.prefill_sliding : kernels_.prefill,
       sliding ? "sliding prefill" : "prefill", q, t.qo_indptr, pages, indptr, indices, info,
       k_offset, positions, output, lse, causal, rotate(), scale, theta, sm_scale);
}

void PagedCache::self_attention(std::int64_t layer, double sm_scale, const Tensor& q,
                                const Tensor& k, const Tensor& v, const Tensor& output,
                                const Tensor& lse) {
  require_open();
  const auto index = layer_index(layer);
  upload();
  const auto n = batch_->total;
  const auto& t = *tensors_;
  if (options_.kinds[index] == AttentionKind::mla)
    return call(kernels_.ragged, "ragged prefill", rows(q, n), t.append_indptr, rows(k, n),
                rows(v, n), t.append_indptr, t.query_positions, t.ragged_k_offset, rows(output, n),
                rows(lse, n), std::int64_t{1}, std::int64_t{0}, options_.rope_scale,
                options_.rope_theta, sm_scale);
  if (batch_->append_first) refuse("this batch appends before it attends: use cross attention");
  self_step(index, sm_scale, rows(q, n), rows(k, n), rows(v, n), rows(output, n), rows(lse, n));
}

void PagedCache::cross_attention(std::int64_t layer, double sm_scale, const Tensor& q,
                                 const Tensor& output, const Tensor& lse) {
  require_open();
  const auto index = layer_index(layer);
  upload();
  const auto n = batch_->total;
  if (options_.kinds[index] != AttentionKind::mla) {
    cross_step(index, sm_scale, rows(q, n), rows(output, n), rows(lse, n), false);
    return;
  }
  bool merged = false;
  for (std::size_t d = 0; d < batch_->depths.size(); ++d) {
    if (batch_->depths[d].page_indices.empty()) continue;
    const auto& t = tensors_->depths[d];
    const auto out = merged ? rows(other_output_, n) : rows(output, n);
    const auto logs = merged ? rows(other_lse_, n) : rows(lse, n);
    call(kernels_.mla_prefill, "MLA prefill", rows(q, n), t.qo_indptr, pages_[index], t.page_indptr,
         t.page_indices, t.length_info, out, logs, std::int64_t{0}, sm_scale);
    if (merged) call(kernels_.merge[0], "merge", rows(output, n), rows(lse, n), out, logs);
    merged = true;
  }
}

void PagedCache::shared_attention(std::int64_t source, double sm_scale, const Tensor& q,
                                  const Tensor& k, const Tensor& v, const Tensor& output) {
  require_open();
  const auto index = layer_index(source);
  upload();
  const auto n = batch_->total;
  const auto lse = rows(lse_, n);
  const bool self =
      self_step(index, sm_scale, rows(q, n), rows(k, n), rows(v, n), rows(output, n), lse);
  if (!cross_step(index, sm_scale, rows(q, n), rows(output, n), lse, self) && !self)
    refuse("the batch has nothing to attend to");
}

void PagedCache::append_mla(std::int64_t layer, const Tensor& kv) {
  require_open();
  const auto index = layer_index(layer);
  upload();
  call(kernels_.append_mla, "MLA append", pages_[index], rows(kv, batch_->total),
       tensors_->append_positions);
}

void PagedCache::merge_inplace(const Tensor& o1, const Tensor& lse1, const Tensor& o2,
                               const Tensor& lse2) {
  if (kernels_.merge.size() < 2) refuse("the model's library has one merge kernel, two are needed");
  call(kernels_.merge[1], "merge", o1, lse1, o2, lse2);
}

}  // namespace outpost::vm
