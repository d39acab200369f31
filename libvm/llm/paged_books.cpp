#include "llm/paged_books.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace outpost::vm {
namespace {

[[noreturn]] void refuse(std::string text) {
  raise("InternalError", std::move(text));
}
std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
/// Stands for a page until one is free.
constexpr std::int32_t kBorrowedPage = -1;

}  // namespace

bool PagedBooks::Sequence::is_chain() const {
  for (std::size_t i = 0; i < parents.size(); ++i)
    if (parents[i] != static_cast<std::int32_t>(i) - 1) return false;
  return true;
}

PagedBooks::PagedBooks(const Options& options) : options_{options} {
  clear();
}

void PagedBooks::clear() {
  sequences_.clear();
  blocks_.clear();
  free_blocks_.clear();
  free_pages_.clear();
  for (auto page = options_.pages; page-- > 0;)
    free_pages_.push_back(static_cast<std::int32_t>(page));
}

const PagedBooks::Sequence& PagedBooks::sequence(Id id) const {
  const auto it = sequences_.find(id);
  if (it == sequences_.end())
    refuse(fmt::format("The sequence \"{}\" cannot be found in KV cache.", id));
  return it->second;
}

std::int32_t PagedBooks::new_block() {
  if (free_blocks_.empty()) {
    blocks_.emplace_back();
    return static_cast<std::int32_t>(blocks_.size()) - 1;
  }
  const auto i = free_blocks_.back();
  free_blocks_.pop_back();
  block(i) = {};
  return i;
}

std::int32_t PagedBooks::new_page() {
  if (free_pages_.empty())
    refuse(fmt::format("The KV cache is full: all {} pages of {} tokens are in use", options_.pages,
                       options_.page_size));
  const auto page = free_pages_.back();
  free_pages_.pop_back();
  return page;
}

void PagedBooks::free_block(std::int32_t i) {
  free_pages_.insert(free_pages_.end(), block(i).pages.begin(), block(i).pages.end());
  free_blocks_.push_back(i);
}

std::vector<std::int32_t> PagedBooks::chain(const Sequence& s) const {
  std::vector<std::int32_t> out;
  for (auto i = s.last; i != -1; i = block(i).parent) out.push_back(i);
  std::reverse(out.begin(), out.end());
  return out;
}

std::int64_t PagedBooks::last_sink(const Sequence& s) const {
  std::int64_t prefix = 0;
  for (auto i = block(s.last).parent; i != -1; i = block(i).parent) prefix += block(i).length;
  return std::max<std::int64_t>(s.sink - prefix, 0);
}

std::int64_t PagedBooks::pages_for(const Block& b, std::int64_t more) const {
  return ceil_div(b.length - b.sink + b.offset + more, options_.page_size);
}

std::int64_t PagedBooks::offset_of(const Block& b, std::int64_t token) const {
  return token < b.sink ? token : token - b.sink + b.offset;
}

std::int32_t PagedBooks::place(const Block& b, std::int64_t offset) const {
  const auto page = b.pages[static_cast<std::size_t>(offset / options_.page_size)];
  return static_cast<std::int32_t>(page * options_.page_size + offset % options_.page_size);
}

void PagedBooks::add(Id id) {
  if (sequences_.contains(id))
    refuse(fmt::format("The sequence \"{}\" is already in the KV cache.", id));
  if (std::ssize(sequences_) >= options_.sequences_max)
    refuse(fmt::format("The KV cache has its {} sequences already", options_.sequences_max));
  const auto b = new_block();
  block(b).references = 1;
  sequences_[id].last = b;
}

void PagedBooks::remove(Id id) {
  auto i = sequence(id).last;
  while (i != -1 && block(i).references == 1) {
    const auto parent = block(i).parent;
    free_block(i);
    i = parent;
  }
  if (i != -1) --block(i).references;
  sequences_.erase(id);
}

void PagedBooks::split(std::int32_t forked, std::int32_t child, std::int64_t moved) {
  const auto front = new_block();
  auto& f = block(forked);
  auto& p = block(front);
  const auto pages = static_cast<std::ptrdiff_t>(moved / options_.page_size);
  p.parent = f.parent;
  p.references = 2;
  p.start = f.start;
  p.length = moved;
  p.pages.assign(f.pages.begin(), f.pages.begin() + pages);
  f.pages.erase(f.pages.begin(), f.pages.begin() + pages);
  f.parent = front;
  f.length -= moved;
  f.start += moved;
  if (f.sink > 0 || f.offset > 0) {  // it has slid: what moved was part of the sink
    f.sink -= std::min(moved, f.sink);
    f.offset -= std::min(moved, f.offset);
  }
  block(child).parent = front;
}

void PagedBooks::fork(Id parent, Id child, std::int64_t position, const CopyPage& copy) {
  auto& from = sequence(parent);
  if (sequences_.contains(child))
    refuse(fmt::format("The sequence \"{}\" is already in the KV cache.", child));
  if (position == -1) position = from.length;
  if (position < 0 || position > from.length)
    refuse(fmt::format("cannot fork at {}, the sequence has {} tokens", position, from.length));
  if (!from.committed)
    refuse(fmt::format("the token tree of sequence {} must be committed first", parent));
  if (from.window != -1 && position > from.sink)
    refuse(
        fmt::format("a sequence with a sliding window can be forked within its sink of {} "
                    "tokens, not at {}",
                    from.sink, position));
  const auto in_page = position % options_.page_size;
  if (in_page != 0 && free_pages_.empty()) new_page();
  if (position == from.length && in_page == 0 && block(from.last).length > 0) {
    const auto next = new_block();  // for what the parent appends from now on
    block(next).start = from.length;
    block(next).parent = from.last;
    block(next).references = 1;
    from.last = next;
  }
  const auto made = new_block();
  auto rest = position;
  const auto blocks = chain(from);
  auto at = blocks.begin();
  while (*at != blocks.back() && rest >= block(*at).length) rest -= block(*at++).length;
  const auto moved = rest - rest % options_.page_size;
  const auto in_block = rest % options_.page_size;
  if (moved == 0) {
    block(made).parent = block(*at).parent;
    if (block(made).parent != -1) ++block(block(made).parent).references;
  } else {
    split(*at, made, moved);
  }
  block(made).start = position - in_block;
  block(made).length = in_block;
  block(made).references = 1;
  if (in_block > 0) {
    const auto page = new_page();
    block(made).pages.push_back(page);
    copy(block(*at).pages[0], page, in_block);
  }
  Sequence s;
  s.last = made;
  s.length = position;
  sequences_[child] = s;
}

void PagedBooks::popn(Id id, std::int64_t n, const CopyPage& copy) {
  auto& s = sequence(id);
  if (n < 0 || n > s.length)
    refuse(fmt::format("cannot pop {} tokens, the sequence has length {}", n, s.length));
  while (block(s.last).references == 1) {
    auto& b = block(s.last);
    if (n <= b.length) {
      b.length -= n;
      s.length -= n;
      const auto keep = static_cast<std::size_t>(pages_for(b, 0));
      while (b.pages.size() > keep) {
        free_pages_.push_back(b.pages.back());
        b.pages.pop_back();
      }
      return;
    }
    n -= b.length;
    s.length -= b.length;
    const auto parent = b.parent;
    free_block(s.last);
    s.last = parent;
  }
  if (n == 0) return;
  // What remains lies in a block of others: a fork of it takes the sequence's place.
  const Id temporary = -1 - id;
  auto old = s;
  s.window = -1;
  fork(id, temporary, s.length - n, copy);
  remove(id);
  auto node = sequences_.extract(temporary);
  node.key() = id;
  node.mapped().window = old.window;
  node.mapped().sink = old.sink;
  sequences_.insert(std::move(node));
}

void PagedBooks::enable_window(Id id, std::int64_t window, std::int64_t sink) {
  auto& s = sequence(id);
  if (!options_.sliding && !options_.layer_sliding)
    refuse("The KV cache does not support sliding window.");
  if (s.window != -1) refuse(fmt::format("sequence {} has a sliding window already", id));
  if (sink < 0 || sink >= window)
    refuse(fmt::format("a window of {} tokens cannot have a sink of {}", window, sink));
  s.window = window;
  s.sink = sink;
}

bool PagedBooks::empty() const {
  return sequences_.empty() && std::ssize(free_pages_) == options_.pages &&
         free_blocks_.size() == blocks_.size();
}

std::int64_t PagedBooks::total_length() const {
  std::int64_t n = 0;
  for (const auto& [id, s] : sequences_) n += s.length;
  return n;
}

std::vector<std::int32_t> PagedBooks::positions(Id id, std::int64_t begin, std::int64_t end) const {
  const auto& s = sequence(id);
  if (begin < 0 || begin > end || end > s.length)
    refuse(fmt::format("tokens [{}, {}) of a sequence of {}", begin, end, s.length));
  std::vector<std::int32_t> out;
  std::int64_t first = 0;
  for (const auto i : chain(s)) {
    const auto& b = block(i);
    for (auto p = std::max(begin - first, std::int64_t{0}); p < b.length && first + p < end; ++p)
      out.push_back(place(b, offset_of(b, p)));
    first += b.length;
  }
  return out;
}

void PagedBooks::require_plain(Id id) const {
  const auto& s = sequence(id);
  if (!s.committed) refuse(fmt::format("the token tree of sequence {} is not committed", id));
  if (s.window != -1) refuse(fmt::format("sequence {} has a sliding window", id));
}

void PagedBooks::restore(Id id, std::int64_t length) {
  const auto pages = ceil_div(length, options_.page_size);
  if (length < 0 || pages > options_.pages)
    refuse(fmt::format("a sequence of {} tokens does not fit {} pages", length, options_.pages));
  clear();
  add(id);
  auto& s = sequence(id);
  s.length = length;
  block(s.last).length = length;
  for (std::int64_t i = 0; i < pages; ++i) block(s.last).pages.push_back(new_page());
}

void PagedBooks::reserve(Sequence& s, std::int64_t append) {
  auto& b = block(s.last);
  if (b.references != 1) refuse("tokens cannot be appended to a block that sequences share");
  while (std::ssize(b.pages) < pages_for(b, append))
    b.pages.push_back(free_pages_.empty() && s.window != -1 ? kBorrowedPage : new_page());
  b.length += append;
  slide(s);
  for (auto& page : b.pages)
    if (page == kBorrowedPage) page = new_page();
}

void PagedBooks::slide(Sequence& s) {
  if (!options_.sliding || s.window == -1 || s.length <= s.window) return;
  auto& b = block(s.last);
  const auto by = s.length - s.window;
  if (const auto sink = last_sink(s); sink > 0 && b.sink == 0) {
    b.sink = sink;
    b.offset = sink;
  }
  const auto sink_pages = ceil_div(b.sink, options_.page_size);
  auto first = (b.offset + by) / options_.page_size;
  const auto in_page = (b.offset + by) % options_.page_size;
  for (; first > sink_pages; --first) {
    const auto page = b.pages.begin() + static_cast<std::ptrdiff_t>(sink_pages);
    if (page == b.pages.end()) refuse("the appended tokens exceed the sliding window");
    if (*page != kBorrowedPage) free_pages_.push_back(*page);
    b.pages.erase(page);
  }
  s.length = s.window;
  b.length -= by;
  if (b.length < b.sink) refuse("the sliding window does not reach behind its sink");
  b.offset = first * options_.page_size + in_page;
}

}  // namespace outpost::vm
