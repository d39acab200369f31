#include <gtest/gtest.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "builtin/half.h"
#include "builtin/random_bits.h"
#include "device/tensor.h"
#include "outpost/vm/runtime.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;
constexpr DLDevice kCpu{kDLCPU, 0};

DLDataType dtype(int code, int bits, int lanes = 1) {
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits),
          static_cast<std::uint16_t>(lanes)};
}

ffi::Function random(const std::string& name) {
  register_runtime();
  return ffi::Function::GetGlobalRequired("tvm.contrib.random." + name);
}

template <class T>
std::vector<T> values(const ffi::Tensor& t) {
  std::vector<T> out(static_cast<std::size_t>(checked_bytes(*t.GetDLTensorPtr())) / sizeof(T));
  read_bytes(*t.GetDLTensorPtr(), out.data(), out.size() * sizeof(T));
  return out;
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

class RandomFill : public testing::TestWithParam<const char*> {};

template <class T, class Value>
void expect_one_to_ten(const ffi::Function& fill, DLDataType type, Value value) {
  const auto t = empty({50, 200}, type, kCpu);
  fill(t);
  const auto all = values<T>(t);
  double sum = 0;
  for (const auto element : all) {
    const double v = value(element);
    ASSERT_GE(v, 1.0);
    ASSERT_LT(v, 10.0);
    sum += v;
  }
  EXPECT_NEAR(sum / static_cast<double>(all.size()), sizeof(T) == 1 ? 5.0 : 5.5, 0.25);
}

TEST_P(RandomFill, IsUniformFromOneToTenByWidthWhateverTheType) {
  const auto fill = random(GetParam());
  const auto same = [](auto v) { return static_cast<double>(v); };
  for (const int code : {kDLInt, kDLUInt, kDLFloat, kDLBfloat, kDLBool}) {
    expect_one_to_ten<std::uint8_t>(fill, dtype(code, 8), same);
    expect_one_to_ten<std::uint16_t>(fill, dtype(code, 16),
                                     [](std::uint16_t v) { return double{half_to_float(v)}; });
    expect_one_to_ten<float>(fill, dtype(code, 32), same);
    expect_one_to_ten<double>(fill, dtype(code, 64), same);
  }
  expect_one_to_ten<float>(fill, dtype(kDLFloat, 32, 4), same);
}

TEST_P(RandomFill, GivesOtherNumbersEachTime) {
  const auto fill = random(GetParam());
  const auto t = empty({8}, dtype(kDLFloat, 32), kCpu);
  fill(t);
  const auto first = values<float>(t);
  fill(t);
  EXPECT_NE(values<float>(t), first);
}

TEST_P(RandomFill, RefusesWidthsWithoutAForm) {
  EXPECT_NE(error_of([] {
              random(GetParam())(empty({8}, dtype(kDLInt, 4), kCpu));
            }).find("Doesn't support dtype code 0 dtype bits 4"),
            std::string::npos);
  EXPECT_NE(error_of([] { random(GetParam())(3); }), "no error");
}

INSTANTIATE_TEST_SUITE_P(Both, RandomFill,
                         testing::Values("random_fill", "random_fill_for_measure"));

TEST(RandomFillForMeasure, FillsALargeTensorToItsEnd) {
  const auto t = empty({(1 << 18) + 3}, dtype(kDLFloat, 32), kCpu);
  std::memset(t.data_ptr(), 0, ((1 << 18) + 3) * 4);
  random("random_fill_for_measure")(t);
  const auto all = values<float>(t);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](float v) { return v < 1 || v >= 10; }), 0);
}

TEST(RandomBits, StayBelowTenAtTheTop) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  EXPECT_LT(fill_float(kAll), 10.0F);
  EXPECT_LT(fill_double(kAll), 10.0);
  EXPECT_LT(half_to_float(fill_half(kAll)), 10.0F);
  EXPECT_EQ(fill_byte(kAll), 9);
  EXPECT_EQ(fill_byte(0), 1);
}

TEST(Uniform, LiesInItsRangeAndASeedRepeatsIt) {
  const auto f = random("uniform");
  const auto a = empty({1000}, dtype(kDLFloat, 32), kCpu);
  const auto b = empty({1000}, dtype(kDLFloat, 32), kCpu);
  f(-2.0, 3, a);
  for (const float v : values<float>(a)) EXPECT_TRUE(v >= -2 && v <= 3);
  f(1, 2, 0.0, 1.0, a);
  f(1, 2, 0.0, 1.0, b);
  EXPECT_EQ(values<float>(a), values<float>(b));
  f(2, 1, 0.0, 1.0, b);
  EXPECT_NE(values<float>(a), values<float>(b));
  f(0, 0, 0.0, 1.0, a);
  f(0, 0, 0.0, 1.0, b);
  EXPECT_NE(values<float>(a), values<float>(b)) << "two zero seeds are none";
}

TEST(Normal, HasItsMeanAndDeviation) {
  const auto t = empty({20000}, dtype(kDLFloat, 32), kCpu);
  random("normal")(5, 7, 10.0, 2.0, t);
  const auto all = values<float>(t);
  const double mean = std::accumulate(all.begin(), all.end(), 0.0) / 20000;
  double square = 0;
  for (const float v : all) square += (v - mean) * (v - mean);
  EXPECT_NEAR(mean, 10.0, 0.1);
  EXPECT_NEAR(std::sqrt(square / 20000), 2.0, 0.1);
}

TEST(Randint, ClipsItsRangeToTheType) {
  const auto t = empty({4000}, dtype(kDLUInt, 8), kCpu);
  random("randint")(-5, 300, t);
  const auto all = values<std::uint8_t>(t);
  EXPECT_EQ(*std::max_element(all.begin(), all.end()), 255);
  const auto small = empty({100}, dtype(kDLInt, 32), kCpu);
  random("randint")(-3, -1, small);
  for (const auto v : values<std::int32_t>(small)) EXPECT_TRUE(v == -3 || v == -2);
}

TEST(Random, RefusesWhatItCannotDraw) {
  const auto f32 = empty({4}, dtype(kDLFloat, 32), kCpu);
  const auto f64 = empty({4}, dtype(kDLFloat, 64), kCpu);
  const auto i64 = empty({4}, dtype(kDLInt, 64), kCpu);
  const auto i8 = empty({4}, dtype(kDLInt, 8), kCpu);
  EXPECT_NE(error_of([&] { random("uniform")(5.0, 1.0, f32); }).find("above low"),
            std::string::npos);
  EXPECT_NE(error_of([&] { random("uniform")(0.0, 1.0, f64); }).find("float64"), std::string::npos);
  EXPECT_NE(error_of([&] { random("uniform")(1, 0.0, 1.0, f32); }), "no error");
  EXPECT_NE(error_of([&] { random("normal")(0.0, 0.0, f32); }).find("above 0"), std::string::npos);
  EXPECT_NE(error_of([&] { random("randint")(0, 4, i64); }).find("int64"), std::string::npos);
  EXPECT_NE(error_of([&] { random("randint")(200, 300, i8); }).find("[200, 300)"),
            std::string::npos);
}

TEST(CacheFlush, LeavesTheDataAndSkipsTheFirstArgument) {
  register_runtime();
  const auto flush = ffi::Function::GetGlobalRequired("cache_flush_cpu_non_first_arg");
  const auto t = empty({1000}, dtype(kDLFloat, 32), kCpu);
  random("random_fill")(t);
  const auto before = values<float>(t);
  flush();
  flush(1);
  flush(t, t, t);
  EXPECT_EQ(values<float>(t), before);
  EXPECT_NE(error_of([&] { flush(t, 1); }), "no error");
}

TEST(ShapeFunctions, TellSizeAndElement) {
  register_runtime();
  const ffi::Shape shape{2, 3};
  EXPECT_EQ(ffi::Function::GetGlobalRequired("rpc.testing.GetShapeSize")(shape).cast<int>(), 2);
  const auto element = ffi::Function::GetGlobalRequired("rpc.testing.GetShapeElem");
  EXPECT_EQ(element(shape, 1).cast<int>(), 3);
  EXPECT_NE(error_of([&] { element(shape, 2); }), "no error");
}
}  // namespace
}  // namespace outpost::vm
