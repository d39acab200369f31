#include "thread/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace outpost::vm {
namespace {
const std::vector<Core> kEqual{{0, 2000}, {1, 2000}, {2, 2000}, {3, 2000}};
const std::vector<Core> kBigLittle{{0, 1000}, {1, 1000}, {2, 2000}, {5, 2000}, {6, 2000}};

TEST(ThreadPlan, TheDefaultIsHalfOfTheProcessorsWhereTwoAreOneCore) {
  EXPECT_EQ(default_plan({}, kEqual, true), (ThreadPlan{2, {}}));
  EXPECT_EQ(default_plan({}, kEqual, false), (ThreadPlan{4, {}}));
  EXPECT_EQ(default_plan({}, {{0, 0}}, true), (ThreadPlan{1, {}}));
}

TEST(ThreadPlan, TheEnvironmentSaysHowManyAndWhetherToPin) {
  EXPECT_EQ(default_plan({.workers = 8}, kEqual, true).workers, 8);
  EXPECT_EQ(default_plan({.workers = 1 << 30}, kEqual, true).workers, kWorkersMax);
  EXPECT_EQ(default_plan({.workers = 3, .pin = true}, kBigLittle, true),
            (ThreadPlan{3, {{2}, {5}, {6}}}));
}

TEST(ThreadPlan, NumbersAreReadAsFarAsTheyGo) {
  EXPECT_EQ(leading_number("4x"), 4);
  for (const char* bad : {"", "abc", "0", "-3", " 4", "99999999999999999999"})
    EXPECT_FALSE(leading_number(bad)) << bad;
}

TEST(ThreadPlan, BigAndLittleTakeTheCoresOfTheirKind) {
  EXPECT_EQ(configured_plan(1, 0, {}, {}, kBigLittle, false), (ThreadPlan{3, {{2}, {5}, {6}}}));
  EXPECT_EQ(configured_plan(-1, 0, {}, {}, kBigLittle, false), (ThreadPlan{2, {{0}, {1}}}));
  EXPECT_EQ(configured_plan(-1, 1, {}, {}, kBigLittle, false), (ThreadPlan{1, {{0}}}));
}

TEST(ThreadPlan, OnEqualCoresOnlyTheCountMatters) {
  EXPECT_EQ(configured_plan(-1, 2, {}, {}, kEqual, true), (ThreadPlan{2, {}}));
  EXPECT_EQ(configured_plan(-1, 0, {}, {}, kEqual, true), (ThreadPlan{2, {}}));
  EXPECT_EQ(configured_plan(1, 99, {}, {}, kEqual, true), (ThreadPlan{4, {}}));
  EXPECT_EQ(configured_plan(7, 3, {}, {}, kEqual, true), (ThreadPlan{3, {}}));
}

TEST(ThreadPlan, AListSetsTheCountAndThePlaces) {
  EXPECT_EQ(configured_plan(-2, 0, {1, 3}, {}, kEqual, true), (ThreadPlan{2, {{1}, {3}}}));
  EXPECT_EQ(configured_plan(-3, 0, {1, 3}, {}, kEqual, true), (ThreadPlan{2, {{1, 3}, {1, 3}}}));
  EXPECT_EQ(configured_plan(-2, 3, {1, 3}, {}, kEqual, true), (ThreadPlan{3, {{1}, {3}, {1}}}));
  EXPECT_EQ(configured_plan(-2, 0, {}, {}, kEqual, true), (ThreadPlan{2, {}}));
}

TEST(ThreadPlan, IsBoundedWhateverIsAsked) {
  rc::check("workers and places fit", [](int mode, int threads, std::vector<int> listed) {
    const auto plan = configured_plan(mode % 5, threads, listed, {}, kBigLittle, true);
    RC_ASSERT(plan.workers >= 1 && plan.workers <= kWorkersMax);
    RC_ASSERT(plan.cores.empty() || plan.cores.size() == static_cast<std::size_t>(plan.workers));
  });
}

TEST(ThreadPlan, SpinsOnlyWhileEveryWorkerHasAProcessor) {
  EXPECT_GT(spin_rounds({}, 4, 4), 0);
  EXPECT_EQ(spin_rounds({}, 5, 4), 0);
  EXPECT_EQ(spin_rounds({.spin_rounds = 7}, 5, 4), 7);
}
}  // namespace
}  // namespace outpost::vm
