#include "core/client_session.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "support/sweep.h"

namespace outpost::rpc {
namespace {

/// A frame as a server sends it.
template <class Write>
std::vector<std::byte> frame(FrameCode code, Write write) {
  std::vector<std::byte> out;
  ByteWriter w{out};
  const auto begin = open_frame(w, code);
  write(w);
  close_frame(w, begin);
  return out;
}

std::vector<std::byte> returned(std::vector<Value> values) {
  return frame(FrameCode::return_value, [&](ByteWriter& w) {
    PackedWriter packed{w};
    packed.count(static_cast<std::int32_t>(values.size()));
    for (const auto& v : values) packed.value(v);
  });
}

class Session : public testing::Test {
 protected:
  /// A session that waits for the answer of a call.
  void ask_call() { session_.call(request_, 7, {}); }

  std::string error_of(const std::vector<std::byte>& wire) {
    const auto step = session_.resume(wire);
    return step.has_error() ? step.error().text : "";
  }

  ClientSession session_;
  Request request_;
};

TEST_F(Session, AsksForMoreAtEveryCutOfAnAnswer) {
  const auto wire = returned({arg::integer(kString), arg::string("four")});
  test::for_each_prefix(wire, [](Bytes got, bool whole) {
    ClientSession session;
    Request request;
    session.call(request, 7, {});
    const auto step = session.resume(got);
    ASSERT_TRUE(step.has_value());
    if (!whole) {
      EXPECT_EQ(step->kind, Step::Kind::need);
      EXPECT_GT(step->bytes, got.size());
      return;
    }
    ASSERT_EQ(step->kind, Step::Kind::done);
    EXPECT_EQ(step->consumed, got.size());
    EXPECT_EQ(as_text(session.answer().value.data), "four");
  });
}

TEST_F(Session, SurvivesEveryByteValueAtEveryPlaceOfAnAnswer) {
  const std::int64_t dims[] = {2, 3};
  TensorView view;
  view.dims = std::as_bytes(std::span{dims});
  for (const auto& wire :
       {returned({arg::integer(kTensor), arg::tensor(view), arg::pointer(9)}),
        returned({arg::integer(kBytes), arg::bytes(as_bytes("longer than seven"))})})
    test::for_each_byte(wire, [](Bytes bytes) {
      ClientSession session{{.frame_bytes_max = 1 << 20}};
      Request request;
      session.call(request, 7, {});
      const auto step = session.resume(bytes);
      if (!step.has_value()) return;
      EXPECT_LE(step->consumed, bytes.size());
    });
}

TEST_F(Session, SkipsEmptyPacketsInFrontOfAnAnswer) {
  ask_call();
  std::vector<std::byte> wire(16);
  const auto answer = returned({arg::integer(kInt), arg::integer(5)});
  wire.insert(wire.end(), answer.begin(), answer.end());
  const auto step = session_.resume(wire);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->consumed, wire.size());
  EXPECT_EQ(session_.answer().value.integer, 5);
}

TEST_F(Session, HandsOutABytesResultAsAPayload) {
  ask_call();
  const auto wire = returned({arg::integer(kBytes), arg::bytes(as_bytes("0123456789"))});
  const auto step = session_.resume(Bytes{wire}.first(wire.size() - 10));
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->kind, Step::Kind::payload);
  EXPECT_EQ(step->bytes, 10U);
  EXPECT_EQ(step->consumed, wire.size() - 10);
  session_.payload_done();
  EXPECT_EQ(session_.open_requests(), 0U);
}

TEST_F(Session, RefusesABytesResultThatDoesNotFillItsFrame) {
  ask_call();
  auto wire = returned({arg::integer(kBytes), arg::bytes(as_bytes("0123456789"))});
  wire[wire.size() - 18] = std::byte{9};
  EXPECT_EQ(error_of(wire), "bytes result says 9 bytes, its frame holds 10");
}

TEST_F(Session, GivesTheOwnerOfATensorResult) {
  ask_call();
  TensorView view;
  view.data = 42;
  ASSERT_TRUE(
      session_.resume(returned({arg::integer(kTensor), arg::tensor(view), arg::pointer(9)})));
  EXPECT_EQ(session_.answer().owner, 9U);
  EXPECT_EQ(session_.answer().value.tensor.data, 42U);
}

TEST_F(Session, TakesATensorArgumentThatComesStraightBack) {
  TensorView view;
  for (auto values : {std::vector{arg::integer(kTensorView), arg::tensor(view)},
                      std::vector{arg::integer(kTensorView), arg::tensor(view), arg::none()}}) {
    ask_call();
    ASSERT_TRUE(session_.resume(returned(values)));
    EXPECT_EQ(session_.answer().owner, 0U);
  }
}

TEST_F(Session, RefusesAnswersThatDoNotFitTheRequest) {
  ask_call();
  EXPECT_EQ(error_of(frame(FrameCode::copy_ack, [](ByteWriter&) {})),
            "the server sent CopyAck where no copy was asked for");
  EXPECT_EQ(error_of(returned({})), "the server sent a Return without a value");
  EXPECT_EQ(error_of(returned({arg::none()})),
            "call result of 1 values that begins with None is not tagged");
  EXPECT_EQ(error_of(returned({arg::integer(kModule), arg::real(1)})),
            "call result of type 73 comes as float, not as a handle");
  EXPECT_EQ(error_of(frame(FrameCode::exception, [](ByteWriter& w) { w.le<std::int32_t>(0); })),
            "the server sent an Exception without a text");
  EXPECT_EQ(error_of(frame(FrameCode::shutdown, [](ByteWriter&) {})),
            "the server ended the session (Shutdown)");
  EXPECT_EQ(error_of(frame(FrameCode::call_func, [](ByteWriter&) {})),
            "the server sent CallFunc where an answer was expected");
}

TEST_F(Session, RefusesACopyOfAnotherSize) {
  session_.copy_from(request_, TensorView{}, 8);
  EXPECT_EQ(error_of(frame(FrameCode::copy_ack, [](ByteWriter& w) { w.le<std::int32_t>(1); })),
            "the server sent 4 bytes of a copy, 8 were asked for");
}

TEST_F(Session, RefusesAnAnswerAboveItsLimitBeforeItArrives) {
  ClientSession session{{.frame_bytes_max = 100}};
  Request request;
  session.system(request, FrameCode::get_global_func, std::vector{arg::string("f")});
  std::vector<std::byte> head;
  ByteWriter w{head};
  w.le<std::uint64_t>(1ULL << 60);
  w.le(static_cast<std::int32_t>(FrameCode::return_value));
  EXPECT_EQ(session.resume(head).error().code, Code::limit);
}

TEST_F(Session, AnswersInTheOrderOfRequestsSentAhead) {
  for (int i = 0; i < 3; ++i) ask_call();
  std::vector<std::byte> wire;
  for (int i = 0; i < 3; ++i) {
    const auto one = returned({arg::integer(kInt), arg::integer(i)});
    wire.insert(wire.end(), one.begin(), one.end());
  }
  Bytes left{wire};
  for (int i = 0; i < 3; ++i) {
    const auto step = session_.resume(left);
    ASSERT_TRUE(step.has_value());
    EXPECT_EQ(session_.answer().value.integer, i);
    left = left.subspan(step->consumed);
  }
  EXPECT_TRUE(left.empty());
}

TEST_F(Session, SendsOnlyTheLargestBytesArgumentFromWhereItLies) {
  const std::vector<std::byte> large(100'000), larger(200'000);
  const std::vector args{arg::bytes(large), arg::bytes(larger), arg::integer(1)};
  session_.call(request_, 7, args);
  EXPECT_EQ(request_.payload.data(), larger.data());
  std::size_t skipped = 0;
  const auto head = parse_frame_head(request_.head, skipped).value().value();
  EXPECT_EQ(head.body_bytes + 8,
            request_.head.size() + request_.payload_bytes + request_.tail.size());
}

TEST_F(Session, BoxesTextWithANul) {
  EXPECT_FALSE(arg::string("plain").boxed);
  EXPECT_TRUE(arg::string(std::string_view{"a\0b", 3}).boxed);
}

TEST(SessionProperty, EveryByteStringIsAnAnswerOrAnErrorOrNeedsMore) {
  rc::check([](const std::vector<std::uint8_t>& raw) {
    ClientSession session;
    Request request;
    session.call(request, 1, {});
    const auto wire = std::as_bytes(std::span{raw});
    const auto step = session.resume(wire);
    if (step.has_value() && step->kind == Step::Kind::need)
      RC_ASSERT(step->consumed + step->bytes > wire.size());
  });
}

}  // namespace
}  // namespace outpost::rpc
