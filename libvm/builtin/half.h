#pragma once
#include <bit>
#include <cstdint>

namespace outpost::vm {

/// IEEE 754 binary16 to binary32; exact.
constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
  std::uint32_t exponent = (half >> 10) & 0x1fU;
  std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
  if (exponent == 0) {
    if (fraction == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    while ((fraction & 0x400U) == 0) {  // make the leading one explicit
      fraction <<= 1;
      --exponent;
    }
    fraction &= 0x3ffU;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/// Rounds to the nearest binary16, ties to even; too large gives infinity, NaN stays NaN. From a
/// double directly, since rounding twice would miss ties.
constexpr std::uint16_t double_to_half(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 48) & 0x8000U);
  const auto exponent = static_cast<int>((bits >> 52) & 0x7ffU) - 1023;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent == 1024)
    return static_cast<std::uint16_t>(
        sign | 0x7c00U |
        (fraction == 0 ? 0U : 0x200U | static_cast<std::uint32_t>(fraction >> 42)));
  if (exponent < -25) return sign;
  // The 11 significant bits of a normal half; fewer where the half is subnormal.
  const int dropped = exponent < -14 ? 42 + (-14 - exponent) : 42;
  const std::uint64_t significand = fraction | (std::uint64_t{1} << 52);
  std::uint64_t kept = significand >> dropped;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << dropped) - 1);
  const std::uint64_t half_way = std::uint64_t{1} << (dropped - 1);
  if (rest > half_way || (rest == half_way && (kept & 1U) != 0)) ++kept;
  // A carry out of the fraction moves into the exponent, which is what rounding up means.
  const std::uint64_t biased = exponent < -14 ? 0 : static_cast<std::uint64_t>(exponent + 14) << 10;
  const std::uint64_t out = biased + kept;
  return static_cast<std::uint16_t>(sign | (out >= 0x7c00U ? 0x7c00U : out));
}
constexpr std::uint16_t float_to_half(float value) {
  return double_to_half(double{value});
}

}  // namespace outpost::vm
