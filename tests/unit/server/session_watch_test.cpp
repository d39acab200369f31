#include "server/session_watch.h"

#include <gtest/gtest.h>

namespace outpost::server {
namespace {

using namespace std::chrono_literals;
using Do = SessionWatch::Do;

class SessionWatchTest : public testing::Test {
 protected:
  SessionWatch watch(std::optional<double> timeout) { return {{}, now_, timeout}; }
  /// Advances to the next deadline and ticks.
  Do tick(SessionWatch& w) { return w.tick(now_ = w.deadline()); }
  SessionWatch::Time now_{1h};
};

TEST_F(SessionWatchTest, WaitsForEverWithoutALimit) {
  EXPECT_EQ(watch(std::nullopt).deadline(), SessionWatch::Time::max());
  EXPECT_EQ(watch(1e300).deadline(), SessionWatch::Time::max());
}

TEST_F(SessionWatchTest, TakesTheTurnAtTheLimitThenKillsWithWords) {
  auto w = watch(2.5);
  EXPECT_EQ(w.deadline(), now_ + 2500ms);
  EXPECT_EQ(w.tick(now_ + 2499ms), Do::nothing);
  EXPECT_EQ(tick(w), Do::take_turn);
  EXPECT_EQ(w.turn(now_, true), Do::kill);
  EXPECT_EQ(w.cause(), EndCause::timed_out);
  EXPECT_TRUE(w.may_write());
  EXPECT_EQ(w.deadline(), SessionWatch::Time::max());
}

TEST_F(SessionWatchTest, ExpiresAtOnceForZeroAndLess) {
  for (const double limit : {0.0, -1.0, -1e300}) {
    auto w = watch(limit);
    EXPECT_EQ(w.deadline(), now_);
    EXPECT_EQ(w.tick(now_), Do::take_turn);
  }
}

TEST_F(SessionWatchTest, WaitsForAnAnswerThatIsBeingSent) {
  auto w = watch(1);
  tick(w);
  EXPECT_EQ(w.turn(now_, false), Do::nothing);
  EXPECT_EQ(tick(w), Do::take_turn);
  EXPECT_EQ(w.turn(now_, true), Do::kill);
  EXPECT_TRUE(w.may_write());
}

TEST_F(SessionWatchTest, CutsAnAnswerThatTakesLongerThanTheGrace) {
  auto w = watch(1);
  const auto limit = w.deadline();
  auto what = tick(w);
  while (what == Do::take_turn) {
    what = w.turn(now_, false);
    if (what == Do::nothing) what = tick(w);
  }
  EXPECT_EQ(what, Do::kill);
  EXPECT_FALSE(w.may_write());
  EXPECT_GE(now_, limit + 500ms);
  EXPECT_LE(now_, limit + 510ms);
}

TEST_F(SessionWatchTest, KillsAfterAClientThatLeftNothingUnread) {
  auto w = watch(std::nullopt);
  EXPECT_EQ(w.client_gone(now_), Do::nothing);
  EXPECT_EQ(w.deadline(), now_ + 200ms);
  EXPECT_EQ(tick(w), Do::look);
  EXPECT_EQ(w.unread(now_, 0), Do::kill);
  EXPECT_EQ(w.cause(), EndCause::client_gone);
  EXPECT_FALSE(w.may_write());
}

TEST_F(SessionWatchTest, LetsAWorkerReadWhatItsClientSentBeforeItLeft) {
  auto w = watch(std::nullopt);
  w.client_gone(now_);
  for (const std::uint64_t left : {3000u, 2000u, 1u}) {
    EXPECT_EQ(tick(w), Do::look);
    EXPECT_EQ(w.unread(now_, left), Do::nothing);
  }
  EXPECT_EQ(tick(w), Do::look);
  EXPECT_EQ(w.unread(now_, 1), Do::kill);  // no progress
}

TEST_F(SessionWatchTest, KeepsTheSessionsLimitWhileAClientLeaves) {
  auto w = watch(0.1);
  w.client_gone(now_);
  EXPECT_EQ(w.deadline(), now_ + 100ms);
  EXPECT_EQ(tick(w), Do::take_turn);
  w.turn(now_, true);
  EXPECT_EQ(w.cause(), EndCause::timed_out);
}

TEST_F(SessionWatchTest, StopsARunningSession) {
  auto w = watch(10);
  EXPECT_EQ(w.stop(now_), Do::take_turn);
  EXPECT_EQ(w.turn(now_, true), Do::kill);
  EXPECT_EQ(w.cause(), EndCause::stopping);
}

TEST_F(SessionWatchTest, DoesNothingMoreOnceItHasKilled) {
  auto w = watch(1);
  tick(w);
  w.turn(now_, true);
  EXPECT_EQ(w.tick(now_ + 1h), Do::nothing);
  EXPECT_EQ(w.client_gone(now_), Do::nothing);
  EXPECT_EQ(w.stop(now_), Do::nothing);
  EXPECT_EQ(w.turn(now_, true), Do::nothing);
  EXPECT_EQ(w.unread(now_, 0), Do::nothing);
  EXPECT_EQ(w.cause(), EndCause::timed_out);
}

}  // namespace
}  // namespace outpost::server
