#include "wire/value.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <limits>

#include "support/sweep.h"

namespace outpost::rpc {
namespace {

std::vector<std::byte> sequence(std::int32_t count, auto write) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  PackedWriter writer{out};
  writer.count(count);
  write(writer);
  return raw;
}

std::vector<std::byte> dims_of(std::vector<std::int64_t> shape) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  for (const auto d : shape) out.le(d);
  return raw;
}

/// A sequence with each kind once.
std::vector<std::byte> every_kind() {
  const auto dims = dims_of({2, 3});
  return sequence(14, [&](PackedWriter& w) {
    w.none();
    w.integer(-5);
    w.boolean(true);
    w.real(0.5);
    w.pointer(0x1234);
    w.dtype({4, 16, 1});
    w.device({1, 0});
    w.tensor({7, {1, 0}, {2, 32, 1}, dims, 8});
    w.raw_string("text");
    w.byte_view(as_bytes("bytes"));
    w.boxed_string("a longer text");
    w.boxed_bytes(as_bytes("b"));
    w.module(9);
    w.object(11);
  });
}

std::string error_of(const std::vector<std::byte>& raw, PackedLimits limits = {}) {
  std::vector<Value> values;
  const auto result = decode_packed(raw, limits, values);
  return result.has_error() ? result.error().text : "";
}

TEST(Packed, ReadsEachKind) {
  const auto raw = every_kind();
  std::vector<Value> v;
  ASSERT_TRUE(decode_packed(raw, {}, v).has_value());
  ASSERT_EQ(v.size(), 14U);
  EXPECT_EQ(v[1].integer, -5);
  EXPECT_EQ(v[3].real, 0.5);
  EXPECT_EQ(v[4].handle(), 0x1234U);
  EXPECT_EQ(v[5].dtype, (DType{4, 16, 1}));
  EXPECT_EQ(v[7].tensor.ndim(), 2);
  EXPECT_EQ(v[7].tensor.dim(1), 3);
  EXPECT_EQ(v[7].tensor.byte_offset, 8U);
  EXPECT_EQ(as_text(v[8].data), "text");
  EXPECT_EQ(v[10].index, kString);
  EXPECT_EQ(v[11].index, kSmallBytes);
  EXPECT_EQ(v[12].kind, Kind::module);
  EXPECT_EQ(v[13].kind, Kind::object);
}

TEST(Packed, RefusesEveryProperPrefix) {
  test::for_each_prefix(every_kind(), [](Bytes got, bool whole) {
    std::vector<Value> values;
    EXPECT_EQ(decode_packed(got, {}, values).has_value(), whole);
  });
}

TEST(Packed, SurvivesEveryByteAtEveryPlace) {
  test::for_each_byte(every_kind(), [](Bytes got) {
    std::vector<Value> values;
    (void)decode_packed(got, {}, values);
    EXPECT_LE(values.size(), got.size() / 4);
  });
}

TEST(Packed, CountIsJudgedBeforeItIsBelieved) {
  const auto with_count = [](std::int32_t n) { return sequence(n, [](PackedWriter&) {}); };
  EXPECT_EQ(error_of(with_count(-1)), "argument count -1 is negative");
  EXPECT_EQ(error_of(with_count(4097)), "4097 arguments exceed arguments_max 4096");
  EXPECT_NE(error_of(with_count(4000)).find("need at least"), std::string::npos);
}

TEST(Packed, LengthBeyondTheFrameIsRefused) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::int32_t>(1);
  out.le<std::int32_t>(kRawString);
  out.le<std::uint64_t>(std::numeric_limits<std::uint64_t>::max());
  EXPECT_NE(error_of(raw).find("needs 18446744073709551615 bytes"), std::string::npos)
      << error_of(raw);
}

TEST(Packed, UnknownTypesAreNamedWithTheirPlace) {
  for (const std::int32_t index : {-1, 10, 13, 63}) {
    std::vector<std::byte> raw;
    ByteWriter out{raw};
    out.le<std::int32_t>(1);
    out.le(index);
    EXPECT_EQ(error_of(raw),
              fmt::format("argument 0 of 1: type index {} is unknown (byte 4)", index));
  }
}

TEST(Packed, TheInnerIndexOfABoxedValueDecides) {
  for (const std::int32_t outer : {11, 12, 64, 65, 71, 115, 1 << 20}) {
    std::vector<std::byte> raw;
    ByteWriter out{raw};
    out.le<std::int32_t>(1);
    out.le(outer);
    out.le<std::uint32_t>(kBytes);
    out.sized(as_bytes("xyz"));
    std::vector<Value> values;
    ASSERT_TRUE(decode_packed(raw, {}, values).has_value()) << outer;
    EXPECT_EQ(values[0].kind, Kind::bytes);
    EXPECT_EQ(values[0].index, outer);
  }
}

TEST(Packed, BytesBehindTheLastValueAreRefused) {
  auto raw = every_kind();
  raw.push_back(std::byte{0});
  EXPECT_NE(error_of(raw).find("1 bytes left over"), std::string::npos) << error_of(raw);
}

TEST(Packed, TooManyDimensionsAreALimit) {
  const auto dims = dims_of(std::vector<std::int64_t>(65, 1));
  const auto raw = sequence(1, [&](PackedWriter& w) {
    w.tensor({1, {1, 0}, {2, 32, 1}, dims, 0});
  });
  EXPECT_NE(error_of(raw).find("exceeds ndim_max 64"), std::string::npos) << error_of(raw);
}

/// Writes one value of a kind chosen by `pick`, with contents from the generators.
void write_some(PackedWriter& w, int pick) {
  const auto word = *rc::gen::arbitrary<std::int64_t>();
  const auto text = *rc::gen::arbitrary<std::string>();
  const auto shape =
      *rc::gen::container<std::vector<std::int64_t>>(rc::gen::arbitrary<std::int64_t>());
  const auto dims =
      dims_of({shape.begin(), shape.begin() + std::min<std::ptrdiff_t>(64, std::ssize(shape))});
  switch (pick) {
    case 0:
      return w.none();
    case 1:
      return w.integer(word);
    case 2:
      return w.boolean(word > 0);
    case 3:
      return w.real(static_cast<double>(word) / 3);
    case 4:
      return w.pointer(static_cast<std::uint64_t>(word));
    case 5:
      return w.dtype({static_cast<std::uint8_t>(word), 16, 4});
    case 6:
      return w.device({static_cast<std::int32_t>(word), 3});
    case 7:
      return w.tensor({static_cast<std::uint64_t>(word), {1, 0}, {2, 32, 1}, dims, 64});
    case 8:
      return w.raw_string(text);
    case 9:
      return w.byte_view(as_bytes(text));
    case 10:
      return w.boxed_string(text);
    case 11:
      return w.boxed_bytes(as_bytes(text));
    case 12:
      return w.function(static_cast<std::uint64_t>(word));
    case 13:
      return w.module(static_cast<std::uint64_t>(word));
    default:
      return w.object(static_cast<std::uint64_t>(word));
  }
}

RC_GTEST_PROP(Packed, DecodingWhatWasWrittenIsTheIdentity, ()) {
  const auto picks = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 15));
  const auto raw = sequence(static_cast<std::int32_t>(picks.size()), [&](PackedWriter& w) {
    for (const int pick : picks) write_some(w, pick);
  });
  std::vector<Value> values;
  RC_ASSERT(decode_packed(raw, {}, values).has_value());
  const auto again = sequence(static_cast<std::int32_t>(values.size()), [&](PackedWriter& w) {
    for (const auto& value : values) w.value(value);
  });
  RC_ASSERT(again == raw);
}

TEST(PayloadHead, NamesWhatFollowsWithoutTheBytes) {
  const auto head_of = [](auto write) {
    auto raw = sequence(1, write);
    ByteReader in{Bytes{raw}.subspan(4)};
    return decode_payload_head(in).value();
  };
  const auto view = head_of([](PackedWriter& w) { w.byte_view_head(1ULL << 40); });
  ASSERT_TRUE(view);
  EXPECT_EQ(view->kind, Kind::bytes);
  EXPECT_EQ(view->bytes, 1ULL << 40);
  EXPECT_EQ(head_of([](PackedWriter& w) { w.boxed_bytes_head(3); })->bytes, 3U);
  EXPECT_EQ(head_of([](PackedWriter& w) { w.raw_string("ab"); })->kind, Kind::string);
  EXPECT_FALSE(head_of([](PackedWriter& w) { w.integer(1); }));
  EXPECT_FALSE(head_of([](PackedWriter& w) { w.object(1); }));
}

}  // namespace
}  // namespace outpost::rpc
