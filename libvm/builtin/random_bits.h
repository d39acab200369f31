#pragma once
#include <bit>
#include <cstdint>

#include "builtin/half.h"

namespace outpost::vm {

/// 64 well mixed bits of a counter (the finaliser of splitmix64): element i of a fill is a function
/// of seed + i, so that threads share the work without sharing a state.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Uniform in [1, 10) from random bits, in the form that an element of this width gets.
constexpr double fill_double(std::uint64_t bits) {
  return 1.0 + 9.0 * (static_cast<double>(bits >> 11) * 0x1p-53);
}
constexpr float fill_float(std::uint64_t bits) {
  return 1.0F + 9.0F * (static_cast<float>(bits >> 40) * 0x1p-24F);
}
constexpr std::uint16_t fill_half(std::uint64_t bits) {
  constexpr std::uint16_t kTen = 0x4900;
  const auto half = float_to_half(fill_float(bits));
  return half < kTen ? half : static_cast<std::uint16_t>(kTen - 1);  // rounded up to the open end
}
constexpr std::uint8_t fill_byte(std::uint64_t bits) {
  return static_cast<std::uint8_t>(fill_float(bits));
}

}  // namespace outpost::vm
