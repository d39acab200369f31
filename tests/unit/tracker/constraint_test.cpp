#include "constraint.h"

#include <gtest/gtest.h>

#include "request_key.h"

namespace outpost::tracker {
namespace {

Tags tags(std::string_view json) {
  auto got = read_tags(json);
  EXPECT_TRUE(got) << json;
  return got ? *got : Tags{};
}

std::string refusal(std::string_view need) {
  const auto got = parse_need(need);
  return got.has_error() ? got.error().text : "";
}

TEST(Need, IsMetByTheTagsThatItNames) {
  const auto board = tags(
      R"({"mem": 4096, "arch": "aarch64", "fp16": true, "slow": false, "ver": "1.2", "n": null})");
  for (const auto* yes :
       {"", "mem>=4096", "mem<=4096", "mem>1e3", "mem<4096.5", "mem=4096.0", "fp16", "arch=aarch64",
        "arch!=x86_64", "!slow", "gpu!=1", "!n", "mem>=4096,fp16,!gpu", "ver=1.2", "ver>=1"})
    EXPECT_TRUE(meets(board, *parse_need(yes))) << yes;
  for (const auto* no : {"mem>4096", "mem<4096", "slow", "gpu", "!fp16", "arch=x86_64", "arch>=1",
                         "gpu>=1", "fp16>=1", "mem!=4096", "mem>=4096,gpu"})
    EXPECT_FALSE(meets(board, *parse_need(no))) << no;
}

TEST(Need, NamesTheTermThatCannotBeRead) {
  EXPECT_EQ(refusal("mem>=big"),
            "condition 'mem>=big' is not of the form tag, !tag, tag=text, tag!=text or tag>=number "
            "(also <=, >, <)");
  for (const auto* bad : {",", "a,,b", "=4", "!", "a=", "a!", "!a=1", "a>", "a>=nan"})
    EXPECT_FALSE(refusal(bad).empty()) << bad;
  std::string many = "a";
  for (int i = 0; i < 40; ++i) many += ",a";
  EXPECT_EQ(refusal(many), "more than 32 conditions");
}

TEST(Tags, AreReadFromAnObjectOrAListOfNames) {
  EXPECT_EQ(tags(R"(["fp16", "dot"])"), tags(R"({"dot": true, "fp16": true})"));
  for (const auto* bad : {"1", "\"x\"", "[1]", "[[]]", "{\"a\": {}}", "{\"a\": []}", "{\"\": 1}"})
    EXPECT_TRUE(read_tags(bad).has_error()) << bad;
  std::string many = "{";
  for (int i = 0; i < 65; ++i) many += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
  EXPECT_EQ(read_tags(many + "}").error().text, "more than 64 tags");
}

TEST(Tags, HaveOneSignatureForEqualOnes) {
  EXPECT_EQ(signature(tags(R"({"a": 1, "b": "x"})")), signature(tags(R"({"b": "x", "a": 1})")));
  EXPECT_NE(signature(tags(R"({"a": "b"})")), signature(tags(R"(["a", "b"])")));
}

TEST(RequestKey, TakesOptionsFromBehindTheKey) {
  const auto got = parse_request_key("rasp4  -user=ann -need=mem>=4096,fp16 -wait=1.5");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->key, "rasp4");
  EXPECT_EQ(got->user, "ann");
  EXPECT_EQ(got->need, "mem>=4096,fp16");
  EXPECT_EQ(got->wait, std::chrono::milliseconds{1500});
}

TEST(RequestKey, LeavesOtherKeysAlone) {
  for (const auto* key : {"", "rasp4", "lab:a:b", "my board", "a-b", " "})
    EXPECT_EQ(parse_request_key(key)->key, key);
}

TEST(RequestKey, NamesTheOptionThatIsWrong) {
  EXPECT_EQ(parse_request_key("k -usr=ann").error().text,
            "option '-usr' of a key is not one of -user= -need= -wait=");
  EXPECT_EQ(parse_request_key("k -user").error().text,
            "option '-user' of a key has no value after a '='");
  for (const auto* bad : {"k -wait=x", "k -wait=-1", "k -wait=inf", "k -wait=1e99"})
    EXPECT_TRUE(parse_request_key(bad).has_error()) << bad;
}

}  // namespace
}  // namespace outpost::tracker
