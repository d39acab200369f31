// Every frame that stock peers exchanged is decoded field by field and written back to equality.
#include <gtest/gtest.h>

#include "support/capture.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/value.h"

namespace outpost::rpc {
namespace {

constexpr std::uint64_t kFrameBytesMax = 1U << 20;

bool is_handshake(Bytes bytes) {
  ByteReader in{bytes};
  const auto word = in.le<std::int32_t>("magic");
  return word && *word >= kMagic && *word <= kNoMatch;
}

std::vector<Value> packed(ByteReader& in) {
  std::vector<Value> values;
  const auto decoded = decode_packed(in.take(in.left(), "packed").value(), {}, values);
  EXPECT_TRUE(decoded.has_value()) << decoded.error().text;
  return values;
}

void write_packed(ByteWriter& out, const std::vector<Value>& values) {
  PackedWriter writer{out};
  writer.count(static_cast<std::int32_t>(values.size()));
  for (const auto& value : values) writer.value(value);
}

/// The frame again, written from its decoded parts.
std::vector<std::byte> written_again(Bytes body) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  ByteReader in{body};
  const FrameCode code{in.le<std::int32_t>("code").value()};
  const auto begin = open_frame(out, code);
  switch (code) {
    case FrameCode::shutdown:
      break;
    case FrameCode::copy_ack:
      out.bytes(in.take(in.left(), "bytes").value());
      break;
    case FrameCode::init_server:
      out.sized(in.sized("version").value());
      write_packed(out, packed(in));
      break;
    case FrameCode::call_func:
      out.le(in.le<std::uint64_t>("function").value());
      write_packed(out, packed(in));
      break;
    case FrameCode::copy_to_remote:
    case FrameCode::copy_from_remote: {
      encode_tensor(out, decode_tensor(in, 64).value());
      const auto bytes = in.le<std::uint64_t>("byte count").value();
      out.le(bytes);
      EXPECT_EQ(in.left(), code == FrameCode::copy_to_remote ? bytes : 0);
      out.bytes(in.take(in.left(), "bytes").value());
      break;
    }
    default:
      write_packed(out, packed(in));
      break;
  }
  EXPECT_EQ(in.left(), 0U);
  close_frame(out, begin);
  return raw;
}

class RpcGolden : public testing::TestWithParam<const char*> {};

TEST_P(RpcGolden, EveryFrameIsDecodedAndWrittenBackToEquality) {
  std::size_t frames = 0;
  for (const auto& message : test::load_capture(GetParam())) {
    const auto bytes = as_bytes(message.bytes);
    if (bytes.empty() || is_handshake(bytes)) continue;
    SCOPED_TRACE(message.note);
    FrameReader reader{kFrameBytesMax};
    const auto room = reader.prepare();
    ASSERT_LE(bytes.size(), room.size());
    std::copy(bytes.begin(), bytes.end(), room.begin());
    reader.commit(bytes.size());
    const auto body = reader.next();
    ASSERT_TRUE(body.has_value()) << body.error().text;
    if (!*body) {  // the probe's empty packet
      EXPECT_EQ(bytes.size(), sizeof(std::uint64_t));
      continue;
    }
    const auto again = written_again(**body);
    EXPECT_EQ(as_text(again), message.bytes);
    ++frames;
  }
  EXPECT_TRUE(frames > 0 || std::string_view{GetParam()} == "mismatch" ||
              std::string_view{GetParam()} == "proxy_refusals");
}

TEST_P(RpcGolden, EachSideIsCutAlikeInAnySegments) {
  std::string sides[2];
  std::size_t frames[2] = {};
  for (const auto& message : test::load_capture(GetParam())) {
    if (!message.conn.empty())
      return;  // several connections in one file: the other test reads them
    if (message.bytes.empty() || is_handshake(as_bytes(message.bytes))) continue;
    sides[message.from_client] += message.bytes;
    frames[message.from_client] += message.bytes.size() > sizeof(std::uint64_t);
  }
  for (const int side : {0, 1})
    for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{4096}}) {
      FrameReader reader{kFrameBytesMax};
      std::size_t found = 0;
      for (auto left = as_bytes(sides[side]); !left.empty();) {
        const auto room = reader.prepare();
        const auto size = std::min({step, left.size(), room.size()});
        std::copy_n(left.begin(), size, room.begin());
        reader.commit(size);
        left = left.subspan(size);
        auto body = reader.next();
        for (; body && *body; body = reader.next()) ++found;
        ASSERT_TRUE(body.has_value()) << body.error().text;
      }
      EXPECT_EQ(found, frames[side]);
    }
}

TEST_P(RpcGolden, EveryHelloAndItsAnswerAreReadAndWritten) {
  for (const auto& message : test::load_capture(GetParam())) {
    const auto bytes = as_bytes(message.bytes);
    if (!is_handshake(bytes) || bytes.size() == sizeof(std::int32_t)) continue;
    SCOPED_TRACE(message.note);
    std::size_t need = 0;
    const auto hello = parse_hello(bytes, 1024, need);
    ASSERT_TRUE(hello.has_value()) << hello.error().text;
    ASSERT_TRUE(hello->has_value());
    EXPECT_EQ((*hello)->bytes, bytes.size());
    const auto again = encode_hello(kMagic, (*hello)->key);
    EXPECT_EQ(as_text(again), message.bytes);
    const auto key = parse_key((*hello)->key);
    ASSERT_TRUE(key.has_value()) << key.error().text;
    EXPECT_TRUE(key->role == "client" || key->role == "server");
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, RpcGolden,
                         testing::Values("connect_addone", "constructor_error",
                                         "cpp_server_listdir", "exception", "files", "init_errors",
                                         "load_module", "mismatch", "nested_inner", "nested_outer",
                                         "proxy_pairing", "proxy_refusals", "remote_vm", "tensors",
                                         "time_evaluator", "timeout_idle", "timeout_in_call",
                                         "tuner_runner", "values"),
                         [](const auto& which) { return std::string{which.param}; });

}  // namespace
}  // namespace outpost::rpc
