#include "server/session_end.h"

#include <gtest/gtest.h>

#include <csignal>

#include "wire/frame.h"
#include "wire/value.h"

namespace outpost::server {
namespace {

constexpr int exited(int code) {
  return code << 8;
}

struct Case {
  const char* name;
  EndFacts facts;
  const char* reason;
  const char* words;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

EndFacts reported(SessionEnd end, std::string text = "") {
  EndFacts facts;
  facts.reported = end;
  facts.reported_text = std::move(text);
  facts.wait_status = 0;
  return facts;
}
EndFacts died(std::optional<int> status) {
  EndFacts facts;
  facts.wait_status = status;
  return facts;
}
EndFacts caused(EndCause cause, std::optional<double> seconds = std::nullopt) {
  EndFacts facts;
  facts.cause = cause;
  facts.timeout_seconds = seconds;
  facts.wait_status = SIGKILL;
  return facts;
}

class SessionEnds : public testing::TestWithParam<Case> {};
TEST_P(SessionEnds, AreToldToLogAndClient) {
  const auto story = tell_end(GetParam().facts);
  EXPECT_EQ(story.reason, GetParam().reason);
  EXPECT_EQ(story.last_words, GetParam().words);
}
#define LOST(why) \
  "the session's worker process ended during the session: " why "; the session is lost"
INSTANTIATE_TEST_SUITE_P(
    All, SessionEnds,
    testing::Values(
        Case{"shutdown", reported(SessionEnd::shutdown), "shutdown", ""},
        Case{"closed", reported(SessionEnd::closed), "closed by the client", ""},
        Case{"cut", reported(SessionEnd::cut), "closed by the client inside a frame", ""},
        Case{"protocol", reported(SessionEnd::protocol, "bad\ncode"),
             "protocol error: bad\\x0acode", ""},
        Case{"io", reported(SessionEnd::io), "connection failed",
             "the session's worker lost its socket: connection failed; the session is lost"},
        Case{"segfault", died(SIGSEGV), "killed by signal 11 (SIGSEGV, Segmentation fault)",
             LOST("killed by signal 11 (SIGSEGV, Segmentation fault)")},
        Case{"dumped", died(SIGABRT | 0x80), "killed by signal 6 (SIGABRT, Aborted)",
             LOST("killed by signal 6 (SIGABRT, Aborted)")},
        Case{"killed", died(SIGKILL),
             "killed by signal 9 (SIGKILL, Killed), perhaps for lack of memory",
             LOST("killed by signal 9 (SIGKILL, Killed), perhaps for lack of memory")},
        Case{"exit 0", died(exited(0)), "exited with code 0", LOST("exited with code 0")},
        Case{"exit 7", died(exited(7)), "exited with code 7", LOST("exited with code 7")},
        Case{"orphan", died(std::nullopt), "its parent process was killed",
             LOST("its parent process was killed")},
        Case{"timed out", caused(EndCause::timed_out, 2.0), "timed out",
             "RPCSessionTimeoutError: Your 2.0s session has expired, try to increase the "
             "\"session_timeout\" value."},
        Case{"gone", caused(EndCause::client_gone), "client vanished", ""},
        Case{"stopping", caused(EndCause::stopping), "server stopping",
             "the server is stopping; the session is lost"}));

TEST(SessionEnd, SaysNothingInsideAnAnswer) {
  auto facts = died(SIGSEGV);
  facts.in_answer = true;
  EXPECT_EQ(tell_end(facts).last_words, "");
}

TEST(SessionEnd, WritesSecondsAsPythonDoes) {
  const std::pair<double, const char*> cases[] = {{2, "2.0"},
                                                  {0.5, "0.5"},
                                                  {0, "0.0"},
                                                  {-1, "-1.0"},
                                                  {10, "10.0"},
                                                  {1e16, "1e+16"},
                                                  {1e-05, "1e-05"},
                                                  {0.0001, "0.0001"},
                                                  {1.25, "1.25"},
                                                  {0.1, "0.1"},
                                                  {1e15, "1000000000000000.0"},
                                                  {123456789, "123456789.0"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(python_float(value), text);
}

TEST(SessionEnd, MakesAWholeExceptionFrame) {
  const auto raw = exception_frame("it ended");
  std::size_t skipped = 0;
  const auto head = rpc::parse_frame_head(raw, skipped).value().value();
  EXPECT_EQ(head.code, rpc::FrameCode::exception);
  EXPECT_EQ(head.body_bytes + 8, raw.size());
  std::vector<rpc::Value> values;
  ASSERT_TRUE(
      rpc::decode_packed(Bytes{raw}.subspan(rpc::FrameHead::kBytes), {}, values).has_value());
  EXPECT_EQ(as_text(values.at(0).data), "it ended");
}

}  // namespace
}  // namespace outpost::server
