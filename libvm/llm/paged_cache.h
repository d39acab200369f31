#pragma once
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "llm/paged_books.h"

namespace outpost::vm {

enum class AttentionKind { mha = 0, mla = 1, linear = 2, mha_sliding = 3 };
enum class RopeMode { none = 0, normal = 1, inline_ = 2 };

/// The paged attention cache: books, pages on the device, and the calls of the model's kernels in
/// the right order (vm-llm-state.md, sections 1 to 7).
class PagedCache final : public SequenceState {
 public:
  struct Options {
    PagedBooks::Options books;
    std::int64_t layer_begin = 0, layer_end = 0;
    std::int64_t qo_heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
    std::vector<AttentionKind> kinds;  ///< by layer, from layer_begin
    RopeMode rope = RopeMode::none;
    double rope_scale = 1, rope_theta = 10000;
    std::optional<tvm::ffi::Tensor> rope_factors;
    DLDataType dtype{};
    DLDevice device{};
  };
  /// What the library supplies; null where it has none.
  struct Kernels {
    using F = tvm::ffi::Function;
    F append_mha{nullptr}, append_mla{nullptr}, ragged{nullptr}, prefill{nullptr}, decode{nullptr},
        prefill_sliding{nullptr}, decode_sliding{nullptr}, tree_paged{nullptr},
        tree_ragged{nullptr}, mla_prefill{nullptr}, split_rotary{nullptr}, copy_page{nullptr},
        debug_get{nullptr}, compact{nullptr};
    std::vector<F> merge;
  };
  PagedCache(Options options, Kernels kernels);

  void clear() override;
  void add_sequence(Id id) override;
  void remove_sequence(Id id) override;
  void fork_sequence(Id parent, Id child, std::int64_t position) override;
  void popn(Id id, std::int64_t n) override;
  void begin_forward(const std::vector<Id>& ids, const std::vector<std::int64_t>& lengths,
                     const std::optional<std::vector<std::int64_t>>& parents) override;
  void end_forward() override;

  const PagedBooks& books() const { return books_; }
  std::int64_t sequence_length(Id id) const;
  void enable_window(Id id, std::int64_t window, std::int64_t sink);
  void commit(const std::vector<Id>& ids, const std::vector<std::int64_t>& leaves);
  tvm::ffi::Tensor query_positions();
  void debug_get(Id id, std::int64_t begin, std::int64_t end, const TVMFFIAny& k,
                 const TVMFFIAny& v);

  /// Borrowed tensors of one attention call.
  using Tensor = tvm::ffi::Tensor;
  void fused_attention(std::int64_t layer, double sm_scale, const Tensor& qkv,
                       const Tensor& output);
  void self_attention(std::int64_t layer, double sm_scale, const Tensor& q, const Tensor& k,
                      const Tensor& v, const Tensor& output, const Tensor& lse);
  void cross_attention(std::int64_t layer, double sm_scale, const Tensor& q, const Tensor& output,
                       const Tensor& lse);
  void shared_attention(std::int64_t source, double sm_scale, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& output);
  void append_mla(std::int64_t layer, const Tensor& kv);
  void merge_inplace(const Tensor& o1, const Tensor& lse1, const Tensor& o2, const Tensor& lse2);

  std::string checkpoint_metadata(Id id) const;
  std::string layout_hash() const;
  void export_group(Id id, std::int64_t layer, const Tensor& target) const;
  void prepare_import(Id id, const std::string& metadata);
  void import_group(Id id, std::int64_t layer, const Tensor& source);
  void finish_import(Id id);

 private:
  struct DepthTensors {
    Tensor qo_indptr, page_indptr, page_indices, length_info, k_offset;
    Tensor window_page_indptr, window_page_indices, window_length_info, window_k_offset;
    Tensor mn_indptr, mask;
  };
  struct BatchTensors {
    Tensor query_positions, append_indptr, ragged_k_offset, append_positions;
    std::vector<DepthTensors> depths;
  };
  /// Restores the books when the change fails.
  template <class F>
  void change(F&& f);
  void require_open() const;
  void require_no_import() const;
  std::size_t layer_index(std::int64_t layer) const;
  void upload();
  void append(std::size_t layer, const Tensor& k, const Tensor& v);
  bool self_step(std::size_t layer, double sm_scale, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& output, const Tensor& lse);
  /// `merged`: output holds a result that further ones are folded into.
  bool cross_step(std::size_t layer, double sm_scale, const Tensor& q, const Tensor& output,
                  const Tensor& lse, bool merged);
  void cross_kernel(std::size_t layer, std::size_t depth, double sm_scale, const Tensor& q,
                    const Tensor& output, const Tensor& lse);
  Tensor rows(const Tensor& t, std::int64_t n) const;
  void copy_page(std::int32_t from, std::int32_t to, std::int64_t tokens) const;
  std::int64_t rotate() const { return options_.rope == RopeMode::inline_ ? 1 : 0; }

  Options options_;
  Kernels kernels_;
  PagedBooks books_;
  std::vector<Tensor> pages_;  ///< by layer
  Tensor q_, k_, v_, output_, lse_, other_output_, other_lse_;
  std::optional<PagedBooks::Batch> batch_;
  std::optional<BatchTensors> tensors_;
  std::optional<std::vector<bool>> importing_;  ///< which layers have arrived
};

}  // namespace outpost::vm
