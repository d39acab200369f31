#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include <outpost/rpc/error.h>
#include <outpost/rpc/types.h>

namespace outpost::client {
namespace {

struct DeviceName {
  std::string_view name;
  std::int32_t type;
};
// The first name of a number is the one that is shown.
constexpr std::array kDevices{
    DeviceName{"cpu", 1},      DeviceName{"cuda", 2},     DeviceName{"cuda_host", 3},
    DeviceName{"opencl", 4},   DeviceName{"vulkan", 7},   DeviceName{"metal", 8},
    DeviceName{"rocm", 10},    DeviceName{"ext_dev", 12}, DeviceName{"webgpu", 15},
    DeviceName{"hexagon", 16}, DeviceName{"llvm", 1},     DeviceName{"c", 1},
    DeviceName{"gpu", 2},      DeviceName{"nvptx", 2},    DeviceName{"cl", 4}};

struct TypeName {
  std::string_view name;
  std::uint8_t code;
  std::uint8_t bits;  ///< 0: follow in the text
};
// DLPack codes. Longer names first, so that none hides behind its prefix.
constexpr std::array kTypes{TypeName{"float8_e3m4", 7, 8},
                            TypeName{"float8_e4m3b11fnuz", 9, 8},
                            TypeName{"float8_e4m3fnuz", 11, 8},
                            TypeName{"float8_e4m3fn", 10, 8},
                            TypeName{"float8_e4m3", 8, 8},
                            TypeName{"float8_e5m2fnuz", 13, 8},
                            TypeName{"float8_e5m2", 12, 8},
                            TypeName{"float8_e8m0fnu", 14, 8},
                            TypeName{"float6_e2m3fn", 15, 6},
                            TypeName{"float6_e3m2fn", 16, 6},
                            TypeName{"float4_e2m1fn", 17, 4},
                            TypeName{"bfloat", 4, 0},
                            TypeName{"float", 2, 0},
                            TypeName{"uint", 1, 0},
                            TypeName{"int", 0, 0},
                            TypeName{"bool", 6, 8},
                            TypeName{"handle", 3, 64}};

[[noreturn]] void refuse_type(std::string_view text) {
  throw RpcError{Code::argument, fmt::format("unknown data type '{}': expected a name such as "
                                             "float32, int8, bool, bfloat16 or float32x4",
                                             text)};
}

/// A number of 1 to `max` at the front of `text`, which loses it.
std::optional<std::uint16_t> take_number(std::string_view& text, std::uint16_t max) {
  std::uint16_t out = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec != std::errc{} || out == 0 || out > max) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return out;
}

}  // namespace

std::int32_t device_type(std::string_view name) {
  for (const auto& d : kDevices)
    if (d.name == name) return d.type;
  std::int32_t number = 0;
  const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (ec == std::errc{} && end == name.data() + name.size() && number > 0) return number;
  throw RpcError{
      Code::argument,
      fmt::format("unknown device '{}': expected cpu, cuda, opencl, vulkan, metal, rocm, "
                  "ext_dev, hexagon, webgpu or a number",
                  name)};
}

std::string name(Device device) {
  for (const auto& d : kDevices)
    if (d.type == device.type) return fmt::format("{}:{}", d.name, device.id);
  return fmt::format("{}:{}", device.type, device.id);
}

DataType DataType::parse(std::string_view text) {
  auto rest = text;
  for (const auto& type : kTypes) {
    if (!rest.starts_with(type.name)) continue;
    rest.remove_prefix(type.name.size());
    DataType out{type.code, type.bits, 1};
    if (type.bits == 0) {
      const auto bits = take_number(rest, 255);
      // Plain "int" and "float" mean 32 bits, as they do for stock clients.
      if (!bits && !rest.empty() && rest.front() != 'x') refuse_type(text);
      out.bits = static_cast<std::uint8_t>(bits.value_or(32));
    }
    if (rest.starts_with('x')) {
      rest.remove_prefix(1);
      const auto lanes = take_number(rest, 0xffff);
      if (!lanes) refuse_type(text);
      out.lanes = *lanes;
    }
    if (rest.empty()) return out;
    refuse_type(text);
  }
  refuse_type(text);
}

std::string DataType::name() const {
  std::string out = fmt::format("code{}_{}", code, bits);
  for (const auto& type : kTypes) {
    if (type.code != code || (type.bits != 0 && type.bits != bits)) continue;
    out = type.bits != 0 ? std::string{type.name} : fmt::format("{}{}", type.name, bits);
    break;
  }
  return lanes == 1 ? out : fmt::format("{}x{}", out, lanes);
}

std::uint64_t DataType::bytes(std::uint64_t elements) const {
  const std::uint64_t element_bits = std::uint64_t{bits} * lanes;
  std::uint64_t all_bits = 0;
  if (__builtin_mul_overflow(elements, element_bits, &all_bits) || all_bits > UINT64_MAX - 7)
    throw RpcError{Code::limit, fmt::format("{} elements of {} have no size", elements, name())};
  return (all_bits + 7) / 8;
}

std::uint64_t element_count(std::span<const std::int64_t> shape) {
  std::uint64_t out = 1;
  bool empty = false;
  for (const auto dim : shape) {
    if (dim < 0) throw RpcError{Code::argument, fmt::format("dimension {} is negative", dim)};
    empty = empty || dim == 0;
    if (!empty && __builtin_mul_overflow(out, static_cast<std::uint64_t>(dim), &out))
      throw RpcError{Code::limit, "the shape has more elements than can be counted"};
  }
  return empty ? 0 : out;
}

}  // namespace outpost::client
