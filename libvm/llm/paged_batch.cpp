// One forward of the paged cache: reserving pages, the index tables of the kernels, token trees.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "llm/paged_books.h"

namespace outpost::vm {
namespace {

constexpr std::size_t kDepthsMax = 2;
constexpr std::int64_t kTreeNodesMax = 256;
/// Neighbours with the same block are read together when that saves this much.
constexpr double kMergeRatio = 32;

[[noreturn]] void refuse(std::string text) {
  raise("InternalError", std::move(text));
}
std::int32_t i32(std::int64_t v) {
  return static_cast<std::int32_t>(v);
}
void grow(std::vector<std::int32_t>& indptr, std::int64_t by) {
  indptr.push_back(indptr.back() + i32(by));
}

}  // namespace

/// Where the blocks of a batch are read.
struct PagedBooks::Layout {
  struct Part {
    std::int32_t block;
    std::int64_t append;
  };
  std::vector<std::vector<std::int32_t>> blocks;    ///< by depth, by sequence; -1 for none
  std::vector<std::vector<std::int32_t>> trailing;  ///< by sequence: read with the last depth
  std::vector<std::vector<Part>> parts;             ///< by depth: what a kernel sees as one query
};

PagedBooks::Batch PagedBooks::begin(const std::vector<Id>& ids,
                                    const std::vector<std::int64_t>& lengths,
                                    const std::optional<std::vector<std::int64_t>>& parents) {
  if (ids.empty() || ids.size() != lengths.size())
    refuse(fmt::format("{} sequences with {} lengths in a batch", ids.size(), lengths.size()));
  if (std::set<Id>(ids.begin(), ids.end()).size() != ids.size())
    refuse("a sequence is in the batch twice");
  Batch batch;
  batch.ids = ids;
  batch.lengths = lengths;
  batch.append_indptr = {0};
  std::vector<Sequence*> sequences;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sequences.push_back(&sequence(ids[i]));
    if (lengths[i] <= 0) refuse("Append with length 0 is not allowed.");
    if (lengths[i] > options_.chunk - batch.total)
      refuse(
          fmt::format("a batch may append {} tokens together (the prefill chunk)", options_.chunk));
    batch.total += lengths[i];
    grow(batch.append_indptr, lengths[i]);
  }
  Layout layout;
  layout.trailing.resize(ids.size());
  std::vector<std::int64_t> before;
  bool older_tree = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto& s = *sequences[i];
    older_tree |= !s.committed;
    batch.ragged_k_offset.push_back(i32(s.length - std::ssize(s.parents)));
    before.push_back(block(s.last).length);
    s.length += lengths[i];
    const auto blocks = chain(s);
    for (std::size_t d = 0; d < blocks.size(); ++d) {
      if (d >= kDepthsMax) {
        layout.trailing[i].push_back(blocks[d]);
        continue;
      }
      if (layout.blocks.size() <= d) layout.blocks.emplace_back(ids.size(), -1);
      layout.blocks[d][i] = blocks[d];
    }
  }
  choose_kernels(batch, layout);
  batch.append_first = (!options_.sliding && batch.depths.back().decode) || older_tree;
  if (parents) {
    plant_trees(sequences, batch, *parents);
  } else {
    for (auto* s : sequences)
      if (!s->committed) refuse("the token trees of the batch must be committed first");
  }
  const auto reserve_all = [&] {
    for (std::size_t i = 0; i < ids.size(); ++i) reserve(*sequences[i], lengths[i]);
  };
  if (batch.append_first) reserve_all();
  fill_tables(batch, layout);
  if (parents) fill_masks(batch, layout, sequences);
  if (!batch.append_first) reserve_all();
  fill_positions(batch, sequences, before);
  return batch;
}

void PagedBooks::choose_kernels(Batch& batch, Layout& layout) const {
  const bool all_single =
      std::all_of(batch.lengths.begin(), batch.lengths.end(), [](auto n) { return n == 1; });
  for (std::size_t d = 0; d < layout.blocks.size(); ++d) {
    std::vector<Layout::Part> apart;
    std::vector<Layout::Part> merged;
    double pages_apart = 0;
    double pages_merged = 0;
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      const auto b = layout.blocks[d][i];
      const auto pages = b == -1 ? 0.0 : static_cast<double>(block(b).pages.size());
      apart.push_back({b, batch.lengths[i]});
      pages_apart += pages;
      if (!merged.empty() && b != -1 && merged.back().block == b) {
        merged.back().append += batch.lengths[i];
      } else {
        merged.push_back(apart.back());
        pages_merged += pages;
      }
    }
    const double ratio = pages_merged == 0 ? 0 : pages_apart / pages_merged;
    Depth depth;
    depth.decode = all_single && ratio < kMergeRatio;
    const bool last = d + 1 == kDepthsMax;
    layout.parts.push_back(depth.decode || last ? std::move(apart) : std::move(merged));
    batch.depths.push_back(std::move(depth));
  }
}

void PagedBooks::fill_tables(Batch& batch, const Layout& layout) const {
  for (std::size_t d = 0; d < batch.depths.size(); ++d) {
    auto& t = batch.depths[d];
    t.qo_indptr = t.page_indptr = t.window_page_indptr = {0};
    for (std::size_t i = 0; i < layout.parts[d].size(); ++i) {
      const auto& part = layout.parts[d][i];
      grow(t.qo_indptr, part.append);
      std::vector<std::int32_t> pages;
      std::int64_t length = 0;
      std::int64_t start = 0;
      Block last;
      if (part.block != -1) {
        last = block(part.block);
        pages = last.pages;
        length = last.length;
        start = last.start;
        if (d + 1 == kDepthsMax)
          for (const auto b : layout.trailing[i]) {
            last = block(b);
            pages.insert(pages.end(), last.pages.begin(), last.pages.end());
            length += last.length;
          }
      }
      grow(t.page_indptr, std::ssize(pages));
      t.page_indices.insert(t.page_indices.end(), pages.begin(), pages.end());
      t.last_page_len.push_back(
          length == 0 ? 0 : i32((length - last.sink + last.offset - 1) % options_.page_size + 1));
      t.offset.push_back(i32(last.offset));
      t.sink.push_back(i32(last.sink));
      t.k_offset.push_back(i32(start));
      if (options_.layer_sliding) add_window_entry(t, pages, length, start);
    }
  }
}

void PagedBooks::add_window_entry(Depth& t, const std::vector<std::int32_t>& pages,
                                  std::int64_t length, std::int64_t start) const {
  const auto window = options_.layer_window;
  const auto offset = length <= window ? 0 : (length - window) % options_.page_size;
  const auto wanted =
      (offset + std::min(length, window) + options_.page_size - 1) / options_.page_size;
  const auto n = std::min<std::int64_t>(std::ssize(pages), wanted);
  grow(t.window_page_indptr, n);
  t.window_page_indices.insert(t.window_page_indices.end(), pages.end() - n, pages.end());
  t.window_last_page_len.push_back(length == 0 ? 0 : i32((length - 1) % options_.page_size + 1));
  t.window_offset.push_back(i32(offset));
  t.window_sink.push_back(0);
  t.window_k_offset.push_back(
      length == 0 ? 0 : i32(std::max<std::int64_t>(0, start + length - window)));
}

void PagedBooks::fill_positions(Batch& batch, const std::vector<Sequence*>& sequences,
                                const std::vector<std::int64_t>& before) const {
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto& s = *sequences[i];
    const auto& b = block(s.last);
    const auto append = batch.lengths[i];
    for (std::int64_t k = 0; k < append; ++k) {
      const auto depth =
          s.depths.empty() ? k
                           : s.depths[static_cast<std::size_t>(std::ssize(s.depths) - append + k)];
      batch.query_positions.push_back(batch.ragged_k_offset[i] + i32(depth));
      const auto in_block = b.length - append + k;
      if (before[i] + k < b.sink)
        batch.append_positions.push_back(place(b, before[i] + k));
      else if (in_block < b.sink)
        batch.append_positions.push_back(-1);  // the sink holds that place
      else
        batch.append_positions.push_back(place(b, in_block - b.sink + b.offset));
    }
  }
}

void PagedBooks::plant_trees(const std::vector<Sequence*>& sequences, const Batch& batch,
                             const std::vector<std::int64_t>& parents) {
  if (options_.sliding) refuse("token trees do not go with sliding windows");
  if (options_.inline_rope) refuse("token trees do not go with inline RoPE");
  if (std::ssize(parents) != batch.total)
    refuse(fmt::format("{} parents for {} tokens", parents.size(), batch.total));
  std::size_t at = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    auto& s = *sequences[i];
    for (std::int64_t k = 0; k < batch.lengths[i]; ++k, ++at) {
      const auto own = std::ssize(s.parents);
      const auto parent = parents[at];
      if (parent < -1 || parent >= own)
        refuse(fmt::format("node {} of the tree of sequence {} has parent {}, expected -1 to {}",
                           own, batch.ids[i], parent, own - 1));
      s.parents.push_back(i32(parent));
      s.depths.push_back(parent == -1 ? 0 : s.depths[static_cast<std::size_t>(parent)] + 1);
    }
    if (std::ssize(s.parents) > kTreeNodesMax)
      refuse(fmt::format("the tree of sequence {} has {} nodes, at most {}", batch.ids[i],
                         s.parents.size(), kTreeNodesMax));
    s.committed = false;
  }
}

void PagedBooks::fill_masks(Batch& batch, const Layout& layout,
                            const std::vector<Sequence*>& sequences) const {
  for (std::size_t d = 0; d < batch.depths.size(); ++d) {
    auto& t = batch.depths[d];
    t.mn_indptr = {0};
    if (!batch.append_first && d > 0) continue;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto& s = *sequences[i];
      const bool here = !batch.append_first || layout.blocks[d][i] == s.last ||
                        (d + 1 == kDepthsMax && !layout.trailing[i].empty());
      if (here) t.chain = t.chain && s.is_chain();
      grow(t.mn_indptr, here ? std::ssize(s.parents) : 0);
      if (!here) continue;
      // Pre-order number of each node, and the end of its subtree.
      const auto n = s.parents.size();
      std::vector<std::vector<std::size_t>> children(n);
      std::vector<std::size_t> work;
      for (std::size_t k = n; k-- > 0;)
        if (s.parents[k] == -1)
          work.push_back(k);
        else
          children[static_cast<std::size_t>(s.parents[k])].push_back(k);
      std::vector<std::int32_t> number(n);
      std::vector<std::int32_t> size(n, 1);
      std::int32_t next = 0;
      while (!work.empty()) {
        const auto k = work.back();
        work.pop_back();
        number[k] = next++;
        work.insert(work.end(), children[k].begin(), children[k].end());
      }
      for (std::size_t k = n; k-- > 0;)
        if (s.parents[k] != -1) size[static_cast<std::size_t>(s.parents[k])] += size[k];
      for (std::size_t k = 0; k < n; ++k) {
        t.mask.push_back(number[k]);
        t.mask.push_back(number[k] + size[k]);
      }
    }
  }
}

void PagedBooks::check_leaves(const std::vector<Id>& ids,
                              const std::vector<std::int64_t>& leaves) const {
  if (ids.size() != leaves.size())
    refuse(fmt::format("{} sequences with {} leaves", ids.size(), leaves.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto& s = sequence(ids[i]);
    if (leaves[i] < -1) refuse(fmt::format("leaf {} is no node of a tree", leaves[i]));
    if (leaves[i] != -1 && s.committed)
      refuse(fmt::format("The accepted nodes of sequence {} are already committed.", ids[i]));
    if (leaves[i] >= std::ssize(s.parents) && leaves[i] != -1)
      refuse(fmt::format("leaf {} of sequence {}: its tree has {} nodes", leaves[i], ids[i],
                         s.parents.size()));
  }
}

PagedBooks::Moves PagedBooks::accepted(const std::vector<Id>& ids,
                                       const std::vector<std::int64_t>& leaves) const {
  check_leaves(ids, leaves);
  Moves moves;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto& s = sequence(ids[i]);
    std::vector<std::int64_t> path;
    for (auto node = leaves[i]; node != -1; node = s.parents[static_cast<std::size_t>(node)])
      path.push_back(node);
    std::reverse(path.begin(), path.end());
    const auto nodes = std::ssize(s.parents);
    const auto places = positions(ids[i], s.length - nodes, s.length);
    for (std::size_t k = 0; k < path.size(); ++k) {
      if (path[k] == static_cast<std::int64_t>(k)) continue;
      moves.from.push_back(places[static_cast<std::size_t>(path[k])]);
      moves.to.push_back(places[k]);
    }
    moves.indptr.push_back(i32(std::ssize(moves.from)));
  }
  return moves;
}

void PagedBooks::commit(const std::vector<Id>& ids, const std::vector<std::int64_t>& leaves) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto& s = sequence(ids[i]);
    if (s.committed) continue;
    const auto kept = leaves[i] == -1 ? 0 : s.depths[static_cast<std::size_t>(leaves[i])] + 1;
    const auto drop = std::ssize(s.parents) - kept;
    s.parents.clear();
    s.depths.clear();
    s.committed = true;
    popn(ids[i], drop, [](std::int32_t, std::int32_t, std::int64_t) {});
  }
}

}  // namespace outpost::vm
