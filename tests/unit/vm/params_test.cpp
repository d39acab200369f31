#include "builtin/params.h"

#include <gtest/gtest.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "outpost/vm/runtime.h"
#include "support/sweep.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;
using Params = ffi::Map<ffi::String, ffi::Tensor>;
constexpr DLDevice kCpu{kDLCPU, 0};

/// {"b": int64 scalar 5, "a": float32 [0, 1, 2]} as the stock runtime writes it.
constexpr const char* kStock =
    "b79c04054f8de5f7000000000000000002000000000000000100000000000000620100000000000000610200000000"
    "0000003fa1b496f0405edd000000000000000001000000000000000000000000400100080000000000000005000000"
    "000000003fa1b496f0405edd00000000000000000100000000000000010000000220010003000000000000000c0000"
    "0000000000000000000000803f00000040";

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(std::string{text.substr(i, 2)}, nullptr, 16)));
  return out;
}

ffi::Function global(const char* name) {
  register_runtime();
  return ffi::Function::GetGlobalRequired(name);
}

ffi::Bytes as_ffi(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
    return "no error";
  } catch (const ffi::Error& e) {
    return e.message();
  }
}

TEST(Params, ReadsWhatTheStockRuntimeWrites) {
  const auto params = global("runtime.LoadParams")(as_ffi(from_hex(kStock))).cast<Params>();
  ASSERT_EQ(params.size(), 2U);
  EXPECT_EQ(*static_cast<std::int64_t*>(params.at("b").data_ptr()), 5);
  EXPECT_EQ(params.at("b").ndim(), 0);
  EXPECT_EQ(static_cast<float*>(params.at("a").data_ptr())[2], 2.0F);
}

TEST(Params, WritesTheSameBytes) {
  const auto bytes = from_hex(kStock);
  const auto params = global("runtime.LoadParams")(as_ffi(bytes));
  const auto out = global("runtime.SaveParams")(params).cast<ffi::Bytes>();
  EXPECT_EQ(as_text(bytes), (std::string_view{out.data(), out.size()}));
}

TEST(Params, EveryProperPrefixIsAnError) {
  const auto bytes = from_hex(kStock);
  test::for_each_prefix(
      bytes, [](Bytes got, bool whole) { EXPECT_EQ(read_params(got).has_value(), whole); });
}

TEST(Params, NoByteMakesItCrash) {
  test::for_each_byte(from_hex(kStock), [](Bytes got) { (void)read_params(got); });
}

TEST(Params, NamesWhatIsWrong) {
  const auto with = [](std::size_t at, int value) {
    auto bytes = from_hex(kStock);
    bytes[at] = static_cast<std::byte>(value);
    const auto read = read_params(bytes);
    return read ? "no error" : read.error().text;
  };
  EXPECT_NE(with(0, 0).find("these are no parameters"), std::string::npos);
  EXPECT_EQ(with(8, 1), "reserved word is 1, expected 0");
  EXPECT_EQ(with(32, 'a'), "name 'a' comes twice");
  EXPECT_EQ(with(42, 3), "3 tensors for 2 names");
  EXPECT_NE(with(50, 0).find("parameter 'b': tensor magic"), std::string::npos);
  auto longer = from_hex(kStock);
  longer.push_back(std::byte{0});
  EXPECT_NE(read_params(longer).error().text.find("1 bytes left over"), std::string::npos);
}

TEST(Params, SurviveTheWayThroughAFile) {
  const std::string path = testing::TempDir() + "outpost_params_" + std::to_string(getpid());
  const auto params = global("runtime.LoadParams")(as_ffi(from_hex(kStock)));
  global("runtime.SaveParamsToFile")(params, path);
  const auto back = global("runtime.LoadParamsFromFile")(path).cast<Params>();
  EXPECT_EQ(back.size(), 2U);
  EXPECT_NE(access((path + ".part").c_str(), F_OK), 0);
  std::remove(path.c_str());
  EXPECT_NE(error_of([&] { global("runtime.LoadParamsFromFile")(path); }).find("cannot open"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              global("runtime.SaveParamsToFile")(params, "/nowhere/x");
            }).find("cannot open file '/nowhere/x'"),
            std::string::npos);
}

TEST(Params, RefuseTypesThatTheFormatCannotHold) {
  for (const DLDataType type : {DLDataType{kDLInt, 4, 1}, DLDataType{kDLFloat, 32, 4}}) {
    Params params;
    params.Set("x", empty({8}, type, kCpu));
    EXPECT_NE(error_of([&] { global("runtime.SaveParams")(params); }).find("cannot hold"),
              std::string::npos);
  }
}
}  // namespace
}  // namespace outpost::vm
