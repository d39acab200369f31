#include "wire/json_text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"

namespace outpost::rpc {
namespace {

using Kind = JsonValue::Kind;

/// Listens to the parser and builds the tree; stops it at a limit.
class Builder {
 public:
  explicit Builder(const JsonLimits& limits) : limits_{limits} {}

  bool null() { return add({}) != nullptr; }
  bool boolean(bool value) { return add({.kind = Kind::boolean, .number = value ? 1.0 : 0.0}); }
  bool number_integer(std::int64_t value) {
    return add({.kind = Kind::number,
                .number = static_cast<double>(value),
                .text = std::to_string(value)});
  }
  bool number_unsigned(std::uint64_t value) {
    return add({.kind = Kind::number,
                .number = static_cast<double>(value),
                .text = std::to_string(value)});
  }
  bool number_float(double value, const std::string& written) {
    return add({.kind = Kind::number, .number = value, .text = written});
  }
  bool string(std::string& value) { return add({.kind = Kind::string, .text = std::move(value)}); }
  bool binary(std::vector<std::uint8_t>&) { return false; }
  bool start_object(std::size_t) { return open(Kind::object); }
  bool start_array(std::size_t) { return open(Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    open_.back()->names.push_back(std::move(name));
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) {
    error_ = Error{Code::malformed, fmt::format("not JSON from byte {}", at)};
    return false;
  }

  Error error() const { return error_; }
  JsonValue take() { return std::move(root_); }

 private:
  JsonValue* add(JsonValue value) {
    if (++values_ > limits_.values_max) {
      error_ =
          Error{Code::limit, fmt::format("more than values_max {} values", limits_.values_max)};
      return nullptr;
    }
    if (open_.empty()) return &(root_ = std::move(value));
    return &open_.back()->items.emplace_back(std::move(value));
  }
  bool open(Kind kind) {
    if (open_.size() >= limits_.depth_max) {
      error_ =
          Error{Code::limit, fmt::format("nested deeper than depth_max {}", limits_.depth_max)};
      return false;
    }
    auto* value = add({.kind = kind});
    if (value) open_.push_back(value);  // stays put: a parent grows only after its child is closed
    return value != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::uint32_t values_ = 0;
  Error error_{Code::malformed, "not JSON"};
};

/// The code point at `at`, which moves behind it. The text is known to be UTF-8.
char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  char32_t point = more == 0 ? lead : lead & (0x3Fu >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    point = point << 6 | (static_cast<unsigned char>(text[at++]) & 0x3Fu);
  return point;
}

void append_escaped(std::string& out, char32_t point) {
  const auto unit = [&](std::uint32_t v) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", v);
  };
  if (point < 0x10000) return unit(point);
  unit(0xD800u + ((point - 0x10000u) >> 10));
  unit(0xDC00u + ((point - 0x10000u) & 0x3FFu));
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (auto i = names.size(); i-- > 0;)
    if (names[i] == name) return &items[i];
  return nullptr;
}

std::optional<std::int64_t> JsonValue::integer() const {
  constexpr double kLimit = 9007199254740992.0;  // 2^53: every integer below is exact
  if (kind != Kind::number || number != std::trunc(number) || std::abs(number) > kLimit) return {};
  return static_cast<std::int64_t>(number);
}

Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits) {
  if (!is_utf8(text)) return Error{Code::malformed, "not UTF-8"};
  if (text.starts_with("\xEF\xBB\xBF"))
    return Error{Code::malformed, "not JSON from byte 0: a byte order mark"};
  Builder builder{limits};
  if (!nlohmann::json::sax_parse(text, &builder)) return builder.error();
  return builder.take();
}

void append_json_string(std::string& out, std::string_view utf8) {
  out += '"';
  for (std::size_t at = 0; at < utf8.size();) {
    const char c = utf8[at];
    if (c >= ' ' && c < '\x7F' && c != '"' && c != '\\') {
      out += c;
      ++at;
      continue;
    }
    constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetter = "\"\\nrtbf";
    const auto known = kSpecial.find(c);
    if (known != std::string_view::npos) {
      out += '\\';
      out += kLetter[known];
      ++at;
    } else {
      append_escaped(out, next_code_point(utf8, at));
    }
  }
  out += '"';
}

void append_json(std::string& out, const JsonValue& value) {  // depth is bounded by the parser
  switch (value.kind) {
    case Kind::null:
      out += "null";
      return;
    case Kind::boolean:
      out += value.number != 0 ? "true" : "false";
      return;
    case Kind::number:
      out += value.text;
      return;
    case Kind::string:
      return append_json_string(out, value.text);
    case Kind::array:
    case Kind::object:
      break;
  }
  const bool object = value.kind == Kind::object;
  out += object ? '{' : '[';
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (i != 0) out += ", ";
    if (object) {
      append_json_string(out, value.names[i]);
      out += ": ";
    }
    append_json(out, value.items[i]);
  }
  out += object ? '}' : ']';
}

}  // namespace outpost::rpc
