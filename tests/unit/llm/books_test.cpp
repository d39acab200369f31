// The books of the paged cache against a model: what each sequence reads is what was appended.
#include <gtest/gtest.h>
#include <tvm/ffi/error.h>

#include <random>

#include "llm/paged_books.h"

namespace outpost::vm {
namespace {

class Model {
 public:
  explicit Model(bool sliding)
      : options_{.sequences_max = 4, .pages = 24, .page_size = 4, .chunk = 64, .sliding = sliding},
        books_{options_},
        memory_(static_cast<std::size_t>(24 * 4), -1) {}

  /// Runs one step; after a refusal everything must be as before.
  template <class F>
  bool step(F&& f) {
    const auto before = books_;
    try {
      f();
      return true;
    } catch (const tvm::ffi::Error&) {
      books_ = before;  // as the cache does
      return false;
    }
  }
  void add(std::int64_t id) {
    if (step([&] { books_.add(id); })) tokens_[id] = {};
  }
  void remove(std::int64_t id) {
    if (step([&] { books_.remove(id); })) forget(id);
  }
  void fork(std::int64_t parent, std::int64_t child, std::int64_t at) {
    if (!step([&] { books_.fork(parent, child, at, copy()); })) return;
    tokens_[child] = tokens_[parent];
    tokens_[child].resize(static_cast<std::size_t>(at));
  }
  void popn(std::int64_t id, std::int64_t n) {
    if (step([&] { books_.popn(id, n, copy()); }))
      tokens_[id].resize(tokens_[id].size() - static_cast<std::size_t>(n));
  }
  void window(std::int64_t id, std::int64_t size, std::int64_t sink) {
    if (step([&] { books_.enable_window(id, size, sink); })) windows_[id] = {size, sink};
  }
  void append(std::int64_t id, std::int64_t n) {
    PagedBooks::Batch batch;
    if (!step([&] { batch = books_.begin({id}, {n}, std::nullopt); })) return;
    for (const auto place : batch.append_positions) {
      tokens_[id].push_back(next_);
      if (place >= 0) memory_[static_cast<std::size_t>(place)] = next_;
      ++next_;
    }
    const auto w = windows_.find(id);
    if (w == windows_.end()) return;
    auto& t = tokens_[id];
    if (const auto over = std::ssize(t) - w->second.first; over > 0)
      t.erase(t.begin() + w->second.second, t.begin() + w->second.second + over);
  }
  void check() const {
    std::int64_t total = 0;
    for (const auto& [id, tokens] : tokens_) {
      ASSERT_EQ(books_.length(id), std::ssize(tokens)) << "sequence " << id;
      std::vector<int> read;
      for (const auto place : books_.positions(id, 0, std::ssize(tokens)))
        read.push_back(memory_[static_cast<std::size_t>(place)]);
      ASSERT_EQ(read, tokens) << "sequence " << id;
      total += std::ssize(tokens);
    }
    ASSERT_EQ(books_.total_length(), total);
    ASSERT_EQ(books_.empty(), tokens_.empty());
  }
  void forget(std::int64_t id) {
    tokens_.erase(id);
    windows_.erase(id);
  }
  const PagedBooks& books() const { return books_; }
  std::int64_t length(std::int64_t id) const {
    const auto it = tokens_.find(id);
    return it == tokens_.end() ? 0 : std::ssize(it->second);
  }

 private:
  PagedBooks::CopyPage copy() {
    return [this](std::int32_t from, std::int32_t to, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i)
        memory_[static_cast<std::size_t>(to * 4 + i)] =
            memory_[static_cast<std::size_t>(from * 4 + i)];
    };
  }
  PagedBooks::Options options_;
  PagedBooks books_;
  std::vector<int> memory_;
  std::map<std::int64_t, std::vector<int>> tokens_;
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> windows_;
  int next_ = 0;
};

TEST(PagedBooks, SequencesReadWhatTheyAppended) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random{seed};
    const auto below = [&random](std::int64_t n) {
      return std::uniform_int_distribution<std::int64_t>{0, n - 1}(random);
    };
    Model m{false};
    for (int i = 0; i < 60; ++i) {
      const auto id = below(5);
      switch (below(6)) {
        case 0:
          m.add(id);
          break;
        case 1:
          if (below(3) == 0) m.remove(id);
          break;
        case 2:
          m.fork(id, below(5), below(m.length(id) + 1));
          break;
        case 3:
          m.popn(id, below(m.length(id) + 1));
          break;
        default:
          m.append(id, 1 + below(9));
      }
      ASSERT_NO_FATAL_FAILURE(m.check()) << "step " << i;
    }
    for (std::int64_t id = 0; id < 5; ++id) m.remove(id);
    EXPECT_EQ(m.books().available_pages(), 24);
    EXPECT_TRUE(m.books().empty());
  }
}

TEST(PagedBooks, WindowKeepsTheSinkAndTheLatest) {
  for (std::int64_t sink = 0; sink < 9; ++sink) {
    SCOPED_TRACE(sink);
    Model m{true};
    m.add(0);
    m.window(0, 16, sink);
    for (int i = 0; i < 40; ++i) {
      m.append(0, 1 + i % 3);
      ASSERT_NO_FATAL_FAILURE(m.check()) << "step " << i;
    }
    m.add(1);
    m.append(1, 20);
    m.popn(0, 1);  // once it has slid: no page of the rest may be given away
    m.append(1, 8);
    ASSERT_NO_FATAL_FAILURE(m.check());
    m.append(0, 1);
    ASSERT_NO_FATAL_FAILURE(m.check());
  }
}

TEST(PagedBooks, ForkInsideTheSinkAfterSlidingLeavesTheParentRight) {
  Model m{true};
  m.add(0);
  m.window(0, 16, 8);
  for (int i = 0; i < 30; ++i) m.append(0, 1);
  m.fork(0, 1, 5);
  ASSERT_NO_FATAL_FAILURE(m.check());
  for (int i = 0; i < 20; ++i) {
    m.append(0, 1);
    m.append(1, 1);
    ASSERT_NO_FATAL_FAILURE(m.check()) << "step " << i;
  }
}

TEST(PagedBooks, MisuseIsRefused) {
  PagedBooks b{{.sequences_max = 1, .pages = 2, .page_size = 4, .chunk = 8}};
  b.add(7);
  EXPECT_THROW(b.add(7), tvm::ffi::Error);
  EXPECT_THROW(b.add(8), tvm::ffi::Error);
  EXPECT_THROW(b.begin({}, {}, std::nullopt), tvm::ffi::Error);
  EXPECT_THROW(b.begin({7, 7}, {1, 1}, std::nullopt), tvm::ffi::Error);
  EXPECT_THROW(b.begin({7}, {0}, std::nullopt), tvm::ffi::Error);
  EXPECT_THROW(b.begin({7}, {9}, std::nullopt), tvm::ffi::Error);
  EXPECT_THROW(b.begin({7}, {2}, std::vector<std::int64_t>{-1, 1}), tvm::ffi::Error);
  EXPECT_THROW(b.begin({7}, {2}, std::vector<std::int64_t>{-2, 0}), tvm::ffi::Error);
  EXPECT_THROW(b.enable_window(7, 4, 1), tvm::ffi::Error);
}

}  // namespace
}  // namespace outpost::vm
