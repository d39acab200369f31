#include "wire/handshake.h"

#include <gtest/gtest.h>

#include "support/sweep.h"

namespace outpost::rpc {
namespace {

std::vector<std::byte> head(std::int32_t magic, std::int32_t size) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le(magic);
  out.le(size);
  return raw;
}

TEST(Hello, IsReadExactlyWhenItIsWhole) {
  test::for_each_prefix(encode_hello(kMagic, "client:pi4"), [](Bytes got, bool whole) {
    std::size_t need = 0;
    const auto hello = parse_hello(got, 64, need);
    ASSERT_TRUE(hello.has_value());
    EXPECT_EQ(hello->has_value(), whole);
    EXPECT_GE(need, got.size());
    EXPECT_EQ(hello->has_value() ? (*hello)->key : "", whole ? "client:pi4" : "");
  });
}

TEST(Hello, LeavesWhatFollowsIt) {
  auto raw = encode_hello(kMagic, "client:");
  const auto size = raw.size();
  raw.resize(size + 100);
  std::size_t need = 0;
  EXPECT_EQ(parse_hello(raw, 64, need).value()->bytes, size);
}

TEST(Hello, RefusesAWrongMagicAtOnce) {
  const auto raw = head(kMagic + 1, 4);
  std::size_t need = 0;
  EXPECT_EQ(parse_hello(Bytes{raw}.first(4), 64, need).error().code, Code::malformed);
}

TEST(Hello, JudgesTheKeyLengthBeforeTheKey) {
  std::size_t need = 0;
  EXPECT_EQ(parse_hello(head(kMagic, -1), 64, need).error().code, Code::malformed);
  EXPECT_EQ(parse_hello(head(kMagic, 65), 64, need).error().code, Code::limit);
  EXPECT_EQ(parse_hello(head(kMagic, 2147483647), 64, need).error().code, Code::limit);
  EXPECT_TRUE(parse_hello(head(kMagic, 0), 64, need).value().has_value());
}

TEST(Hello, SurvivesEveryByteAtEveryPlace) {
  test::for_each_byte(encode_hello(kMagic, "client:a -timeout=1"), [](Bytes got) {
    std::size_t need = 0;
    const auto hello = parse_hello(got, 64, need);
    if (hello && *hello) (void)parse_key((*hello)->key);
  });
}

TEST(HelloKey, IsTakenApartAtBlanks) {
  const auto key = parse_key(" \t client:pi4:0.5  -other=1\n-timeout=2.5 tail").value();
  EXPECT_EQ(key.role, "client");
  EXPECT_EQ(key.match_key, "pi4:0.5");
  EXPECT_EQ(key.timeout_seconds, 2.5);
}

TEST(HelloKey, TheLastTimeoutWins) {
  EXPECT_EQ(parse_key("client:a -timeout=1 -timeout=1e1").value().timeout_seconds, 10.0);
  EXPECT_EQ(parse_key("client:a -timeout=-3").value().timeout_seconds, -3.0);
  EXPECT_FALSE(parse_key("client:a").value().timeout_seconds);
}

TEST(HelloKey, MayHaveNoMatchKey) {
  EXPECT_EQ(parse_key("client:").value().match_key, "");
  EXPECT_EQ(parse_key("client:   ").value().match_key, "");
  // the stock server splits the whole key at blanks, so the first word is "client:"
  const auto key = parse_key("client: -timeout=2").value();
  EXPECT_EQ(key.match_key, "");
  EXPECT_EQ(key.timeout_seconds, 2.0);
}

TEST(HelloKey, RefusesWhatItCannotRead) {
  for (const auto* key : {"", "pi4", "client:a -timeout=abc", "client:a -timeout=",
                          "client:\xff\xfe", "client:a -timeout=nan", "client:a -timeout=1x"})
    EXPECT_EQ(parse_key(key).error().code, Code::malformed) << key;
}

}  // namespace
}  // namespace outpost::rpc
