#include "core/registration.h"

#include <gtest/gtest.h>

namespace outpost::rpc {
namespace {

using namespace std::chrono_literals;
using Kind = Registration::Action::Kind;
using FactKind = Registration::Fact::Kind;

/// A scripted tracker: the test says what happens and when, and looks at what is asked for.
class RegistrationTest : public testing::Test {
 protected:
  Registration make(std::size_t slots, std::optional<std::string> custom = std::nullopt) {
    return Registration{{.key = "pi4", .port = 9091, .custom_addr = std::move(custom)},
                        slots,
                        [this] { return ++random_; }};
  }
  static std::string key(int number) {
    return fmt::format("pi4:{:016x}{:016x}", 2 * number - 1, 2 * number);
  }
  /// Messages of all sends so far, without their lengths.
  static std::vector<std::string> sent(Registration& r) {
    TrackerCutter cutter{kTrackerMessageBytesMax};
    for (const auto& action : r.take_actions())
      if (action.kind == Kind::send) cutter.feed(as_bytes(action.bytes));
    std::vector<std::string> out;
    while (const auto message = *cutter.next()) out.emplace_back(*message);
    return out;
  }
  static void say(Registration& r, Registration::Time now, std::string_view text) {
    std::vector<std::byte> raw;
    ByteWriter out{raw};
    out.le(static_cast<std::int32_t>(text.size()));
    out.text(text);
    r.received(now, raw);
  }
  /// Through connect and greeting; the questions asked then are returned.
  std::vector<std::string> greet(Registration& r) {
    r.take_actions();
    r.connected(now_, "10.0.0.7");
    EXPECT_EQ(r.take_actions().at(0).bytes, encode_tracker_magic());
    r.received(now_, as_bytes(encode_tracker_magic()));
    return sent(r);
  }
  void register_with(Registration& r, std::size_t puts) {
    r.start(now_);
    ASSERT_EQ(greet(r).size(), 1 + puts);
    for (std::size_t i = 0; i <= puts; ++i) say(r, now_, "0");
    ASSERT_TRUE(r.is_registered());
    r.take_facts();
  }
  std::vector<std::string> poll(Registration& r, std::string_view answer) {
    now_ = r.deadline();
    r.tick(now_);
    const auto asked = sent(r);
    EXPECT_EQ(asked, std::vector<std::string>{"[7]"});
    say(r, now_, answer);
    return sent(r);
  }

  Registration::Time now_{1h};
  std::uint64_t random_ = 0;
};

TEST_F(RegistrationTest, AnnouncesItselfAndOffersAKeyForEachFreeSlot) {
  auto r = make(2);
  r.start(now_);
  const auto asked = greet(r);
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0], R"([5, {"key": "server:pi4", "addr": [null, 9091]}])");
  EXPECT_EQ(asked[1], fmt::format(R"([3, "pi4", [9091, "{}"], null])", key(1)));
  EXPECT_EQ(asked[2], fmt::format(R"([3, "pi4", [9091, "{}"], null])", key(2)));
}

TEST_F(RegistrationTest, NamesTheAddressThatClientsGet) {
  auto r = make(1);
  r.start(now_);
  greet(r);
  say(r, now_, "0");
  EXPECT_EQ(r.take_facts().at(0).text, "10.0.0.7:9091");
}

TEST_F(RegistrationTest, HandsOutTheCustomAddressInBothMessages) {
  auto r = make(1, "192.0.2.1");
  r.start(now_);
  const auto asked = greet(r);
  EXPECT_EQ(asked[0], R"([5, {"key": "server:pi4", "addr": ["192.0.2.1", 9091]}])");
  EXPECT_EQ(asked[1], fmt::format(R"([3, "pi4", [9091, "{}"], "192.0.2.1"])", key(1)));
}

TEST_F(RegistrationTest, UsesUpAKeyWithItsClientAndOffersANewOneAfterTheSession) {
  auto r = make(1);
  register_with(r, 1);
  EXPECT_TRUE(r.take(key(1)));
  EXPECT_FALSE(r.take(key(1)));
  r.set_free_slots(now_, 0);
  EXPECT_TRUE(sent(r).empty());
  r.set_free_slots(now_, 1);
  EXPECT_EQ(sent(r).size(), 1u);
  EXPECT_TRUE(r.take(key(2)));
}

TEST_F(RegistrationTest, AsksNothingWhileEverySlotIsTaken) {
  auto r = make(1);
  register_with(r, 1);
  r.take(key(1));
  r.set_free_slots(now_, 0);
  now_ = r.deadline();
  r.tick(now_);
  EXPECT_TRUE(sent(r).empty());
}

TEST_F(RegistrationTest, RenewsAKeyThatFourPollsInARowDoNotShow) {
  auto r = make(1);
  register_with(r, 1);
  EXPECT_TRUE(poll(r, "[]").empty());
  EXPECT_TRUE(poll(r, fmt::format(R"(["{}"])", key(1))).empty());  // there again: counts anew
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(poll(r, "[]").empty());
  const auto put = poll(r, "[]");
  ASSERT_EQ(put.size(), 1u);
  EXPECT_NE(put[0].find(key(2)), std::string::npos);
  EXPECT_FALSE(r.take(key(1)));
  const auto facts = r.take_facts();
  ASSERT_EQ(facts.size(), 1u);
  EXPECT_EQ(facts[0].kind, FactKind::unused_key);
  EXPECT_EQ(facts[0].text, "10.0.0.7:9091");
}

TEST_F(RegistrationTest, DoesNotMissAKeyPutAfterThePollWasAsked) {
  auto r = make(1);
  register_with(r, 1);
  for (int i = 0; i < 3; ++i) poll(r, "[]");
  now_ = r.deadline();
  r.tick(now_);  // asks
  r.set_free_slots(now_, 2);
  sent(r);
  say(r, now_, "[]");  // the first key is renewed, the second is not judged
  EXPECT_TRUE(r.take(key(2)));
  EXPECT_TRUE(r.take(key(3)));
}

TEST_F(RegistrationTest, TriesAgainForEverWithBoundedWaits) {
  auto r = make(1);
  r.start(now_);
  auto longest = 0ms;
  for (int i = 0; i < 1000; ++i) {
    r.take_actions();
    r.lost(now_, "connection refused");
    const auto fact = r.take_facts().at(0);
    EXPECT_EQ(fact.kind, FactKind::failed);
    EXPECT_EQ(fact.count, static_cast<std::uint64_t>(i) + 1);
    longest = std::max(longest, fact.retry_in);
    now_ = r.deadline();
    r.tick(now_);
    ASSERT_EQ(r.take_actions().at(0).kind, Kind::connect);
  }
  EXPECT_LE(longest, 5000ms);
  EXPECT_GE(longest, 4000ms);
}

TEST_F(RegistrationTest, DoesNotHammerATrackerThatAcceptsAndCloses) {
  auto r = make(1);
  const auto began = now_;
  r.start(now_);
  int connects = 0;
  while (now_ < began + 60s) {
    connects += r.take_actions().at(0).kind == Kind::connect;
    r.connected(now_, "10.0.0.7");
    r.take_actions();
    r.lost(now_, "closed");
    now_ = r.deadline();
    r.tick(now_);
  }
  EXPECT_LE(connects, 20);
}

TEST_F(RegistrationTest, DoesNotHammerATrackerThatClosesJustAfterRegistration) {
  auto r = make(1);
  r.start(now_);
  auto last = 0ms;
  for (int i = 0; i < 10; ++i) {
    greet(r);
    say(r, now_, "0");
    r.lost(now_, "closed");
    last = r.take_facts().back().retry_in;
    now_ = r.deadline();
    r.tick(now_);
  }
  EXPECT_GE(last, 4000ms);
}

TEST_F(RegistrationTest, ReturnsFastAfterARegistrationThatLasted) {
  auto r = make(1);
  register_with(r, 1);
  now_ += 1h;
  r.lost(now_, "closed");
  const auto fact = r.take_facts().at(0);
  EXPECT_EQ(fact.kind, FactKind::lost);
  EXPECT_LE(fact.retry_in, 500ms);
}

TEST_F(RegistrationTest, StartsOverWithNewKeysAfterAnOutage) {
  auto r = make(1);
  register_with(r, 1);
  r.lost(now_, "closed");
  now_ = r.deadline();
  r.tick(now_);
  const auto asked = greet(r);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_FALSE(r.take(key(1)));
  const auto at = asked[1].find("pi4:");
  EXPECT_TRUE(r.take(asked[1].substr(at, 36)));
}

TEST_F(RegistrationTest, HonoursAKeyHandedOutJustBeforeAnOutage) {
  auto r = make(1);
  register_with(r, 1);
  r.lost(now_, "closed");
  EXPECT_TRUE(r.take(key(1)));
}

TEST_F(RegistrationTest, OffersNothingWhenItRegistersDuringASession) {
  auto r = make(0);
  r.start(now_);
  EXPECT_EQ(greet(r).size(), 1u);
}

struct Silent {
  const char* name;
  int steps;  // 0: no connection, 1: no magic, 2: no answer
  const char* says;
};
void PrintTo(const Silent& s, std::ostream* out) {
  *out << s.name;
}
class SilentTracker : public RegistrationTest, public testing::WithParamInterface<Silent> {};
TEST_P(SilentTracker, IsLeftAfterTheDeadline) {
  auto r = make(1);
  r.start(now_);
  r.take_actions();
  if (GetParam().steps > 0) r.connected(now_, "10.0.0.7");
  if (GetParam().steps > 1) r.received(now_, as_bytes(encode_tracker_magic()));
  r.take_actions();
  r.tick(r.deadline());
  EXPECT_EQ(r.take_actions().at(0).kind, Kind::close);
  EXPECT_EQ(r.take_facts().at(0).text, GetParam().says);
}
INSTANTIATE_TEST_SUITE_P(Registration, SilentTracker,
                         testing::Values(Silent{"connect", 0, "no connection within 3000 ms"},
                                         Silent{"magic", 1, "no answer within 10000 ms"},
                                         Silent{"answer", 2, "no answer within 10000 ms"}));

class BadAnswer : public RegistrationTest, public testing::WithParamInterface<const char*> {};
TEST_P(BadAnswer, ClosesTheConnectionAndTriesAgainLater) {
  auto r = make(1);
  r.start(now_);
  greet(r);
  say(r, now_, GetParam());
  EXPECT_EQ(r.take_actions().at(0).kind, Kind::close);
  EXPECT_EQ(r.take_facts().at(0).kind, FactKind::failed);
  EXPECT_GT(r.deadline(), now_);
}
INSTANTIATE_TEST_SUITE_P(Registration, BadAnswer, testing::Values("-1", "[]", "{", "null"));

TEST_F(RegistrationTest, ClosesAndStaysSilentWhenStopped) {
  auto r = make(1);
  register_with(r, 1);
  r.stop();
  EXPECT_EQ(r.take_actions().at(0).kind, Kind::close);
  EXPECT_EQ(r.deadline(), Registration::Time::max());
  r.lost(now_, "closed");
  r.set_free_slots(now_, 3);
  EXPECT_TRUE(r.take_actions().empty());
  EXPECT_TRUE(r.take_facts().empty());
}

}  // namespace
}  // namespace outpost::rpc
