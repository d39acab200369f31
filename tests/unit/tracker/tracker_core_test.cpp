#include "tracker_core.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "support/capture.h"

namespace outpost::tracker {
namespace {

using namespace std::chrono_literals;

std::string framed(std::string_view text) {
  std::string out(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) out[i] = static_cast<char>(text.size() >> (8 * i));
  return out += text;
}

/// Connections by name, speaking JSON texts; what each was sent waits in its inbox.
class Lab {
 public:
  explicit Lab(const CoreLimits& limits = {}, std::string stop_key = "") : core{limits, stop_key} {}

  void open(const std::string& who, const std::string& host = "10.0.0.4") {
    ids_[who] = ConnId{++last_};
    core.connected(ids_[who], host, now);
  }
  void join(const std::string& who, const std::string& host = "10.0.0.4") {
    open(who, host);
    raw(who, rpc::encode_tracker_magic());
    ASSERT_EQ(take_raw(who), rpc::encode_tracker_magic());
  }
  void raw(const std::string& who, std::string_view bytes) {
    Outcome out;
    core.received(ids_[who], as_bytes(bytes), now, out);
    keep(out);
  }
  void say(const std::string& who, std::string_view text) { raw(who, framed(text)); }
  /// Says it and gives the answer: "" when there is none yet, "closed: why" when it was closed.
  std::string ask(const std::string& who, std::string_view text) {
    say(who, text);
    return hear(who);
  }
  std::string hear(const std::string& who) {
    const auto bytes = take_raw(who);
    return bytes.empty() || bytes.starts_with("closed") ? bytes : bytes.substr(4);
  }
  std::string take_raw(const std::string& who) {
    auto& inbox = inbox_[ids_[who]];
    if (inbox.empty()) return "";
    auto first = inbox.front();
    inbox.pop_front();
    return first;
  }
  void leave(const std::string& who) {
    Outcome out;
    core.gone(ids_[who], now, out);
    keep(out);
  }
  void pass(Time by) {
    now += by;
    Outcome out;
    core.tick(now, out);
    keep(out);
  }
  void keep(const Outcome& out) {
    for (const auto& send : out.sends) inbox_[send.to].push_back(send.bytes);
    for (const auto& close : out.closes) inbox_[close.conn].push_back("closed: " + close.reason);
    facts.insert(facts.end(), out.facts.begin(), out.facts.end());
    stopped |= out.stop;
  }

  TrackerCore core;
  Time now{};
  std::vector<Fact> facts;
  bool stopped = false;

 private:
  std::map<std::string, ConnId> ids_;
  std::map<ConnId, std::deque<std::string>> inbox_;
  std::uint64_t last_ = 0;
};

TEST(TrackerCore, BringsABoardAndAClientTogether) {
  Lab lab;
  lab.join("board", "10.0.0.4");
  lab.join("client", "10.0.0.9");
  EXPECT_EQ(lab.ask("board", R"([5, {"key": "server:pi4", "addr": [null, 9091]}])"), "0");
  EXPECT_EQ(lab.ask("board", R"([3, "pi4", [9091, "pi4:0.5"], null])"), "0");
  EXPECT_EQ(lab.ask("board", "[7]"), R"(["pi4:0.5"])");
  EXPECT_EQ(lab.ask("client", R"([4, "pi4", "", 1])"), R"([0, ["10.0.0.4", 9091, "pi4:0.5"]])");
  EXPECT_EQ(lab.ask("board", "[7]"), "[]");
  EXPECT_EQ(lab.ask("client", "[6]"),
            R"([0, {"queue_info": {"pi4": {"free": 0, "pending": 0}}, "server_info": [)"
            R"({"key": "server:pi4", "addr": ["10.0.0.4", 9091]}]}])");
}

TEST(TrackerCore, HandsOutTheAddressThatTheServerNames) {
  Lab lab;
  lab.join("board");
  lab.join("client");
  lab.ask("board", R"([3, "k", [9091, "k:1"], "board.example"])");
  EXPECT_EQ(lab.ask("client", R"([4, "k", "", 1])"), R"([0, ["board.example", 9091, "k:1"]])");
}

TEST(TrackerCore, MergesALaterUpdateAndKeepsUnknownMembers) {
  Lab lab;
  lab.join("board");
  lab.ask("board", R"([5, {"key": "server:a", "addr": [null, "1"], "tags": ["x"]}])");
  lab.ask("board", R"([5, {"addr": ["h", 2], "more": 1}])");
  EXPECT_EQ(lab.ask("board", "[6]"),
            R"([0, {"queue_info": {}, "server_info": [)"
            R"({"key": "server:a", "addr": ["h", 2], "tags": ["x"], "more": 1}]}])");
}

TEST(TrackerCore, ListsOnlyConnectionsThatCallThemselvesServers) {
  Lab lab;
  lab.join("one");
  lab.ask("one", R"([5, {"key": "proxy:a", "addr": [null, 1]}])");
  EXPECT_EQ(lab.ask("one", "[6]"), R"([0, {"queue_info": {}, "server_info": []}])");
}

TEST(TrackerCore, ShowsKeysWithColonsAndForeignLetters) {
  Lab lab;
  lab.join("board");
  for (const std::string key : {"lab:a:b",
                                "l\xC3\xA4"
                                "b",
                                "\xF0\x9F\x98\x80"}) {
    lab.ask("board", fmt::format(R"([3, "{0}", [1, "{0}:0.5"]])", key));
  }
  EXPECT_EQ(lab.ask("board", "[6]"),
            R"([0, {"queue_info": {"lab:a:b": {"free": 1, "pending": 0}, "l\u00e4b": {"free": 1, )"
            R"("pending": 0}, "\ud83d\ude00": {"free": 1, "pending": 0}}, "server_info": []}])");
  lab.leave("board");
  lab.join("other");
  EXPECT_EQ(lab.ask("other", "[6]"),
            R"([0, {"queue_info": {"lab:a:b": {"free": 0, "pending": 0}, "l\u00e4b": {"free": 0, )"
            R"("pending": 0}, "\ud83d\ude00": {"free": 0, "pending": 0}}, "server_info": []}])");
}

TEST(TrackerCore, TakesBytesInAnySegmentation) {
  const std::string wire = rpc::encode_tracker_magic() + framed("[1]") +
                           framed(R"([3, "k", [1, "k:1"]])") + framed("[7]");
  for (std::size_t step = 1; step <= wire.size(); ++step) {
    Lab lab;
    lab.open("c");
    for (std::size_t at = 0; at < wire.size(); at += step)
      lab.raw("c", std::string_view{wire}.substr(at, step));
    EXPECT_EQ(lab.take_raw("c"), rpc::encode_tracker_magic()) << step;
    EXPECT_EQ(lab.hear("c"), "0");
    EXPECT_EQ(lab.hear("c"), "0");
    EXPECT_EQ(lab.hear("c"), R"(["k:1"])");
  }
}

TEST(TrackerCore, KnowsThatAMessageIsUnderWay) {
  Lab lab;
  lab.join("c");
  EXPECT_FALSE(lab.core.mid_message(ConnId{1}));
  lab.raw("c", framed("[1]").substr(0, 4));
  EXPECT_TRUE(lab.core.mid_message(ConnId{1}));
  lab.raw("c", "[1]");
  EXPECT_FALSE(lab.core.mid_message(ConnId{1}));
}

TEST(TrackerCore, ClosesOnlyTheConnectionThatSentNonsense) {
  for (const std::string_view bad : {"{", "[]", "5", "[99]", "[4]", R"([3,"k",5,null])",
                                     R"([4,"k","",{}])", "\xFF\xFE", R"([5, {}])"}) {
    Lab lab;
    lab.join("bad");
    lab.join("good");
    lab.ask("bad", R"([3, "k", [1, "k:1"]])");
    lab.say("bad", "[1]");
    lab.say("bad", bad);
    EXPECT_EQ(lab.hear("bad"), "0");  // what was due is sent
    EXPECT_TRUE(lab.hear("bad").starts_with("closed: ")) << bad;
    lab.say("bad", "[1]");
    EXPECT_EQ(lab.hear("bad"), "");
    EXPECT_EQ(lab.ask("good", "[1]"), "0");
    EXPECT_EQ(lab.ask("good", R"([4, "k", "", 1])"), "");  // its device went with it
  }
}

TEST(TrackerCore, ClosesOnAWrongMagicWithoutAnAnswer) {
  Lab lab;
  lab.open("web");
  lab.raw("web", "GET / HTTP/1.1\r\n");
  EXPECT_EQ(lab.hear("web"), "closed: magic 0x20544547 is not that of a tracker's peer (0x2f271)");
}

TEST(TrackerCore, ClosesOnABadLength) {
  for (const std::string_view size :
       {std::string_view{"\0\0\0\0", 4}, std::string_view{"\xFB\xFF\xFF\xFF", 4},
        std::string_view{"\xFF\xFF\xFF\x7F", 4}, std::string_view{"\1\0\x10\0", 4}}) {
    Lab lab;
    lab.join("c");
    lab.raw("c", size);
    EXPECT_TRUE(lab.hear("c").starts_with("closed: message ")) << size;
  }
}

TEST(TrackerCore, DoesNotWaitForAMagicForEver) {
  Lab lab{{.handshake_within = 5s}};
  lab.open("mute");
  lab.join("ready");
  EXPECT_EQ(*lab.core.next_deadline(), 5s);
  lab.pass(5s);
  EXPECT_EQ(lab.hear("mute"), "closed: no magic in time");
  EXPECT_FALSE(lab.core.next_deadline());
  EXPECT_EQ(lab.ask("ready", "[1]"), "0");
}

TEST(TrackerCore, StopsForTheOwnerOnly) {
  Lab lab{{}, "secret"};
  lab.join("c");
  EXPECT_EQ(lab.ask("c", R"([2, "wrong"])"), "-1");
  EXPECT_EQ(lab.ask("c", R"([2, 5])"), "-1");
  EXPECT_FALSE(lab.stopped);
  EXPECT_EQ(lab.ask("c", R"([2, "secret"])"), "0");
  EXPECT_TRUE(lab.stopped);
}

TEST(TrackerCore, StopsForNobodyWhenThereIsNoKey) {
  Lab lab;
  lab.join("c");
  EXPECT_EQ(lab.ask("c", R"([2, ""])"), "-1");
  EXPECT_FALSE(lab.stopped);
}

TEST(TrackerCore, OffersNothingOfAFrozenServerUntilItAsksAgain) {
  Lab lab;
  lab.join("board");
  lab.join("client");
  lab.ask("board", R"([5, {"key": "server:k", "addr": [null, 1]}])");
  lab.ask("board", R"([3, "k", [1, "k:1"]])");
  lab.pass(10s);
  EXPECT_EQ(lab.facts.back().kind, Fact::Kind::suspect);
  EXPECT_EQ(lab.facts.back().detail, "server:k");
  EXPECT_EQ(lab.ask("client", R"([4, "k", "", 1])"), "");
  EXPECT_EQ(lab.ask("board", "[7]"), "[]");  // it woke up, and its device was taken at once
  EXPECT_EQ(lab.hear("client"), R"([0, ["10.0.0.4", 1, "k:1"]])");
}

TEST(TrackerCore, TellsAtOnceWhenNobodyServesAKey) {
  Lab lab;
  lab.join("board");
  lab.join("client");
  lab.ask("board", R"([5, {"key": "server:k", "addr": [null, 1]}])");
  lab.ask("client", R"([4, "typo", "", 1])");
  EXPECT_EQ(lab.facts.back().kind, Fact::Kind::waits_alone);
  lab.ask("client", R"([4, "k", "", 1])");
  EXPECT_EQ(lab.facts.back().kind, Fact::Kind::waits);
  lab.leave("board");
  lab.ask("client", R"([4, "k", "", 1])");
  EXPECT_EQ(lab.facts.back().kind, Fact::Kind::waits_alone);
}

TEST(TrackerCore, ReadsTagsAndConditionsFromMessagesThatStockPeersCanSend) {
  Lab lab;
  lab.join("board");
  lab.join("client");
  lab.ask("board", R"([5, {"key": "server:k", "addr": [null, 1], "tags": {"mem": 4096}}])");
  lab.ask("board", R"([3, "k", [1, "k:1"], null])");
  EXPECT_EQ(lab.ask("client", R"([4, "k -need=mem>=8192", "", 1])"),
            R"([-1, "no board of key 'k' meets 'mem>=8192'"])");
  EXPECT_EQ(lab.ask("client", R"([4, "k -nead=x", "", 1])"),
            R"([-1, "option '-nead' of a key is not one of -user= -need= -wait="])");
  EXPECT_EQ(lab.ask("client", R"([4, "k -need=mem>=2048", "", 1])"),
            R"([0, ["10.0.0.4", 1, "k:1"]])");
  EXPECT_EQ(lab.ask("client", R"([4, "k -wait=3", "", 1])"), "");
  lab.pass(3s);
  EXPECT_EQ(lab.hear("client"),
            R"([-1, "no device within 3 s: place 1 of 1 for 'k', all boards are in use"])");
}

TEST(TrackerCore, KeepsABoardWhoseTagsCannotBeRead) {
  Lab lab;
  lab.join("board");
  EXPECT_EQ(lab.ask("board", R"([5, {"key": "server:k", "addr": [null, 1], "tags": 7}])"), "0");
  EXPECT_EQ(lab.facts.back().kind, Fact::Kind::odd_tags);
}

TEST(TrackerCore, TellsWhatEachBoardDoesWhenAsked) {
  Lab lab;
  lab.join("one", "10.0.0.4");
  lab.join("two", "10.0.0.5");
  lab.join("client", "10.0.0.9");
  lab.ask("one", R"([5, {"key": "server:k", "addr": [null, 1]}])");
  lab.ask("two", R"([5, {"key": "server:k", "addr": [null, "2"]}])");
  lab.ask("one", R"([3, "k", [1, "k:1"]])");
  lab.now = 1s;
  lab.ask("client", R"([4, "k", "", 1])");
  lab.now = 3500ms;
  const auto text = lab.ask("client", R"([6, "boards"])");
  EXPECT_TRUE(text.ends_with(R"("boards": [{"key": "server:k", "addr": ["10.0.0.4", 1], )"
                             R"("state": "busy", "holder": "10.0.0.9", "seconds": 2.500}, )"
                             R"({"key": "server:k", "addr": ["10.0.0.5", "2"], "state": "away", )"
                             R"("holder": null, "seconds": 3.500}]}])"))
      << text;
  const auto read = rpc::decode_summary(text);
  ASSERT_TRUE(read && read->boards);
  EXPECT_EQ(read->boards->at(0).holder, "10.0.0.9");
  EXPECT_EQ(read->boards->at(1).port, "2");
  EXPECT_FALSE(rpc::decode_summary(lab.ask("client", "[6]"))->boards);
}

TEST(TrackerCore, BoundsWhatAServerSaysAboutItself) {
  Lab lab{{.info_bytes_max = 100}};
  lab.join("board");
  EXPECT_TRUE(lab.ask("board", fmt::format(R"([5, {{"addr": [null, 1], "x": "{}"}}])",
                                           std::string(200, 'x')))
                  .starts_with("closed: server information of 2 members"));
}

/// Replays a recorded conversation: the same bytes come back, on the same connection.
class TrackerCoreGolden : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Captures, TrackerCoreGolden,
                         testing::Values("tracker_scheduling", "tracker_stock_server",
                                         "tracker_cpp_server", "tracker_errors", "proxy_tracker"));

std::string sorted_list(std::string text) {  // match keys come in no order
  if (!text.starts_with("[\"")) return text;
  std::sort(text.begin(), text.end());
  return text;
}

TEST_P(TrackerCoreGolden, AnswersLikeThePeer) {
  Lab lab;
  std::set<std::string> open;
  for (const auto& message : test::load_capture(GetParam())) {
    SCOPED_TRACE(message.conn + ": " + message.note);
    if (message.from_client) {
      if (open.insert(message.conn).second) lab.open(message.conn, "127.0.0.1");
      message.bytes.empty() ? lab.leave(message.conn) : lab.raw(message.conn, message.bytes);
    } else if (!message.bytes.empty()) {
      const auto got = lab.take_raw(message.conn);
      EXPECT_EQ(sorted_list(got.substr(std::min<std::size_t>(4, got.size()))),
                sorted_list(message.bytes.substr(4)));
    } else if (std::string_view{GetParam()} == "tracker_errors") {
      EXPECT_TRUE(lab.take_raw(message.conn).starts_with("closed: "));
    }
  }
}

RC_GTEST_PROP(TrackerCore, NoBytesOfOnePeerReachAnother, (const std::vector<std::string>& noise)) {
  Lab lab;
  lab.join("good");
  lab.join("noisy");
  for (const auto& bytes : noise) lab.raw("noisy", bytes);
  RC_ASSERT(lab.ask("good", "[1]") == "0");
}

}  // namespace
}  // namespace outpost::tracker
