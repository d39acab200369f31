#include "broker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

namespace outpost::tracker {
namespace {

using namespace std::chrono_literals;

constexpr ConnId board{1}, board2{2}, alice{11}, bob{12}, carol{13};

/// A broker whose grants read as "who got what".
class Table {
 public:
  explicit Table(const BrokerLimits& limits = {}) : broker{limits} {}

  std::string put(ConnId who, const std::string& key, const std::string& match_key, Time now = 0s) {
    std::vector<Grant> grants;
    const auto done = broker.put(who, key, {"10.0.0.4", 9090, match_key}, now, grants);
    if (done.has_error()) return done.error().text;
    if (*done == Broker::Put::duplicate) return "duplicate";
    return told(grants);
  }
  std::string ask(ConnId who, const std::string& key, double priority = 1, Time now = 0s) {
    std::vector<Grant> grants;
    const auto done = broker.request(who, {.key = key, .priority = priority}, now, grants);
    return done.has_error() ? done.error().text : told(grants);
  }
  std::string ask_for(ConnId who, const Ask& ask, Time now = 0s) {
    std::vector<Grant> grants;
    const auto done = broker.request(who, ask, now, grants);
    return done.has_error() ? done.error().text : told(grants);
  }
  std::string gone(ConnId who, Time now = 0s) {
    std::vector<Grant> grants;
    broker.gone(who, now, grants);
    return told(grants);
  }
  std::vector<ConnId> tick(Time now) { return broker.tick(now, refusals); }
  std::string heard(ConnId who, Time now) {
    std::vector<Grant> grants;
    broker.heard(who, now, grants);
    return told(grants);
  }
  static std::string told(const std::vector<Grant>& grants) {
    std::string out;
    for (const auto& g : grants)
      out += fmt::format("{}{}<-{}", out.empty() ? "" : " ", static_cast<std::uint64_t>(g.client),
                         g.offer.match_key);
    return out;
  }
  Broker broker;
  std::vector<Refusal> refusals;
};

TEST(Broker, HandsAFreedBoardToTheLargestPriorityThenTheOldest) {
  Table t;
  EXPECT_EQ(t.ask(alice, "pi4", 0), "");
  EXPECT_EQ(t.ask(bob, "pi4", 5), "");
  EXPECT_EQ(t.ask(carol, "pi4", 5), "");
  EXPECT_EQ(t.put(board, "pi4", "pi4:a"), "12<-pi4:a");
  EXPECT_EQ(t.put(board, "pi4", "pi4:b"), "13<-pi4:b");
  EXPECT_EQ(t.put(board, "pi4", "pi4:c"), "11<-pi4:c");
}

TEST(Broker, HandsOutFreeBoardsInTheOrderTheyCame) {
  Table t;
  t.put(board, "pi4", "pi4:a");
  t.put(board2, "pi4", "pi4:b");
  EXPECT_EQ(t.ask(alice, "pi4"), "11<-pi4:a");
  EXPECT_EQ(t.ask(alice, "pi4"), "11<-pi4:b");
}

TEST(Broker, KeepsKeysApart) {
  Table t;
  t.put(board, "a:b", "a:b:1");
  EXPECT_EQ(t.ask(alice, "a"), "");
  EXPECT_EQ(t.ask(alice, "a:b"), "11<-a:b:1");
}

TEST(Broker, ComparesFractionsAndNegativePriorities) {
  Table t;
  t.ask(alice, "k", -1);
  t.ask(bob, "k", 0.5);
  t.ask(carol, "k", 0.25);
  EXPECT_EQ(t.put(board, "k", "k:1"), "12<-k:1");
  EXPECT_EQ(t.put(board, "k", "k:2"), "13<-k:2");
}

TEST(Broker, AnswersOneRequestForAMatchKeyThatWasPutTwice) {
  Table t;
  t.put(board, "k", "k:1");
  EXPECT_EQ(t.put(board, "k", "k:1"), "duplicate");
  EXPECT_EQ(t.put(board2, "k", "k:1"), "duplicate");
  EXPECT_EQ(t.ask(alice, "k"), "11<-k:1");
  EXPECT_EQ(t.ask(bob, "k"), "");
  EXPECT_EQ(t.put(board, "k", "k:1"), "duplicate");  // used is used
  EXPECT_EQ(t.broker.queue("k").pending, 1U);
}

TEST(Broker, AllowsAMatchKeyAgainWhenItsConnectionIsGone) {
  Table t;
  t.put(board, "k", "k:1");
  t.gone(board);
  EXPECT_EQ(t.put(board2, "k", "k:1"), "");
  EXPECT_EQ(t.ask(alice, "k"), "11<-k:1");
}

TEST(Broker, WithdrawsWhatAGoneConnectionOwned) {
  Table t;
  t.put(board, "k", "none");  // no colon: belongs to its connection all the same
  t.ask(alice, "other", 9);
  t.gone(board);
  t.gone(alice);
  t.gone(carol);  // never seen
  EXPECT_EQ(t.broker.queue("k").free, 0U);
  EXPECT_EQ(t.broker.queue("other").pending, 0U);
  EXPECT_EQ(t.ask(bob, "other"), "");
  EXPECT_EQ(t.put(board2, "other", "other:1"), "12<-other:1");
}

TEST(Broker, ListsUntakenMatchKeysOfTheConnection) {
  Table t;
  t.put(board, "a", "a:1");
  t.put(board, "b", "b:1");
  t.put(board2, "a", "a:2");
  t.ask(alice, "a");
  EXPECT_EQ(t.broker.match_keys(board), std::vector<std::string>{"b:1"});
  EXPECT_TRUE(t.broker.match_keys(alice).empty());
}

TEST(Broker, RemembersEveryKeyInOrderOfFirstUse) {
  Table t;
  t.ask(alice, "z");
  t.put(board, "a", "a:1");
  t.ask(bob, "a");
  std::string told;
  for (const auto& q : t.broker.queues())
    told += fmt::format("{}={}/{} ", q.key, q.free, q.pending);
  EXPECT_EQ(told, "z=0/1 a=0/0 ");
}

TEST(Broker, DoesNotHandOutABoardThatFellSilent) {
  Table t;
  t.put(board, "k", "k:1", 0s);
  EXPECT_EQ(*t.broker.next_deadline(), 10s);
  EXPECT_TRUE(t.tick(9999ms).empty());
  EXPECT_EQ(t.tick(10s), std::vector<ConnId>{board});
  EXPECT_FALSE(t.broker.next_deadline());
  EXPECT_EQ(t.broker.queue("k").free, 0U);
  EXPECT_EQ(t.ask(alice, "k", 1, 11s), "");
  EXPECT_EQ(t.broker.match_keys(board), std::vector<std::string>{"k:1"});
  EXPECT_EQ(t.broker.board(board).state, BoardState::suspect);
  EXPECT_EQ(t.heard(board, 12s), "11<-k:1");
  EXPECT_EQ(t.broker.board(board).state, BoardState::busy);
}

TEST(Broker, GivesABoardThatWokeUpItsOldPlace) {
  Table t;
  t.put(board, "k", "k:1", 0s);
  t.put(board2, "k", "k:2", 1s);
  t.tick(10s);
  t.heard(board2, 10s);
  t.heard(board, 10s);
  EXPECT_EQ(t.ask(alice, "k", 1, 10s), "11<-k:1");
}

TEST(Broker, TrustsABoardThatKeepsAsking) {
  Table t;
  t.put(board, "k", "k:1", 0s);
  for (Time now = 2s; now < 60s; now += 2s) {
    t.heard(board, now);
    EXPECT_TRUE(t.tick(now).empty());
  }
  EXPECT_EQ(t.ask(alice, "k", 1, 60s), "11<-k:1");
  EXPECT_FALSE(t.broker.next_deadline());  // in a session it says nothing, and may
}

TEST(Broker, WithdrawsASuspectForGood) {
  Table t;
  t.put(board, "k", "k:1", 0s);
  t.tick(10s);
  t.gone(board);
  EXPECT_EQ(t.heard(board, 11s), "");
  EXPECT_EQ(t.ask(alice, "k", 1, 12s), "");
}

TEST(Broker, KnowsWhatABoardDoesAndSinceWhen) {
  Table t;
  EXPECT_EQ(t.broker.board(board).state, BoardState::away);
  EXPECT_FALSE(t.broker.board(board).since);
  t.put(board, "k", "k:1", 1s);
  EXPECT_EQ(t.broker.board(board).state, BoardState::free);
  t.ask(alice, "k", 1, 5s);
  EXPECT_EQ(t.broker.board(board).state, BoardState::busy);
  EXPECT_EQ(t.broker.board(board).since, 5s);
  t.put(board, "k", "k:2", 9s);
  EXPECT_EQ(t.broker.board(board).state, BoardState::free);
  EXPECT_EQ(t.broker.board(board).since, 9s);
}

TEST(Broker, BoundsWhatPeersMakeItKeep) {
  Table t{{.order = {},
           .requests_per_connection_max = 2,
           .offers_per_connection_max = 1,
           .keys_max = 2,
           .key_bytes_max = 8}};
  EXPECT_EQ(t.ask(alice, "123456789"), "key of 9 bytes exceeds key_bytes_max 8");
  EXPECT_EQ(t.put(board, "k", "123456789"), "match key of 9 bytes exceeds key_bytes_max 8");
  EXPECT_EQ(t.put(board, "k", "k:1"), "");
  EXPECT_EQ(t.put(board, "k", "k:2"), "more than offers_per_connection_max 1 free devices");
  t.ask(alice, "x");
  t.ask(alice, "x");
  EXPECT_EQ(t.ask(alice, "x"), "more than requests_per_connection_max 2 waiting requests");
  EXPECT_EQ(t.ask(bob, "y"), "more than keys_max 2 keys in use");
  t.gone(alice);
  EXPECT_EQ(t.ask(bob, "y"), "");  // the idle key made room
}

Tags tags(std::string_view json) {
  return *read_tags(json);
}

TEST(Broker, GivesABoardOnlyToWhoItFits) {
  Table t;
  std::vector<Grant> grants;
  ASSERT_TRUE(t.broker.set_tags(board, tags(R"({"mem": 1024})"), 0s, grants));
  t.put(board, "k", "k:small");
  ASSERT_TRUE(t.broker.set_tags(board2, tags(R"({"mem": 8192})"), 0s, grants));
  t.put(board2, "k", "k:large");
  EXPECT_EQ(t.ask_for(alice, {.key = "k", .need = "mem>=4096"}), "11<-k:large");
  EXPECT_EQ(t.ask_for(bob, {.key = "k", .need = "mem>=4096"}), "");
  EXPECT_EQ(t.ask(carol, "k"), "13<-k:small");
  EXPECT_EQ(t.put(board, "k", "k:small2"), "");
  EXPECT_EQ(t.put(board2, "k", "k:large2"), "12<-k:large2");
}

TEST(Broker, SparesTheBoardThatOthersNeed) {
  Table t;
  std::vector<Grant> grants;
  ASSERT_TRUE(t.broker.set_tags(board, tags(R"(["gpu"])"), 0s, grants));
  t.ask_for(bob, {.key = "k", .need = "gpu", .wait = 1s});
  t.put(board, "k", "k:gpu");  // goes to bob, and makes the wish for a gpu known
  t.put(board, "k", "k:gpu2");
  t.put(board2, "k", "k:plain");
  EXPECT_EQ(t.ask(alice, "k"), "11<-k:plain");  // though the other one is free for longer
  EXPECT_EQ(t.ask(alice, "k"), "11<-k:gpu2");
}

TEST(Broker, MovesFreeBoardsWhenTheirTagsChange) {
  Table t;
  std::vector<Grant> grants;
  t.put(board, "k", "k:1");
  t.ask_for(alice, {.key = "k", .need = "fp16", .wait = 60s});
  ASSERT_TRUE(t.broker.set_tags(board, tags(R"(["fp16"])"), 0s, grants));
  EXPECT_EQ(Table::told(grants), "11<-k:1");
  EXPECT_EQ(t.broker.queue("k").free, 0U);
}

TEST(Broker, SaysAtOnceThatNoBoardCanMeetACondition) {
  Table t;
  EXPECT_EQ(t.ask_for(alice, {.key = "k", .need = "fp16"}), "");  // no board at all: one may come
  t.put(board, "k", "k:1");
  EXPECT_EQ(t.ask_for(bob, {.key = "k", .need = "gpu"}), "no board of key 'k' meets 'gpu'");
  EXPECT_EQ(t.ask_for(bob, {.key = "k", .need = "gpu", .wait = 5s}), "");
  EXPECT_EQ(t.ask_for(bob, {.key = "k", .need = "x>="}).substr(0, 16), "condition 'x>=' ");
}

TEST(Broker, EndsAWaitThatHasALimitAndSaysWhy) {
  Table t;
  t.ask_for(alice, {.key = "k", .wait = 5s}, 1s);
  t.ask_for(bob, {.key = "k", .wait = 9s}, 2s);
  EXPECT_EQ(*t.broker.next_deadline(), 6s);
  t.tick(6s);
  ASSERT_EQ(t.refusals.size(), 1U);
  EXPECT_EQ(t.refusals[0].client, alice);
  EXPECT_EQ(t.refusals[0].why,
            "no device within 5 s: place 1 of 2 for 'k', no board is registered");
  EXPECT_EQ(t.put(board, "k", "k:1", 7s), "12<-k:1");
}

TEST(Broker, HoldsAUserToItsNumberOfBoards) {
  BrokerLimits limits;
  limits.held_per_user_max = 1;
  limits.waiting_per_user_max = 2;
  Table t{limits};
  t.put(board, "k", "k:1");
  t.put(board2, "k", "k:2");
  EXPECT_EQ(t.ask_for(alice, {.key = "k", .user = "ann"}), "11<-k:1");
  EXPECT_EQ(t.ask_for(alice, {.key = "k", .user = "ann"}), "");
  EXPECT_EQ(t.broker.reason(alice), "user 'ann' holds 1 devices, as many as allowed");
  EXPECT_EQ(t.ask_for(alice, {.key = "k", .user = "ann"}), "");
  EXPECT_EQ(t.ask_for(alice, {.key = "k", .user = "ann"}),
            "user 'ann' has 2 requests waiting, as many as allowed");
  EXPECT_EQ(t.ask_for(bob, {.key = "k", .user = "ben"}), "12<-k:2");
  EXPECT_EQ(t.gone(board2), "");                   // ben's; ann still holds hers
  EXPECT_EQ(t.put(board, "k", "k:3"), "11<-k:3");  // ann's is back, and so is her turn
}

TEST(Broker, TellsThePlaceInLine) {
  Table t;
  t.put(board, "k", "k:1");
  t.ask(carol, "k");
  t.ask(alice, "k", 1, 1s);
  t.ask(bob, "k", 5, 2s);
  EXPECT_EQ(t.broker.reason(bob), "place 1 of 2 for 'k', all boards are in use");
  EXPECT_EQ(t.broker.reason(alice), "place 2 of 2 for 'k', all boards are in use");
  EXPECT_EQ(t.broker.reason(carol), "");
}

TEST(Broker, AgesSoThatALevelOfPriorityIsWorthItsSeconds) {
  Table t;
  t.ask(alice, "k", 0, 0s);
  t.ask(bob, "k", 1, 899s);    // overtakes: 899 s later, but a level is worth 900
  t.ask(carol, "k", 1, 901s);  // does not
  EXPECT_EQ(t.put(board, "k", "k:1", 1000s), "12<-k:1");
  EXPECT_EQ(t.put(board, "k", "k:2", 1000s), "11<-k:2");
}

TEST(Broker, NeverAgesUnderTheStrictOrder) {
  BrokerLimits limits;
  limits.order.order = Order::strict;
  Table t{limits};
  t.ask(alice, "k", 0, 0s);
  t.ask(carol, "k", 1, 90000s);
  EXPECT_EQ(t.put(board, "k", "k:1", 90000s), "13<-k:1");
}

TEST(Broker, TakesTurnsUnderTheFairOrder) {
  BrokerLimits limits;
  limits.order.order = Order::fair;
  Table t{limits};
  for (int i = 0; i < 3; ++i) t.ask_for(alice, {.key = "k", .user = "ann"}, 0s);
  t.ask_for(bob, {.key = "k", .user = "ben"}, 1s);
  EXPECT_EQ(t.put(board, "k", "k:1", 2s), "11<-k:1");
  EXPECT_EQ(t.put(board, "k", "k:2", 3s), "12<-k:2");  // ann has had a turn since ben came
  EXPECT_EQ(t.put(board, "k", "k:3", 4s), "11<-k:3");
}

/// Grants of different keys have no order among them.
std::multiset<std::string> in_any_order(const std::string& told) {
  std::istringstream words{told};
  return {std::istream_iterator<std::string>{words}, {}};
}

/// The rules written down naively: every decision looks at everything.
struct Model {
  struct Free {
    int conn;
    std::string key, match;
    std::uint64_t at;
  };
  struct Wait {
    int conn;
    std::string key;
    int priority;
    std::uint64_t at;
  };
  std::vector<Free> free;
  std::vector<Wait> waiting;
  std::set<int> suspects;
  std::uint64_t clock = 0;

  std::string match() {
    std::string out;
    for (;;) {
      const Free* f = nullptr;
      const Wait* w = nullptr;
      for (const auto& candidate : free) {
        if (suspects.contains(candidate.conn)) continue;
        const Wait* best = nullptr;
        for (const auto& x : waiting)
          if (x.key == candidate.key && (!best || x.priority > best->priority ||
                                         (x.priority == best->priority && x.at < best->at)))
            best = &x;
        if (best && (!f || candidate.at < f->at)) f = &candidate, w = best;
      }
      if (!f) return out;
      out += fmt::format("{}{}<-{}", out.empty() ? "" : " ", w->conn, f->match);
      std::erase_if(waiting, [at = w->at](const Wait& x) { return x.at == at; });
      std::erase_if(free, [at = f->at](const Free& x) { return x.at == at; });
    }
  }
};

RC_GTEST_PROP(Broker, DecidesLikeTheNaiveModel, ()) {
  Table t;
  Model m;
  const std::vector<std::string> keys{"a", "b", "a:b"};
  const auto steps = *rc::gen::inRange(1, 120);
  for (int step = 0; step < steps; ++step) {
    const auto now = std::chrono::seconds{0};
    const int conn = *rc::gen::inRange(1, 6);
    const ConnId id{static_cast<std::uint64_t>(conn)};
    const auto& key = keys[*rc::gen::inRange<std::size_t>(0, keys.size())];
    switch (*rc::gen::weightedElement<int>({{6, 0}, {6, 1}, {1, 2}, {1, 3}})) {
      case 0: {
        const auto match = fmt::format("{}:{}", key, step);
        m.suspects.erase(conn);
        const auto woken = m.match();  // a put is a sign of life first
        m.free.push_back({conn, key, match, ++m.clock});
        const auto got = m.match();
        RC_ASSERT(in_any_order(t.put(id, key, match, now)) == in_any_order(woken + " " + got));
        break;
      }
      case 1: {
        const int priority = *rc::gen::inRange(-2, 3);
        m.waiting.push_back({conn, key, priority, ++m.clock});
        RC_ASSERT(t.ask(id, key, priority, now) == m.match());
        break;
      }
      case 2:
        m.suspects.erase(conn);
        std::erase_if(m.free, [&](const auto& f) { return f.conn == conn; });
        std::erase_if(m.waiting, [&](const auto& w) { return w.conn == conn; });
        t.gone(id);
        break;
      case 3: {  // everybody with a device falls silent; one of them speaks again
        for (const auto& f : m.free) m.suspects.insert(f.conn);
        t.tick(10s);
        m.suspects.erase(conn);
        RC_ASSERT(in_any_order(t.heard(id, now)) == in_any_order(m.match()));
        break;
      }
    }
    for (const auto& k : keys) {
      const auto q = t.broker.queue(k);
      RC_ASSERT(q.pending == static_cast<std::uint64_t>(
                                 std::count_if(m.waiting.begin(), m.waiting.end(),
                                               [&](const auto& w) { return w.key == k; })));
      RC_ASSERT(q.free == static_cast<std::uint64_t>(
                              std::count_if(m.free.begin(), m.free.end(), [&](const auto& f) {
                                return f.key == k && !m.suspects.contains(f.conn);
                              })));
    }
  }
}

}  // namespace
}  // namespace outpost::tracker
