#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "llm/state.h"

namespace outpost::vm {

/// The books of a paged attention cache (vm-llm-state.md, sections 2, 3, 5, 6): which tokens of
/// which sequence lie in which page. Touches no tensor. Copied before a change that may fail, so it
/// is a value.
class PagedBooks {
 public:
  using Id = SequenceState::Id;
  struct Options {
    std::int64_t sequences_max = 0;
    std::int64_t pages = 0;
    std::int64_t page_size = 0;
    std::int64_t chunk = 0;         ///< most tokens of one forward
    std::int64_t layer_window = 0;  ///< of layers with a window of their own
    bool sliding = false;           ///< windows of whole sequences
    bool layer_sliding = false;     ///< some layer has a window of its own
    bool inline_rope = false;
  };
  /// What the kernels of one depth read; all int32 as they take them.
  struct Depth {
    bool decode = false;  ///< decode kernel, else prefill
    std::vector<std::int32_t> qo_indptr, page_indptr, page_indices, last_page_len, offset, sink,
        k_offset;
    /// The same for layers with a window of their own.
    std::vector<std::int32_t> window_page_indptr, window_page_indices, window_last_page_len,
        window_offset, window_sink, window_k_offset;
    bool chain = true;
    std::vector<std::int32_t> mn_indptr, mask;
  };
  struct Batch {
    std::vector<Id> ids;
    std::vector<std::int64_t> lengths;
    std::int64_t total = 0;
    bool append_first = false;
    std::vector<Depth> depths;
    std::vector<std::int32_t> append_indptr, ragged_k_offset, query_positions, append_positions;
  };
  /// (source page, target page, tokens): part of a page becomes the start of another.
  using CopyPage = std::function<void(std::int32_t, std::int32_t, std::int64_t)>;
  /// Source and target positions, per sequence.
  struct Moves {
    std::vector<std::int32_t> indptr{0}, from, to;
  };

  explicit PagedBooks(const Options& options);

  void clear();
  void add(Id id);
  void remove(Id id);
  void fork(Id parent, Id child, std::int64_t position, const CopyPage& copy);
  void popn(Id id, std::int64_t n, const CopyPage& copy);
  void enable_window(Id id, std::int64_t window, std::int64_t sink);
  Batch begin(const std::vector<Id>& ids, const std::vector<std::int64_t>& lengths,
              const std::optional<std::vector<std::int64_t>>& parents);
  /// What must be moved to keep the paths to these leaves; `commit` then forgets the rest.
  Moves accepted(const std::vector<Id>& ids, const std::vector<std::int64_t>& leaves) const;
  void commit(const std::vector<Id>& ids, const std::vector<std::int64_t>& leaves);

  bool empty() const;
  std::int64_t available_pages() const { return std::ssize(free_pages_); }
  std::int64_t total_length() const;
  std::int64_t length(Id id) const { return sequence(id).length; }
  /// Place in the page table of tokens [begin, end) of a sequence.
  std::vector<std::int32_t> positions(Id id, std::int64_t begin, std::int64_t end) const;
  /// One committed chain without windows, as checkpoints need it.
  void require_plain(Id id) const;
  /// A new sequence of that length with its pages.
  void restore(Id id, std::int64_t length);

 private:
  struct Block {
    std::vector<std::int32_t> pages;
    std::int64_t length = 0;
    std::int64_t start = 0;   ///< position of the first token, for RoPE
    std::int64_t sink = 0;    ///< tokens at the front that stay when the block slides
    std::int64_t offset = 0;  ///< of the first token behind the sink
    std::int32_t parent = -1;
    std::int32_t references = 0;
  };
  struct Sequence {
    std::int32_t last = -1;
    std::int64_t length = 0;
    std::int64_t window = -1;
    std::int64_t sink = 0;                      ///< of the whole sequence
    std::vector<std::int32_t> parents, depths;  ///< the tree that is not committed yet
    bool committed = true;
    bool is_chain() const;
  };

  const Sequence& sequence(Id id) const;
  Sequence& sequence(Id id) {
    return const_cast<Sequence&>(static_cast<const PagedBooks*>(this)->sequence(id));
  }
  Block& block(std::int32_t i) { return blocks_[static_cast<std::size_t>(i)]; }
  const Block& block(std::int32_t i) const { return blocks_[static_cast<std::size_t>(i)]; }
  std::int32_t new_block();
  std::int32_t new_page();
  void free_block(std::int32_t i);
  std::vector<std::int32_t> chain(const Sequence& s) const;  ///< blocks from the root
  std::int64_t last_sink(const Sequence& s) const;           ///< part of the sink in the last block
  std::int64_t pages_for(const Block& b, std::int64_t more) const;
  std::int32_t place(const Block& b, std::int64_t offset_in_block) const;
  std::int64_t offset_of(const Block& b, std::int64_t token) const;
  void split(std::int32_t forked, std::int32_t child, std::int64_t moved);
  void reserve(Sequence& s, std::int64_t append);
  void slide(Sequence& s);
  void plant_trees(const std::vector<Sequence*>& sequences, const Batch& batch,
                   const std::vector<std::int64_t>& parents);
  void check_leaves(const std::vector<Id>& ids, const std::vector<std::int64_t>& leaves) const;
  struct Layout;
  void choose_kernels(Batch& batch, Layout& layout) const;
  void fill_tables(Batch& batch, const Layout& layout) const;
  void fill_masks(Batch& batch, const Layout& layout,
                  const std::vector<Sequence*>& sequences) const;
  void fill_positions(Batch& batch, const std::vector<Sequence*>& sequences,
                      const std::vector<std::int64_t>& before) const;
  void add_window_entry(Depth& depth, const std::vector<std::int32_t>& pages, std::int64_t length,
                        std::int64_t start) const;

  Options options_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_blocks_;  ///< the next one last
  std::vector<std::int32_t> free_pages_;   ///< the next one last
  std::map<Id, Sequence> sequences_;
};

}  // namespace outpost::vm
