#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace outpost::rpc {

/// What foreign JSON may cost. An honest message meets neither limit.
struct JsonLimits {
  std::uint32_t depth_max = 32;     ///< nested arrays and objects
  std::uint32_t values_max = 4096;  ///< values of every kind, in total
};

/// One JSON value as it was written: numbers keep their digits, members their order.
struct JsonValue {
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  double number = 0;                 ///< of a number; 0 or 1 of a boolean
  std::string text{};                ///< a string decoded to UTF-8, or a number as written
  std::vector<std::string> names{};  ///< of an object, one for each item
  std::vector<JsonValue> items{};    ///< of an array or object

  bool is(Kind k) const { return kind == k; }
  /// The last member of that name, as in Python; null when absent or when this is no object.
  const JsonValue* find(std::string_view name) const;
  /// A number without a fraction that an i64 holds.
  std::optional<std::int64_t> integer() const;
};

/// Parses UTF-8 JSON without recursion. Malformed: not JSON or not UTF-8; limit: too deep or wide.
Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits);

/// Appends a string literal like Python's default dump: quotes, short escapes, non-ASCII as \u.
/// The text must be UTF-8.
void append_json_string(std::string& out, std::string_view utf8);

/// Appends a value with ", " and ": " between its parts.
void append_json(std::string& out, const JsonValue& value);

}  // namespace outpost::rpc
