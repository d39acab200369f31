#include "wire/frame.h"

#include <gtest/gtest.h>

#include "support/sweep.h"

namespace outpost::rpc {
namespace {

std::vector<std::byte> frame(FrameCode code, std::string_view body) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  const auto begin = open_frame(out, code);
  out.text(body);
  close_frame(out, begin);
  return raw;
}

void feed(FrameReader& reader, Bytes bytes) {
  while (!bytes.empty()) {
    const auto room = reader.prepare();
    const auto size = std::min(room.size(), bytes.size());
    std::copy_n(bytes.begin(), size, room.begin());
    reader.commit(size);
    bytes = bytes.subspan(size);
  }
}

TEST(FrameReader, GivesAFrameExactlyWhenItIsWhole) {
  test::for_each_prefix(frame(FrameCode::call_func, "0123456789"), [](Bytes got, bool whole) {
    FrameReader reader{64};
    feed(reader, got);
    const auto body = reader.next();
    ASSERT_TRUE(body.has_value());
    EXPECT_EQ(body->has_value(), whole);
  });
}

TEST(FrameReader, SkipsEmptyPackets) {
  FrameReader reader{64};
  const std::vector<std::byte> empty(8);
  feed(reader, empty);
  feed(reader, empty);
  feed(reader, frame(FrameCode::shutdown, ""));
  const auto body = reader.next().value();
  ASSERT_TRUE(body);
  EXPECT_EQ(body->size(), 4U);
  EXPECT_FALSE(reader.next().value());
}

TEST(FrameReader, RefusesAFrameAboveTheLimitBeforeItsBodyIsThere) {
  FrameReader reader{16};
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::uint64_t>(17);
  out.le<std::int32_t>(3);
  feed(reader, raw);
  const auto body = reader.next();
  ASSERT_TRUE(body.has_error());
  EXPECT_EQ(body.error().code, Code::limit);
  EXPECT_EQ(body.error().text, "CallFunc frame of 17 bytes exceeds frame_bytes_max 16");
}

TEST(FrameReader, MemoryFollowsWhatCameNotWhatWasPromised) {
  FrameReader reader{1ULL << 40};
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::uint64_t>(1ULL << 39);
  out.le<std::int32_t>(7);
  feed(reader, raw);
  EXPECT_FALSE(reader.next().value());
  EXPECT_LT(reader.prepare().size(), 1U << 20);
}

TEST(FrameReader, RefusesABodyTooShortForItsCode) {
  for (std::uint64_t size = 1; size < 4; ++size) {
    FrameReader reader{64};
    std::vector<std::byte> raw;
    ByteWriter out{raw};
    out.le(size);
    out.le<std::int32_t>(0);
    feed(reader, raw);
    EXPECT_EQ(reader.next().error().code, Code::malformed);
  }
}

TEST(FrameCode, EveryCodeHasAName) {
  EXPECT_EQ(name(FrameCode::shutdown), "Shutdown");
  EXPECT_EQ(name(FrameCode::dev_get_current_stream), "DevGetCurrentStream");
  EXPECT_EQ(name(FrameCode{99}), "code 99");
  EXPECT_EQ(name(FrameCode{0}), "code 0");
  EXPECT_EQ(name(FrameCode{-1}), "code -1");
}

TEST(Frame, LengthCountsWhatIsSentSeparately) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  const auto begin = open_frame(out, FrameCode::copy_ack);
  close_frame(out, begin, 1000);
  std::size_t skipped = 0;
  EXPECT_EQ(parse_frame_head(raw, skipped).value()->body_bytes, 1004U);
}

}  // namespace
}  // namespace outpost::rpc
