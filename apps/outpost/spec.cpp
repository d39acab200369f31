#include "outpost/spec.h"

#include <outpost/rpc/error.h>

#include <bit>
#include <charconv>
#include <optional>
#include <random>

namespace outpost::app {
namespace {

template <class T>
std::optional<T> number(std::string_view text) {
  T out{};
  const auto* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, out);
  if (ec != std::errc{} || stop != end || text.empty()) return std::nullopt;
  return out;
}

/// The 16 bits of a float in [0, 1): rounding is of no interest here, so the rest is cut.
std::uint16_t half_of(float v) {
  constexpr float kSmallestNormal = 6.103515625e-05F;
  if (v < kSmallestNormal) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(v);
  return static_cast<std::uint16_t>(((bits >> 13) & 0x3ff) | (((bits >> 23) - 112) << 10));
}

template <class T>
void put(std::byte* at, T v) {
  std::memcpy(at, &v, sizeof v);
}

void put_real(std::byte* at, client::DataType type, double v) {
  if (type.code == 4)
    return put(
        at, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(v)) >> 16));
  if (type.bits == 16) return put(at, half_of(static_cast<float>(v)));
  if (type.bits == 32) return put(at, static_cast<float>(v));
  put(at, v);
}

void put_whole(std::byte* at, std::size_t size, std::uint64_t v) {
  std::memcpy(at, &v, size);
}

}  // namespace

Result<TensorSpec> parse_tensor_spec(std::string_view text) {
  const auto open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']'))
    return Error{Code::malformed, fmt::format("'{}' is no tensor such as float32[16,16]", text)};
  TensorSpec out;
  try {
    out.dtype = client::DataType::parse(text.substr(0, open));
  } catch (const client::RpcError& e) {
    return Error{Code::malformed, e.what()};
  }
  auto rest = text.substr(open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    const auto word = rest.substr(0, rest.find(','));
    const auto dim = number<std::int64_t>(word);
    if (!dim || *dim < 0)
      return Error{Code::malformed, fmt::format("'{}' in '{}' is no dimension", word, text)};
    out.shape.push_back(*dim);
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return out;
}

Result<InputSpec> parse_input(std::string_view text) {
  constexpr std::string_view kText = "text:";
  if (text.starts_with(kText)) return InputSpec{std::string{text.substr(kText.size())}};
  if (text.ends_with(".npy")) return InputSpec{FileSpec{std::string{text}}};
  if (const auto whole = number<std::int64_t>(text)) return InputSpec{*whole};
  if (const auto real = number<double>(text)) return InputSpec{*real};
  if (text.find('[') == std::string_view::npos)
    return Error{Code::malformed,
                 fmt::format("'{}' is no input: expected file.npy, a tensor such as "
                             "float32[16,16], a number or text:...",
                             text)};
  OUTPOST_TRY(auto spec, parse_tensor_spec(text));
  return InputSpec{std::move(spec)};
}

Result<OutputSpec> parse_output(std::string_view text) {
  OutputSpec out;
  const auto equals = text.find('=');
  out.path = text.substr(0, equals);
  if (!out.path.empty() && !out.path.ends_with(".npy"))
    return Error{Code::malformed, fmt::format("output '{}' is no .npy file", out.path)};
  if (equals == std::string_view::npos) return out;
  OUTPOST_TRY(out.filled, parse_tensor_spec(text.substr(equals + 1)));
  return out;
}

Result<Address> parse_address(std::string_view text) {
  const auto colon = text.rfind(':');
  const auto port = colon == std::string_view::npos ? std::nullopt
                                                    : number<std::uint16_t>(text.substr(colon + 1));
  auto host = text.substr(0, std::min(colon, text.size()));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!port || *port == 0 || host.empty())
    return Error{Code::malformed, fmt::format("'{}' is no address such as 10.0.0.4:9090", text)};
  return Address{std::string{host}, *port};
}

std::vector<std::byte> random_elements(const TensorSpec& spec, std::uint64_t seed) {
  const auto count = client::element_count(spec.shape);
  std::vector<std::byte> out(spec.dtype.bytes(count));
  std::mt19937_64 engine{seed};
  const auto bits = spec.dtype.bits;
  const bool real = spec.dtype.code == 2 || spec.dtype.code == 4;
  const bool plain = bits == 16 || bits == 32 || bits == 64 || (bits == 8 && !real);
  if (!plain || spec.dtype.code >= 7) {
    // Small floats: any bits below the larger exponents are plain numbers in each of them.
    const std::uint64_t mask = bits == 8 ? 0x3f : 0xff;
    for (auto& b : out) b = static_cast<std::byte>(engine() & mask);
    return out;
  }
  const std::size_t size = bits / 8;
  const std::uint64_t wholes = spec.dtype.code == 6 ? 2 : 10;
  for (std::size_t at = 0; at + size <= out.size(); at += size) {
    constexpr double kStep = 1.0 / (1ULL << 53);
    if (real)
      put_real(&out[at], spec.dtype, static_cast<double>(engine() >> 11) * kStep);
    else
      put_whole(&out[at], size, engine() % wholes);
  }
  return out;
}

}  // namespace outpost::app
