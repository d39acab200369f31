#include <gtest/gtest.h>

#include <fstream>

#include "support/session_pair.h"

namespace outpost {
namespace {
using rpc::FrameCode;
using test::SessionPair;
using Packed = rpc::PackedWriter;

bool is_exception(const SessionPair::Answer& a, std::string_view part) {
  EXPECT_EQ(a.code, FrameCode::exception);
  EXPECT_NE(a.text().find(part), std::string::npos) << a.text();
  return a.code == FrameCode::exception;
}

void ask_for(SessionPair& s, std::string_view name) {
  s.request(FrameCode::get_global_func, [&](ByteWriter& out) {
    Packed packed{out};
    packed.count(1);
    packed.raw_string(name);
  });
}

void init_as(SessionPair& s, std::string_view version) {
  s.request(FrameCode::init_server, [&](ByteWriter& out) {
    out.sized(as_bytes(version));
    out.le<std::int32_t>(0);
  });
}

TEST(Session, SaysThatInitServerMustComeFirst) {
  SessionPair s;
  ask_for(s, "x");
  is_exception(s.answer(), "before InitServer");
  s.init();
  EXPECT_EQ(s.leave(), SessionEnd::closed);
}

TEST(Session, NamesBothVersionsAndLetsASecondInitServerSucceed) {
  SessionPair s;
  init_as(s, "0.7.0");
  is_exception(s.answer(), "server protocol=0.8.0, client protocol=0.7.0");
  s.init();
  init_as(s, "0.8.0");
  is_exception(s.answer(), "already initialised");
  EXPECT_NE(s.global("vm.builtin.make_tuple"), 0U);
}

TEST(Session, RefusesAnUnknownConstructorByName) {
  SessionPair s;
  s.request(FrameCode::init_server, [](ByteWriter& out) {
    out.sized(as_bytes("0.8.0"));
    Packed packed{out};
    packed.count(1);
    packed.boxed_string("rpc.NonExisting");
  });
  is_exception(s.answer(), "'rpc.NonExisting' not found");
  s.init();
}

TEST(Session, KeepsAnObjectUntilItsHandleIsFreed) {
  SessionPair s;
  s.init();
  const auto make = s.global("vm.builtin.make_tuple");
  const auto get = s.global("vm.builtin.tuple_getitem");
  const auto made = s.call(make, 2, [](Packed& p) {
    p.integer(11);
    p.integer(22);
  });
  ASSERT_EQ(made.values.size(), 2U);
  EXPECT_EQ(made.values[0].integer, 71);
  const auto tuple = made.values[1].handle();
  const auto second = [&] {
    return s.call(get, 2, [&](Packed& p) {
      p.object(tuple);
      p.integer(1);
    });
  };
  EXPECT_EQ(second().values[1].integer, 22);
  const auto free = [&] {
    s.request(FrameCode::free_handle, [&](ByteWriter& out) {
      Packed packed{out};
      packed.count(1);
      packed.pointer(tuple);
    });
    return s.answer();
  };
  EXPECT_EQ(free().code, FrameCode::return_value);
  is_exception(free(), "was not given out by this session");
  is_exception(second(), "argument 0");
}

TEST(Session, AnswersNullAndForeignHandlesWithAnException) {
  SessionPair s;
  s.init();
  for (const std::uint64_t handle : {0ULL, 1ULL, 0x7f0000001000ULL, ~0ULL})
    is_exception(s.call(handle, 0, [](Packed&) {}), "was not given out");
  const std::vector<std::int64_t> shape{4};
  is_exception(s.copy_from(SessionPair::view(0, shape), 16), "was not given out");
}

TEST(Session, CopiesTensorsWithinTheirBoundsOnly) {
  SessionPair s;
  s.init();
  const std::vector<std::int64_t> shape{4};
  const auto handle = s.alloc(shape);
  ASSERT_NE(handle, 0U);
  const std::vector<float> numbers{1, 2, 3, 4};
  const auto whole = SessionPair::view(handle, shape);
  EXPECT_EQ(s.copy_to(whole, std::as_bytes(std::span{numbers})).code, FrameCode::return_value);
  const auto back = s.copy_from(SessionPair::view(handle, shape, 4), 8);
  ASSERT_EQ(back.code, FrameCode::copy_ack);
  EXPECT_EQ(std::memcmp(back.body.data(), numbers.data() + 1, 8), 0);
  is_exception(s.copy_from(whole, 4096), "beyond the tensor's 16 bytes");
  is_exception(s.copy_from(SessionPair::view(handle, shape, ~0ULL - 3), 8), "beyond");
  const std::vector<std::byte> much(4096);
  is_exception(s.copy_to(whole, much), "beyond the tensor's 16 bytes");
  EXPECT_EQ(s.copy_from(whole, 16).code, FrameCode::copy_ack);
}

TEST(Session, RefusesShapesThatOverflowOrAreNegative) {
  SessionPair s;
  s.init();
  EXPECT_EQ(s.alloc({std::int64_t{1} << 40, std::int64_t{1} << 40}), 0U);
  EXPECT_EQ(s.alloc({-4}), 0U);
  EXPECT_NE(s.alloc({0, 3}), 0U);
  EXPECT_NE(s.alloc({}), 0U);
}

TEST(Session, ReturnsATensorArgumentAsAnOwnedTensorAtItsOffset) {
  SessionPair s;
  s.init();
  const std::vector<std::int64_t> shape{4};
  const std::vector<std::int64_t> part{2};
  const auto handle = s.alloc(shape);
  const std::vector<float> numbers{1, 2, 3, 4};
  s.copy_to(SessionPair::view(handle, shape), std::as_bytes(std::span{numbers}));
  const auto copy = s.global("vm.builtin.copy");
  const auto a = s.call(copy, 1, [&](Packed& p) { p.tensor(SessionPair::view(handle, part, 8)); });
  ASSERT_EQ(a.values.size(), 3U);
  EXPECT_EQ(a.values[0].integer, 70);
  EXPECT_EQ(a.values[1].tensor.byte_offset, 0U);
  const auto back = s.copy_from(SessionPair::view(a.values[1].tensor.data, part), 8);
  EXPECT_EQ(std::memcmp(back.body.data(), numbers.data() + 2, 8), 0);
}

TEST(Session, AnswersRequestsSentAheadInOrder) {
  SessionPair s;
  s.init();
  const auto null = s.global("vm.builtin.null_value");
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  for (int i = 0; i < 64; ++i) {
    const auto begin = rpc::open_frame(out, FrameCode::call_func);
    out.le(null);
    out.le<std::int32_t>(0);
    rpc::close_frame(out, begin);
  }
  s.send(raw);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(s.answer().code, FrameCode::return_value) << i;
}

TEST(Session, StreamsAFileBothWays) {
  SessionPair s;
  s.init();
  std::string body(3 << 20, 'x');
  body[12345] = '\0';
  const auto up = s.global("tvm.rpc.server.upload");
  const auto done = s.call(up, 2, [&](Packed& p) {
    p.raw_string("a.bin");
    p.boxed_bytes(as_bytes(body));
  });
  EXPECT_EQ(done.code, FrameCode::return_value);
  const auto down = s.global("tvm.rpc.server.download");
  const auto back = s.call(down, 1, [](Packed& p) { p.raw_string("a.bin"); });
  ASSERT_EQ(back.values.size(), 2U);
  EXPECT_TRUE(as_text(back.values[1].data) == body);
}

TEST(Session, RefusesNamesOutsideItsFolderAndGoesOn) {
  SessionPair s;
  s.init();
  const auto up = s.global("tvm.rpc.server.upload");
  const auto put = [&](std::string_view name) {
    return s.call(up, 2, [&](Packed& p) {
      p.raw_string(name);
      p.byte_view(as_bytes("abc"));
    });
  };
  for (const auto* name : {"../x", "a/../../x", "/etc/x", "", ".", "missing/x"})
    EXPECT_EQ(put(name).code, FrameCode::exception) << name;
  std::filesystem::create_symlink("/etc", s.folder() + "/link");
  EXPECT_EQ(put("link/x").code, FrameCode::exception);
  const auto down = s.global("tvm.rpc.server.download");
  const auto get = [&](std::string_view name) {
    return s.call(down, 1, [&](Packed& p) { p.raw_string(name); });
  };
  is_exception(get("/etc/passwd"), "stay inside");
  is_exception(get("link/passwd"), "leaves the session's folder");
  is_exception(get("nope"), "Cannot open");
  EXPECT_EQ(put("fine").code, FrameCode::return_value);
  EXPECT_EQ(get("fine").code, FrameCode::return_value);
}

TEST(Session, AnUploadReplacesAFileThatOthersStillRead) {
  SessionPair s;
  s.init();
  const auto up = s.global("tvm.rpc.server.upload");
  const auto put = [&](std::string_view text) {
    s.call(up, 2, [&](Packed& p) {
      p.raw_string("f");
      p.byte_view(as_bytes(text));
    });
  };
  put("old");
  std::ifstream older{s.folder() + "/f"};
  put("newer");
  std::string seen;
  older >> seen;
  EXPECT_EQ(seen, "old");
}

TEST(Session, ClosesWithAReasonWhenAFrameCannotBeTrusted) {
  for (const std::int32_t code : {0, 4, 5, 8, 22, 99, -1}) {
    SessionPair s;
    s.init();
    s.request(FrameCode{code}, [](ByteWriter&) {});
    is_exception(s.answer(), "is not a request");
    EXPECT_EQ(s.answer().code, FrameCode{});
    EXPECT_EQ(s.leave(), SessionEnd::protocol);
  }
}

TEST(Session, RefusesAFrameAboveItsLimit) {
  host::SessionOptions options;
  options.limits.frame_bytes_max = 1 << 20;
  SessionPair s{options};
  s.init();
  const auto make = s.global("vm.builtin.make_tuple");
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::uint64_t>(2 << 20);
  out.le(static_cast<std::int32_t>(FrameCode::call_func));
  out.le(make);
  s.send(raw);
  is_exception(s.answer(), "exceeds frame_bytes_max 1048576");
  EXPECT_EQ(s.leave(), SessionEnd::limit);
}

TEST(Session, ALoweredFrameLimitIsAnnouncedAndBindsCopies) {
  host::SessionOptions options;
  options.limits.frame_bytes_max = 1 << 20;
  SessionPair s{options};
  s.init();
  const auto announced = s.call(s.global("tvm.rpc.server.GetCRTMaxPacketSize"), 0, [](Packed&) {});
  EXPECT_EQ(announced.values[1].integer, 1 << 20);
  const std::vector<std::int64_t> shape{1 << 19};
  const auto handle = s.alloc(shape);
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::uint64_t>((1 << 21) + 56);
  out.le(static_cast<std::int32_t>(FrameCode::copy_to_remote));
  rpc::encode_tensor(out, SessionPair::view(handle, shape));
  out.le<std::uint64_t>(1 << 21);
  s.send(raw);
  is_exception(s.answer(), "exceeds the limit of 1048576 for copies");
  EXPECT_EQ(s.leave(), SessionEnd::limit);
}

TEST(Session, StopsWithoutAWordWhenTheDaemonHasTheTurn) {
  SessionPair s;
  s.init();
  for (auto idle = Turn::idle; !s.page().turn.compare_exchange_weak(idle, Turn::taken);)
    idle = Turn::idle;
  ask_for(s, "x");
  EXPECT_EQ(s.leave(), SessionEnd::unknown);
}

TEST(Session, SurvivesEveryCutOfARequestAndChangedBytes) {
  SessionPair s;
  s.init();
  const auto make = s.global("vm.builtin.make_tuple");
  const std::vector<std::int64_t> shape{2, 2};
  std::vector<std::byte> body;
  ByteWriter out{body};
  out.le(make);
  Packed packed{out};
  packed.count(4);
  packed.raw_string("abc");
  packed.boxed_bytes(as_bytes("de"));
  packed.tensor(SessionPair::view(7, shape));
  packed.object(9);
  const auto send_body = [&](Bytes b) {
    s.request(FrameCode::call_func, [&](ByteWriter& w) { w.bytes(b); });
    ASSERT_NE(s.answer().code, FrameCode{});
  };
  for (std::size_t n = 0; n <= body.size(); ++n) send_body(Bytes{body}.first(n));
  for (std::size_t at = 0; at < body.size(); ++at)
    for (const int value : {0, 1, 7, 64, 127, 128, 255}) {
      auto changed = body;
      changed[at] = static_cast<std::byte>(value);
      send_body(changed);
    }
}

}  // namespace
}  // namespace outpost
