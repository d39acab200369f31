#include "common/log.h"

#include <gtest/gtest.h>

namespace outpost::app {
namespace {

TEST(Log, TakesAnEventApartAsJson) {
  EXPECT_EQ(
      event_as_json("session ended session=17 peer=10.0.0.4:51334 key='pi 4' seconds=3.250"),
      R"("event":"session ended","session":17,"peer":"10.0.0.4:51334",)"
      R"("key":"pi 4","seconds":3.250)");
}

TEST(Log, KeepsTextThatOnlyLooksLikeAPairInJson) {
  EXPECT_EQ(event_as_json("cannot read '\"x\"' reason='a=b c' note='it''s'"),
            R"("event":"cannot read '\"x\"'","reason":"a=b c","note":"it''s")");
}

TEST(Log, EscapesControlBytesOfForeignText) {
  EXPECT_EQ(quoted("a\nb"), "'a\\x0ab'");
}

TEST(Log, WritesEachFormatAsOneLine) {
  const std::pair<LogFormat, const char*> cases[] = {
      {LogFormat::plain, " warning rpc: it went on a=1\n"},
      {LogFormat::journal, "<4>rpc: it went on a=1\n"},
      {LogFormat::json, R"("event":"it went on","a":1})"}};
  for (const auto& [format, says] : cases) {
    testing::internal::CaptureStderr();
    const auto log = open_log("rpc", {.format = format});
    log->debug("not seen");
    log->warn("it went on a={}", 1);
    const auto text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find(says), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  }
}

}  // namespace
}  // namespace outpost::app
