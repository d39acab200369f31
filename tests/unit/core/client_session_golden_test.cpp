// What a stock client wrote, written again by ClientSession; what a stock server answered, read by
// it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/client_session.h"

namespace outpost::rpc {
namespace {

struct Message {
  bool from_client;
  std::vector<std::byte> bytes;
  std::string note;
};

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

/// The frames of a capture, without the handshake and the closing of either side.
std::vector<Message> load(const std::string& name) {
  std::ifstream file{std::string{OUTPOST_TEST_DATA} + "/captures/" + name + ".json"};
  std::vector<Message> out;
  for (const auto& m : nlohmann::json::parse(file)) {
    Message message{m["from"] == "client", from_hex(m["hex"]), m["note"]};
    const bool hello = message.bytes.size() >= 4 && message.bytes[1] == std::byte{0xf2} &&
                       message.bytes[2] == std::byte{0x0f};
    if (!hello && !message.bytes.empty()) out.push_back(std::move(message));
  }
  return out;
}

/// Takes a recorded request apart and makes the client session write it.
void write_again(ClientSession& session, Bytes frame, Request& out) {
  std::size_t skipped = 0;
  const auto head = parse_frame_head(frame, skipped).value().value();
  ByteReader in{frame.subspan(FrameHead::kBytes)};
  std::vector<Value> values;
  const auto packed = [&] {
    decode_packed(in.take(in.left(), "rest").value(), {}, values).value();
  };
  switch (head.code) {
    case FrameCode::shutdown:
      return session.shutdown(out);
    case FrameCode::init_server:
      in.sized("version").value();
      packed();
      return session.init(out, values);
    case FrameCode::call_func: {
      const auto function = in.le<std::uint64_t>("function").value();
      packed();
      return session.call(out, function, values);
    }
    case FrameCode::copy_to_remote: {
      const auto tensor = decode_tensor(in, 64).value();
      const auto size = in.le<std::uint64_t>("size").value();
      return session.copy_to(out, tensor, in.take(size, "bytes").value());
    }
    case FrameCode::copy_from_remote: {
      const auto tensor = decode_tensor(in, 64).value();
      return session.copy_from(out, tensor, in.le<std::uint64_t>("size").value());
    }
    default:
      packed();
      return session.system(out, head.code, values);
  }
}

std::vector<std::byte> joined(const Request& request) {
  std::vector<std::byte> out = request.head;
  out.insert(out.end(), request.payload.begin(), request.payload.end());
  out.insert(out.end(), request.tail.begin(), request.tail.end());
  return out;
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, WritesTheSameRequestsAndReadsEveryAnswer) {
  ClientSession session;
  int requests = 0;
  int answers = 0;
  for (const auto& m : load(GetParam())) {
    SCOPED_TRACE(m.note);
    if (m.from_client) {
      Request out;
      write_again(session, m.bytes, out);
      EXPECT_EQ(joined(out), m.bytes);
      ++requests;
      continue;
    }
    if (session.open_requests() == 0) continue;  // the time-out's own message comes unasked
    const auto step = session.resume(m.bytes);
    ASSERT_TRUE(step.has_value()) << step.error().text;
    if (step->kind == Step::Kind::payload) {
      EXPECT_EQ(step->consumed + step->bytes, m.bytes.size());
      session.payload_done();
    } else {
      ASSERT_EQ(step->kind, Step::Kind::done);
      EXPECT_EQ(step->consumed, m.bytes.size());
    }
    ++answers;
  }
  EXPECT_GT(requests, 1);
  EXPECT_GT(answers, 0);
}

INSTANTIATE_TEST_SUITE_P(Captures, Golden,
                         testing::Values("connect_addone", "constructor_error",
                                         "cpp_server_listdir", "exception", "files", "load_module",
                                         "nested_outer", "remote_vm", "tensors", "time_evaluator",
                                         "timeout_in_call", "tuner_runner", "values"),
                         [](const auto& test) { return std::string{test.param}; });

TEST(GoldenAnswers, KnowsTheTextOfASessionTimeOut) {
  for (const auto* name : {"timeout_idle", "timeout_in_call"}) {
    ClientSession session;
    Request out;
    session.init(out, {});
    bool expired = false;
    for (const auto& m : load(name)) {
      if (m.from_client) continue;
      if (session.open_requests() == 0) session.init(out, {});
      const auto step = session.resume(m.bytes);
      expired = step.has_value() && session.answer().kind == Answer::Kind::expired;
      if (expired) {
        EXPECT_TRUE(session.answer().text.starts_with("RPCSessionTimeoutError: Your"));
      }
    }
    EXPECT_TRUE(expired) << name;
  }
}

}  // namespace
}  // namespace outpost::rpc
