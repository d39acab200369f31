#include "thread/workspace.h"

#include <gtest/gtest.h>

#include <cstring>

#include "raised.h"

namespace outpost::vm {
namespace {

TEST(Workspace, IsAlignedAndUsable) {
  void* a = allocate_workspace(1, 0, 10);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0U);
  std::memset(a, 1, 4096);
  EXPECT_EQ(free_workspace(1, 0, a), 0);
}

TEST(Workspace, AFreedBlockServesTheNextOfItsSize) {
  void* small = allocate_workspace(1, 0, 4096);
  void* large = allocate_workspace(1, 0, 3 * 4096);
  EXPECT_EQ(free_workspace(1, 0, large), 0);
  EXPECT_EQ(free_workspace(1, 0, small), 0);
  EXPECT_EQ(allocate_workspace(1, 0, 4000), small);
  EXPECT_EQ(allocate_workspace(1, 0, 4000), large) << "the smallest free block that fits";
  EXPECT_EQ(free_workspace(1, 0, small), 0);
  EXPECT_EQ(free_workspace(1, 0, large), 0);
}

TEST(Workspace, ALargeRequestReplacesTheLargestFreeBlock) {
  void* a = allocate_workspace(1, 3, 4096);
  EXPECT_EQ(free_workspace(1, 3, a), 0);
  void* b = allocate_workspace(1, 3, 1 << 20);
  ASSERT_NE(b, nullptr);
  std::memset(b, 1, 1 << 20);
  EXPECT_EQ(free_workspace(1, 3, b), 0);
}

TEST(Workspace, RefusesWhatItCannotDo) {
  int x = 0;
  EXPECT_EQ(free_workspace(1, 0, &x), -1);
  EXPECT_EQ(take_raised_error(), "workspace freed that this thread did not allocate");
  EXPECT_EQ(allocate_workspace(1, 0, ~std::uint64_t{0}), nullptr);
  EXPECT_TRUE(take_raised_error());
  EXPECT_EQ(allocate_workspace(2, 0, 64), nullptr);
  EXPECT_EQ(take_raised_error(), "Device API cuda is not enabled.");
}
}  // namespace
}  // namespace outpost::vm
