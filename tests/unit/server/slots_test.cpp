#include "server/slots.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace outpost::server {
namespace {

TEST(Slots, GiveTurnsInOrderOfArrival) {
  Slots slots{1};
  slots.enter(SessionId{1});
  slots.enter(SessionId{2});
  slots.enter(SessionId{3});
  EXPECT_EQ(slots.next(), SessionId{1});
  EXPECT_EQ(slots.next(), std::nullopt);
  EXPECT_EQ(slots.place(SessionId{3}), 2u);
  slots.release();
  EXPECT_EQ(slots.next(), SessionId{2});
}

TEST(Slots, LetAWaitingOneGo) {
  Slots slots{1};
  slots.enter(SessionId{1});
  slots.enter(SessionId{2});
  slots.enter(SessionId{3});
  slots.next();
  EXPECT_FALSE(slots.leave(SessionId{1}));
  EXPECT_TRUE(slots.leave(SessionId{2}));
  slots.release();
  EXPECT_EQ(slots.next(), SessionId{3});
}

TEST(Slots, CountAWaitingClientAgainstTheFreeOnes) {
  Slots slots{3};
  slots.enter(SessionId{1});
  EXPECT_EQ(slots.free(), 2u);  // no worker is ready yet, but the slot is spoken for
  slots.next();
  EXPECT_EQ(slots.free(), 2u);
  slots.release();
  EXPECT_EQ(slots.free(), 3u);
}

RC_GTEST_PROP(Slots, NeverRunMoreThanTheirCountAndLoseNobody,
              (const std::vector<std::uint8_t>& steps)) {
  Slots slots{3};
  std::uint64_t entered = 0, started = 0, left = 0, running = 0;
  for (const auto step : steps) {
    if (step % 4 == 0) slots.enter(SessionId{++entered});
    if (step % 4 == 1 && slots.next()) ++started, ++running;
    if (step % 4 == 2 && running > 0) slots.release(), --running;
    if (step % 4 == 3) left += slots.leave(SessionId{step % 16U});
    RC_ASSERT(running == slots.used());
    RC_ASSERT(running <= 3u);
    RC_ASSERT(started + left + slots.waiting() == entered);
    RC_ASSERT(slots.free() + slots.used() <= 3u);
  }
}

}  // namespace
}  // namespace outpost::server
