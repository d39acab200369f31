#include "base/bytes.h"

#include <gtest/gtest.h>

namespace outpost {
namespace {

TEST(ByteReader, NamesTheFieldAndPlaceThatWasCut) {
  std::vector<std::byte> raw(6);
  ByteReader in{raw};
  ASSERT_TRUE(in.le<std::uint32_t>("count"));
  const auto cut = in.le<std::uint64_t>("frame length");
  ASSERT_TRUE(cut.has_error());
  EXPECT_EQ(cut.error().code, Code::malformed);
  EXPECT_EQ(cut.error().text, "frame length needs 8 bytes, 2 left (byte 4)");
}

TEST(ByteReader, BelievesACountOnlyWhenItsElementsCouldFollow) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::uint64_t>(3);
  out.le<std::uint64_t>(0);
  EXPECT_TRUE(ByteReader{raw}.count(8, "names").has_error());
  EXPECT_EQ(*ByteReader{raw}.count(2, "names"), 3U);
}

TEST(ByteWriter, PatchesALengthWrittenBefore) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::uint64_t>(0);
  out.text("abc");
  out.patch<std::uint64_t>(0, out.size() - 8);
  ByteReader in{raw};
  EXPECT_EQ(as_text(*in.sized("name")), "abc");
}

}  // namespace
}  // namespace outpost
