#include "wire/tracker_message.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "support/capture.h"
#include "support/sweep.h"

namespace outpost::rpc {
namespace {

std::string framed(std::string_view text) {
  std::string out(4, '\0');
  for (int i = 0; i < 4; ++i)
    out[static_cast<std::size_t>(i)] = static_cast<char>(text.size() >> (8 * i));
  return out += text;
}

std::string_view body(std::string_view message) {
  return message.substr(4);
}

std::string refusal(std::string_view text) {
  const auto got = decode_tracker_request(text);
  return got.has_error() ? got.error().text : "";
}

TEST(TrackerCutter, GivesTheSameMessagesWhereverTheBytesAreCut) {
  const std::string wire = encode_tracker_magic() + framed("[1]") + framed("[6]") + framed("[7]");
  for (std::size_t cut = 0; cut <= wire.size(); ++cut) {
    TrackerCutter cutter{kTrackerMessageBytesMax};
    std::vector<std::string> got;
    bool magic = false;
    for (const auto part :
         {std::string_view{wire}.substr(0, cut), std::string_view{wire}.substr(cut)}) {
      cutter.feed(as_bytes(part));
      if (!magic) magic = *cutter.take_magic();
      if (!magic) continue;
      for (auto next = *cutter.next(); next; next = *cutter.next()) got.emplace_back(*next);
    }
    EXPECT_TRUE(magic);
    EXPECT_EQ(got, (std::vector<std::string>{"[1]", "[6]", "[7]"})) << "cut at " << cut;
    EXPECT_EQ(cutter.pending(), 0U);
  }
}

TEST(TrackerCutter, JudgesALengthBeforeTheTextIsThere) {
  for (const std::int32_t size :
       {0, -5, std::numeric_limits<std::int32_t>::min(), 0x7FFFFFFF, (1 << 20) + 1}) {
    std::vector<std::byte> raw;
    ByteWriter{raw}.le<std::int32_t>(size);
    TrackerCutter cutter{kTrackerMessageBytesMax};
    cutter.feed(raw);
    EXPECT_TRUE(cutter.next().has_error()) << size;
  }
}

TEST(TrackerCutter, TakesAMessageOfExactlyTheLimit) {
  TrackerCutter cutter{kTrackerMessageBytesMax};
  cutter.feed(as_bytes(framed(std::string(kTrackerMessageBytesMax, ' '))));
  const auto got = cutter.next();
  ASSERT_TRUE(got);
  ASSERT_TRUE(*got);
  EXPECT_EQ((*got)->size(), kTrackerMessageBytesMax);
}

TEST(TrackerCutter, RefusesAnotherMagic) {
  TrackerCutter cutter{kTrackerMessageBytesMax};
  cutter.feed(as_bytes("GET / HTTP/1.1"));
  const auto got = cutter.take_magic();
  ASSERT_TRUE(got.has_error());
  EXPECT_EQ(got.error().text, "magic 0x20544547 is not that of a tracker's peer (0x2f271)");
}

TEST(TrackerRequest, RefusesWhatThePeerClosesOn) {
  const std::vector<std::pair<std::string_view, std::string_view>> table{
      {"{", "not JSON from byte 2"},
      {"[]", "message is not a list that starts with a code"},
      {"5", "message is not a list that starts with a code"},
      {"{}", "message is not a list that starts with a code"},
      {"[99]", "unknown code 99"},
      {"[\"1\"]", "code is text, not a number"},
      {"[2]", "key of STOP is missing"},
      {"[3]", "key of PUT is missing"},
      {"[3,\"k\"]", "[port, match key] of PUT is missing"},
      {"[3,\"k\",5,null]", "[port, match key] of PUT is not a list of two"},
      {"[3,\"k\",[5],null]", "[port, match key] of PUT is not a list of two"},
      {"[3,\"k\",[70000,\"k:1\"],null]", "port '70000' is not a number from 0 to 65535"},
      {"[3,\"k\",[-1,\"k:1\"],null]", "port '-1' is not a number from 0 to 65535"},
      {"[3,\"k\",[1.5,\"k:1\"],null]", "port '1.5' is not a number from 0 to 65535"},
      {"[3,\"k\",[1,{}],null]", "match key of PUT is an object, not text"},
      {"[3,\"k\",[1,\"k:1\"],7]", "address of PUT is a number, not text"},
      {"[4]", "key of REQUEST is missing"},
      {"[4,\"k\",\"\"]", "priority of REQUEST is missing"},
      {"[4,\"k\",\"\",{}]", "priority of REQUEST is an object, not a number"},
      {"[4,\"k\",\"\",NaN]", "not JSON from byte 11"},
      {"[5,[]]", "information of UPDATE_INFO is a list, not an object"},
      {"[5,{}]", "addr of UPDATE_INFO is not a list of host (text or null) and port"},
      {"[5,{\"addr\":[1,2]}]", "addr of UPDATE_INFO is not a list of host (text or null) and port"},
      {"[5,{\"key\":1,\"addr\":[null,2]}]", "key of UPDATE_INFO is a number, not text"},
      {"[1] x", "not JSON from byte 5"},
      {"\xFF", "not UTF-8"},
      {"[4,\"\xC0\x80\",\"\",1]", "not UTF-8"},
      {"\xEF\xBB\xBF[1]", "not JSON from byte 0: a byte order mark"}};
  for (const auto& [text, expected] : table) EXPECT_EQ(refusal(text), expected) << text;
}

TEST(TrackerRequest, BoundsDepthAndWidth) {
  EXPECT_EQ(refusal(std::string(1000, '[')), "nested deeper than depth_max 32");
  std::string wide = "[1";
  for (int i = 0; i < 5000; ++i) wide += ",0";
  EXPECT_EQ(refusal(wide + "]"), "more than values_max 4096 values");
  std::string names = "[5,{\"addr\":[null,1]";
  for (int i = 0; i < 300; ++i) names += fmt::format(",\"{}\":1", i);
  EXPECT_EQ(refusal(names + "}]"), "UPDATE_INFO of 301 members exceeds info_members_max 256");
}

TEST(TrackerRequest, AcceptsWhatThePeerAccepts) {
  for (const auto* text : {"[1]", "[1.0]", "[true]", " [ 1 ] ", "[1, 2, {\"a\": []}]"})
    EXPECT_TRUE(std::holds_alternative<PingRequest>(*decode_tracker_request(text))) << text;
  const auto put = std::get<PutRequest>(*decode_tracker_request("[3,\"a:b\",[\"9\",\"none\"]]"));
  EXPECT_EQ(put.key, "a:b");
  EXPECT_EQ(put.port, 9);
  EXPECT_EQ(put.match_key, "none");
  EXPECT_FALSE(put.custom_addr);
  EXPECT_EQ(std::get<DeviceRequest>(*decode_tracker_request("[4,\"k\",null,-2.5]")).priority, -2.5);
}

TEST(UpdateInfo, KeepsUnknownMembersAndThePortAsSent) {
  const std::string_view text =
      "[5, {\"key\": \"server:b\", \"addr\": [null, \"25160\"], \"tags\": {\"mem\": 4096, \"x\": "
      "[1.50, "
      "null, true, \"\\u00fc\"]}}]";
  auto info = std::get<UpdateInfoRequest>(*decode_tracker_request(text));
  EXPECT_EQ(body(encode(TrackerRequest{info})), text);
  info.fill_host("10.0.0.4");
  EXPECT_EQ(
      server_info_json(info.members),
      "{\"key\": \"server:b\", \"addr\": [\"10.0.0.4\", \"25160\"], \"tags\": {\"mem\": 4096, "
      "\"x\": [1.50, null, true, \"\\u00fc\"]}}");
  info.fill_host("10.0.0.5");  // a named host stays
  EXPECT_NE(server_info_json(info.members).find("10.0.0.4"), std::string::npos);
}

TEST(UpdateInfo, BuildsTheUsualOne) {
  EXPECT_EQ(body(encode(TrackerRequest{UpdateInfoRequest::of("pi4", std::nullopt, 9091)})),
            "[5, {\"key\": \"server:pi4\", \"addr\": [null, 9091]}]");
  EXPECT_EQ(body(encode(TrackerRequest{UpdateInfoRequest::of("pi4", "a\"b", 1)})),
            "[5, {\"key\": \"server:pi4\", \"addr\": [\"a\\\"b\", 1]}]");
}

TEST(TrackerAnswers, NamesARefusal) {
  const auto got = decode_device("[-1, \"quota of ann is used up\"]");
  ASSERT_TRUE(got.has_error());
  EXPECT_EQ(got.error().code, Code::denied);
  EXPECT_EQ(got.error().text, "tracker refused REQUEST: \"quota of ann is used up\"");
}

TEST(TrackerAnswers, ReadsASummaryWithPortsOfBothKinds) {
  const auto got = decode_summary(
      "[0, {\"queue_info\": {\"b\": {\"free\": 2, \"pending\": 1}}, \"server_info\": [{\"key\": "
      "\"server:b\", "
      "\"addr\": [\"h\", \"25160\"], \"caps\": [1]}, {\"key\": \"server:b\", \"addr\": [\"::1\", "
      "7]}]}]");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->queues.at(0).free, 2U);
  EXPECT_EQ(got->queues.at(0).pending, 1U);
  EXPECT_EQ(got->servers.at(0).port, "25160");
  EXPECT_EQ(got->servers.at(0).members.at(0).json, "[1]");
  EXPECT_EQ(got->servers.at(1).host, "::1");
  EXPECT_EQ(got->servers.at(1).port, "7");
}

TEST(TrackerAnswers, RefuseAnythingElse) {
  for (const auto* text :
       {"", "1", "[0]", "[0, 1]", "[0, [1, 2, 3]]", "{}", "[0, {\"queue_info\": {}}]"}) {
    EXPECT_TRUE(decode_device(text).has_error()) << text;
    EXPECT_TRUE(decode_summary(text).has_error()) << text;
  }
  EXPECT_TRUE(decode_status("[]").has_error());
  EXPECT_TRUE(decode_match_keys("0").has_error());
  EXPECT_TRUE(decode_match_keys("[1]").has_error());
}

RC_GTEST_PROP(JsonText, AStringComesBackUnchanged, (const std::vector<std::uint32_t>& points)) {
  std::string text;
  for (auto p : points) {  // UTF-8 by hand, surrogates left out
    p %= 0x110000;
    if (p >= 0xD800 && p < 0xE000) continue;
    const auto tail = [&](std::uint32_t shift) {
      text += static_cast<char>(0x80 | ((p >> shift) & 0x3F));
    };
    if (p < 0x80) {
      text += static_cast<char>(p);
    } else if (p < 0x800) {
      text += static_cast<char>(0xC0 | p >> 6), tail(0);
    } else if (p < 0x10000) {
      text += static_cast<char>(0xE0 | p >> 12), tail(6), tail(0);
    } else {
      text += static_cast<char>(0xF0 | p >> 18), tail(12), tail(6), tail(0);
    }
  }
  std::string json;
  append_json_string(json, text);
  RC_ASSERT(std::all_of(json.begin(), json.end(), [](char c) { return c >= ' ' && c < '\x7F'; }));
  const auto back = parse_json(json, {});
  RC_ASSERT(back.has_value());
  RC_ASSERT(back->text == text);
}

RC_GTEST_PROP(TrackerRequest, NoByteStringCrashes, (const std::string& text)) {
  (void)decode_tracker_request(text);
  (void)decode_summary(text);
}

TEST(TrackerRequest, EverySingleByteChangeIsAnsweredOrRefused) {
  for (const std::string_view text :
       {"[3, \"k\", [9091, \"k:0.5\"], null]",
        "[5, {\"key\": \"server:k\", \"addr\": [null, 9091]}]", "[4, \"k\\u00fc\", \"\", 1]"}) {
    std::vector<std::byte> raw{as_bytes(text).begin(), as_bytes(text).end()};
    test::for_each_byte(raw, [](Bytes changed) {
      const auto got = decode_tracker_request(as_text(changed));
      EXPECT_TRUE(!got || decode_tracker_request(body(encode(*got))));
    });
  }
}

/// What an answer is, told by the request that it belongs to.
void check_answer(const TrackerRequest& request, const std::string& wire) {
  const auto text = body(wire);
  if (std::holds_alternative<DeviceRequest>(request)) {
    EXPECT_EQ(encode(*decode_device(text)), wire);
  } else if (std::holds_alternative<SummaryRequest>(request)) {
    const auto summary = *decode_summary(text);
    std::vector<std::string> infos;
    for (const auto& s : summary.servers)
      infos.push_back(
          server_info_json(UpdateInfoRequest::of(s.key.substr(7), s.host,
                                                 static_cast<std::uint16_t>(std::stoi(s.port)))
                               .members));
    EXPECT_EQ(encode_summary(summary.queues, {infos.begin(), infos.end()}), wire);
  } else if (std::holds_alternative<PendingMatchKeysRequest>(request)) {
    EXPECT_EQ(encode_match_keys(*decode_match_keys(text)), wire);
  } else {
    EXPECT_EQ(encode_status(*decode_status(text)), wire);
  }
}

class TrackerGolden : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Captures, TrackerGolden,
                         testing::Values("tracker_scheduling", "tracker_stock_server",
                                         "tracker_cpp_server", "proxy_tracker"));

TEST_P(TrackerGolden, EveryMessageIsReadAndWrittenBack) {
  std::map<std::string, std::deque<TrackerRequest>> due;
  for (const auto& message : test::load_capture(GetParam())) {
    SCOPED_TRACE(message.conn + ": " + message.note);
    if (message.bytes.empty()) continue;
    if (message.note == "tracker magic") {
      EXPECT_EQ(message.bytes, encode_tracker_magic());
    } else if (message.from_client) {
      auto request = decode_tracker_request(body(message.bytes));
      ASSERT_TRUE(request) << request.error().text;
      EXPECT_EQ(encode(*request), message.bytes);
      due[message.conn].push_back(*std::move(request));
    } else {
      auto& waiting = due[message.conn];
      ASSERT_FALSE(waiting.empty());
      check_answer(waiting.front(), message.bytes);
      waiting.pop_front();
    }
  }
}

TEST(TrackerGolden, EveryBadMessageOfTheCaptureIsRefused) {
  for (const auto& message : test::load_capture("tracker_errors")) {
    if (!message.from_client || message.bytes.empty() || message.bytes == encode_tracker_magic())
      continue;
    SCOPED_TRACE(message.note);
    TrackerCutter cutter{kTrackerMessageBytesMax};
    cutter.feed(as_bytes(message.bytes));
    if (message.note == "tracker magic") {
      EXPECT_TRUE(cutter.take_magic().has_error());
      continue;
    }
    const auto text = cutter.next();
    EXPECT_TRUE(!text || decode_tracker_request(text->value()).has_error());
  }
}

}  // namespace
}  // namespace outpost::rpc
