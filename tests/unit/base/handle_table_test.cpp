#include "base/handle_table.h"

#include <gtest/gtest.h>

#include <memory>

namespace outpost {
namespace {

TEST(HandleTable, ForgetsAHandleThatWasTaken) {
  HandleTable<std::unique_ptr<int>> table{8};
  const auto h = *table.add(std::make_unique<int>(7));
  EXPECT_EQ(**table.take(h), 7);
  EXPECT_EQ(table.find(h).error().code, Code::not_found);
  const auto next = *table.add(std::make_unique<int>(8));  // same slot, next generation
  EXPECT_NE(next, h);
  EXPECT_TRUE(table.find(h).has_error());
  EXPECT_TRUE(table.find(next));
}

TEST(HandleTable, RefusesForgedHandles) {
  HandleTable<int> table{8};
  (void)table.add(1);
  for (const std::uint64_t raw : {0ULL, 1ULL, 2ULL, ~0ULL, (2ULL << 32) | 1})
    EXPECT_TRUE(table.find(Handle{raw}).has_error()) << raw;
}

TEST(HandleTable, RefusesMoreThanItsLimit) {
  HandleTable<int> table{1};
  const auto h = *table.add(1);
  EXPECT_EQ(table.add(2).error().code, Code::limit);
  (void)table.take(h);
  EXPECT_TRUE(table.add(3));
}

}  // namespace
}  // namespace outpost
