#include "builtin/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace outpost::vm {
namespace {

TEST(Half, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
      continue;
    }
    EXPECT_EQ(float_to_half(value), half);
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0F);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(half_to_float(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(half_to_float(0xfc00), -std::numeric_limits<float>::infinity());
}

TEST(Half, RoundsTiesToEvenAndOverflowsToInfinity) {
  EXPECT_EQ(float_to_half(1.0F + std::ldexp(1.0F, -11)), 0x3c00);
  EXPECT_EQ(float_to_half(1.0F + 3 * std::ldexp(1.0F, -11)), 0x3c02);
  EXPECT_EQ(float_to_half(65519.0F), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0F), 0x7c00);
  EXPECT_EQ(float_to_half(1e30F), 0x7c00);
  EXPECT_EQ(double_to_half(std::ldexp(1.0, -25)), 0x0000);
  EXPECT_EQ(double_to_half(std::nextafter(std::ldexp(1.0, -25), 1.0)), 0x0001);
  EXPECT_EQ(double_to_half(-0.0), 0x8000);
}

TEST(Half, ADoubleIsRoundedOnce) {
  // Just above a tie of halves, but a tie itself once it is a float.
  const double value = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(double_to_half(value), 0x3c01);
}
}  // namespace
}  // namespace outpost::vm
