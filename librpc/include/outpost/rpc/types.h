#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <outpost/rpc/export.h>

namespace outpost::client {

/// A DLPack device of the server, for example type 1 (cpu), id 0.
struct Device {
  std::int32_t type = 1;
  std::int32_t id = 0;
  bool operator==(const Device&) const = default;
};
/// The number of "cpu", "cuda" or "gpu", "cl" or "opencl", "vulkan", "metal", "rocm", "ext_dev",
/// "hexagon", "webgpu", or of a decimal number. Throws RpcError(argument).
OUTPOST_CLIENT_API std::int32_t device_type(std::string_view name);
/// "cpu:0", ...; the number for a type without a name.
OUTPOST_CLIENT_API std::string name(Device device);

/// A DLPack data type: code, bits of one lane, lanes.
struct OUTPOST_CLIENT_API DataType {
  std::uint8_t code = 2;
  std::uint8_t bits = 32;
  std::uint16_t lanes = 1;
  bool operator==(const DataType&) const = default;

  /// Reads "float32", "int8x4", "bool", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", "handle".
  /// Throws RpcError(argument).
  static DataType parse(std::string_view text);
  std::string name() const;
  /// Bytes of that many elements, rounded up for types below a byte. Throws RpcError(limit) when
  /// the number overflows.
  std::uint64_t bytes(std::uint64_t elements) const;
};

/// The type of a C++ number.
template <class T>
constexpr DataType data_type_of();
template <>
constexpr DataType data_type_of<float>() {
  return {2, 32, 1};
}
template <>
constexpr DataType data_type_of<double>() {
  return {2, 64, 1};
}
template <>
constexpr DataType data_type_of<bool>() {
  return {6, 8, 1};
}
template <>
constexpr DataType data_type_of<std::int8_t>() {
  return {0, 8, 1};
}
template <>
constexpr DataType data_type_of<std::int16_t>() {
  return {0, 16, 1};
}
template <>
constexpr DataType data_type_of<std::int32_t>() {
  return {0, 32, 1};
}
template <>
constexpr DataType data_type_of<std::int64_t>() {
  return {0, 64, 1};
}
template <>
constexpr DataType data_type_of<std::uint8_t>() {
  return {1, 8, 1};
}
template <>
constexpr DataType data_type_of<std::uint16_t>() {
  return {1, 16, 1};
}
template <>
constexpr DataType data_type_of<std::uint32_t>() {
  return {1, 32, 1};
}
template <>
constexpr DataType data_type_of<std::uint64_t>() {
  return {1, 64, 1};
}

/// Elements of a shape: 1 for a scalar. Throws RpcError(argument) for a negative dimension and
/// RpcError(limit) when the number overflows.
OUTPOST_CLIENT_API std::uint64_t element_count(std::span<const std::int64_t> shape);

/// An address or stream of the server; only the server knows what it means.
struct Pointer {
  std::uint64_t value = 0;
  bool operator==(const Pointer&) const = default;
};

}  // namespace outpost::client
