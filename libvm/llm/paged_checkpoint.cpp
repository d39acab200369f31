// Checkpoint of sequence 0: vm-llm-state.md, section 7.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "device/tensor.h"
#include "llm/paged_cache.h"
#include "outpost/vm/executable.h"

namespace outpost::vm {
namespace {
using nlohmann::ordered_json;

constexpr const char* kType = "relax.vm.PagedAttentionKVCache";

[[noreturn]] void refuse(std::string text) {
  raise("InternalError", std::move(text));
}

const char* rope_name(RopeMode mode) {
  switch (mode) {
    case RopeMode::none:
      return "none";
    case RopeMode::normal:
      return "normal";
    case RopeMode::inline_:
      return "inline";
  }
  return "none";
}

/// Adds `key=value;` to a 64-bit FNV-1a hash.
struct Hash {
  std::uint64_t value = 14695981039346656037ULL;
  void add(std::string_view text) {
    for (const char c : text) {
      value ^= static_cast<unsigned char>(c);
      value *= 1099511628211ULL;
    }
  }
  template <class T>
  void field(std::string_view key, const T& v) {
    add(fmt::format("{}={};", key, v));
  }
};

/// The order of a group's dimensions.
constexpr const char* kGroupLayout = "1,num_logical_pages,2,num_kv_heads,page_size,qk_head_dim";

}  // namespace

std::string PagedCache::layout_hash() const {
  const auto& o = options_;
  Hash h;
  h.field("format_version", 1);
  h.field("cache_type", kType);
  h.field("page_size", o.books.page_size);
  h.field("num_layers", o.layer_end - o.layer_begin);
  h.field("layer_begin", o.layer_begin);
  h.field("layer_end", o.layer_end);
  h.field("num_qo_heads", o.qo_heads);
  h.field("num_kv_heads", o.kv_heads);
  h.field("qk_head_dim", o.qk_dim);
  h.field("v_head_dim", o.v_dim);
  h.field("dtype", dtype_text(o.dtype));
  h.field("rope_mode", rope_name(o.rope));
  h.field("rotary_scale", fmt::format("{:.17g}", o.rope_scale));
  h.field("rotary_theta", fmt::format("{:.17g}", o.rope_theta));
  h.field("has_rope_ext_factors", o.rope_factors ? 1 : 0);
  h.field("support_sliding_window", o.books.sliding ? 1 : 0);
  h.field("support_layer_sliding_window", o.books.layer_sliding ? 1 : 0);
  h.field("page_group_layout", kGroupLayout);
  std::vector<std::string_view> kinds(o.kinds.size(), "mha");
  h.add(fmt::format("attn_kinds={}", fmt::join(kinds, ",")));
  return fmt::format("{:016x}", h.value);
}

std::string PagedCache::checkpoint_metadata(Id id) const {
  require_no_import();
  if (id != 0) refuse(fmt::format("only sequence 0 can be saved, not {}", id));
  const auto& o = options_;
  if (o.books.sliding || o.books.layer_sliding || o.rope_factors || o.v_dim != o.qk_dim)
    refuse("only caches without windows, extension factors and with equal dimensions can be saved");
  books_.require_plain(id);
  const auto length = books_.length(id);
  const auto size = o.books.page_size;
  const auto pages = (length + size - 1) / size;
  ordered_json m;
  m["format_version"] = 1;
  m["cache_type"] = kType;
  m["page_size"] = size;
  m["num_layers"] = o.layer_end - o.layer_begin;
  m["layer_begin"] = o.layer_begin;
  m["layer_end"] = o.layer_end;
  m["num_qo_heads"] = o.qo_heads;
  m["num_kv_heads"] = o.kv_heads;
  m["qk_head_dim"] = o.qk_dim;
  m["v_head_dim"] = o.v_dim;
  m["reserved_num_seqs"] = o.books.sequences_max;
  m["num_total_pages"] = o.books.pages;
  m["prefill_chunk_size"] = o.books.chunk;
  m["dtype"] = dtype_text(o.dtype);
  m["attn_kinds"] = std::vector<std::string>(o.kinds.size(), "mha");
  m["rope_mode"] = rope_name(o.rope);
  m["rotary_scale"] = o.rope_scale;
  m["rotary_theta"] = o.rope_theta;
  m["has_rope_ext_factors"] = false;
  m["support_sliding_window"] = false;
  m["support_layer_sliding_window"] = false;
  m["page_group_layout"] = kGroupLayout;
  m["layout_hash"] = layout_hash();
  m["seq_id"] = id;
  m["seq_length"] = length;
  auto logical = ordered_json::array();
  for (std::int64_t i = 0; i < pages; ++i)
    logical.push_back({{"logical_page_index", i},
                       {"start_pos", i * size},
                       {"length", std::min(size, length - i * size)}});
  m["logical_pages"] = std::move(logical);
  auto groups = ordered_json::array();
  const std::vector<std::int64_t> shape{1, pages, 2, o.kv_heads, size, o.qk_dim};
  for (auto layer = o.layer_begin; layer < o.layer_end; ++layer)
    groups.push_back({{"group_index", layer - o.layer_begin},
                      {"layer_begin", layer},
                      {"layer_end", layer + 1},
                      {"num_logical_pages", pages},
                      {"dtype", dtype_text(o.dtype)},
                      {"shape", shape},
                      {"nbytes", checked_bytes({shape.data(), shape.size()}, o.dtype)}});
  m["groups"] = std::move(groups);
  return m.dump();
}

namespace {

/// Copies each page of a sequence between the table and a group, K and V of each head; slots behind
/// the last token stay as they are. `bytes` is one (page size, dim) matrix.
struct GroupCopy {
  const std::vector<std::int32_t>& places;  ///< of all tokens
  std::int64_t page_size;
  std::int64_t heads;
  std::uint64_t row_bytes;  ///< of one token of one head
  template <class Copy>
  void run(Copy copy) const {
    for (std::int64_t t = 0; t < std::ssize(places); ++t) {
      const auto place = places[static_cast<std::size_t>(t)];
      for (std::int64_t side = 0; side < 2 * heads; ++side) {
        const auto at = [&](std::int64_t page, std::int64_t slot) {
          return static_cast<std::uint64_t>((page * 2 * heads + side) * page_size + slot) *
                 row_bytes;
        };
        copy(at(place / page_size, place % page_size), at(t / page_size, t % page_size));
      }
    }
  }
};

}  // namespace

void PagedCache::export_group(Id id, std::int64_t layer, const Tensor& target) const {
  require_no_import();
  const auto index = layer_index(layer);
  books_.require_plain(id);
  const auto places = books_.positions(id, 0, books_.length(id));
  const auto bytes = checked_bytes(*target.GetDLTensorPtr());
  const auto size = options_.books.page_size;
  const auto pages = (std::ssize(places) + size - 1) / size;
  const auto row = checked_bytes(tvm::ffi::ShapeView{options_.qk_dim}, options_.dtype);
  const auto wanted = static_cast<std::uint64_t>(pages * 2 * options_.kv_heads * size) * row;
  if (bytes != wanted)
    refuse(fmt::format("the target has {} bytes, the pages of sequence {} {}", bytes, id, wanted));
  std::vector<char> from(checked_bytes(*pages_[index].GetDLTensorPtr()));
  read_bytes(*pages_[index].GetDLTensorPtr(), from.data(), from.size());
  std::vector<char> to(bytes, 0);
  GroupCopy{places, size, options_.kv_heads, row}.run(
      [&](auto table, auto group) { std::memcpy(to.data() + group, from.data() + table, row); });
  if (!to.empty()) write_bytes(*target.GetDLTensorPtr(), to.data(), to.size());
}

void PagedCache::prepare_import(Id id, const std::string& metadata) {
  if (id != 0) refuse(fmt::format("only sequence 0 can be restored, not {}", id));
  std::int64_t length = 0;
  try {
    const auto m = ordered_json::parse(metadata);
    if (!m.contains("format_version"))
      refuse("the checkpoint's metadata is missing field \"format_version\"");
    if (m.at("format_version") != 1 || m.at("cache_type") != kType)
      refuse("the checkpoint is of another format");
    if (const auto hash = m.at("layout_hash").get<std::string>(); hash != layout_hash())
      refuse(fmt::format("the checkpoint's layout hash is {}, this cache has {}", hash,
                         layout_hash()));
    if (m.at("seq_id") != 0) refuse("the checkpoint is not of sequence 0");
    length = m.at("seq_length").get<std::int64_t>();
    const auto size = options_.books.page_size;
    if (length < 0 || std::ssize(m.at("logical_pages")) != (length + size - 1) / size ||
        std::ssize(m.at("groups")) != std::ssize(pages_))
      refuse("the checkpoint's pages and groups do not fit its length");
  } catch (const nlohmann::json::exception& e) {
    refuse(fmt::format("the checkpoint's metadata cannot be read: {}", e.what()));
  }
  books_.restore(id, length);
  batch_.reset();
  tensors_.reset();
  importing_.emplace(pages_.size(), false);
}

void PagedCache::import_group(Id id, std::int64_t layer, const Tensor& source) {
  if (!importing_) refuse("prepare_import comes first");
  const auto index = layer_index(layer);
  if ((*importing_)[index]) refuse(fmt::format("group {} was already imported", layer));
  const auto places = books_.positions(id, 0, books_.length(id));
  const auto size = options_.books.page_size;
  const auto pages = (std::ssize(places) + size - 1) / size;
  const auto row = checked_bytes(tvm::ffi::ShapeView{options_.qk_dim}, options_.dtype);
  const auto wanted = static_cast<std::uint64_t>(pages * 2 * options_.kv_heads * size) * row;
  std::vector<char> from(checked_bytes(*source.GetDLTensorPtr()));
  if (from.size() != wanted)
    refuse(fmt::format("the group has {} bytes, the pages of sequence {} {}", from.size(), id,
                       wanted));
  if (!from.empty()) read_bytes(*source.GetDLTensorPtr(), from.data(), from.size());
  std::vector<char> to(checked_bytes(*pages_[index].GetDLTensorPtr()));
  read_bytes(*pages_[index].GetDLTensorPtr(), to.data(), to.size());
  GroupCopy{places, size, options_.kv_heads, row}.run(
      [&](auto table, auto group) { std::memcpy(to.data() + table, from.data() + group, row); });
  write_bytes(*pages_[index].GetDLTensorPtr(), to.data(), to.size());
  (*importing_)[index] = true;
}

void PagedCache::finish_import(Id) {
  if (!importing_) refuse("prepare_import comes first");
  for (std::size_t i = 0; i < importing_->size(); ++i)
    if (!(*importing_)[i]) refuse(fmt::format("the import is missing group {}", i));
  importing_.reset();
}

}  // namespace outpost::vm
