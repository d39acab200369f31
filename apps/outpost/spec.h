#pragma once
#include <outpost/rpc/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"

namespace outpost::app {

/// A tensor by type and shape.
struct TensorSpec {
  client::DataType dtype;
  std::vector<std::int64_t> shape;
  bool operator==(const TensorSpec&) const = default;
};

/// A .npy file by path.
struct FileSpec {
  std::string path;
  bool operator==(const FileSpec&) const = default;
};

/// One argument of a function as a person writes it: `x.npy`, `float32[16,16]` (random), `5`,
/// `2.5`, or `text:hello`.
using InputSpec = std::variant<TensorSpec, FileSpec, std::int64_t, double, std::string>;

/// Where a result goes: `out.npy` for what the function returns, `out.npy=float32[16,16]` for a
/// tensor that the function fills in, `=float32[16,16]` for one that nobody keeps.
struct OutputSpec {
  std::string path;
  std::optional<TensorSpec> filled;
};

/// Reads "float32[16,16]"; "float32[]" is a scalar. Malformed says what was expected.
Result<TensorSpec> parse_tensor_spec(std::string_view text);
Result<InputSpec> parse_input(std::string_view text);
Result<OutputSpec> parse_output(std::string_view text);

/// Splits "host:port" at the last colon; an IPv6 host may stand in brackets.
struct Address {
  std::string host;
  std::uint16_t port = 0;
};
Result<Address> parse_address(std::string_view text);

/// Numbers for a tensor, the same for the same seed: reals in [0, 1), whole numbers in [0, 10).
std::vector<std::byte> random_elements(const TensorSpec& spec, std::uint64_t seed);

}  // namespace outpost::app
