#include "constraint.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "wire/json_text.h"

namespace outpost::tracker {
namespace {

using rpc::JsonValue;

constexpr std::size_t kTagsMax = 64;
constexpr std::size_t kTagBytesMax = 256;
constexpr std::size_t kTermsMax = 32;

TagValue value_of(std::string text) {
  TagValue out{std::move(text), std::nullopt};
  double number = 0;
  const auto* end = out.text.data() + out.text.size();
  const auto [stop, ec] = std::from_chars(out.text.data(), end, number);
  if (ec == std::errc{} && stop == end && std::isfinite(number)) out.number = number;
  return out;
}

Result<> add_tag(Tags& tags, const std::string& name, const JsonValue& value) {
  if (name.empty() || name.size() > kTagBytesMax || value.text.size() > kTagBytesMax)
    return Error{Code::limit, fmt::format("tag '{}' has no name or more than {} bytes",
                                          printable(name, 40), kTagBytesMax)};
  if (tags.size() >= kTagsMax)
    return Error{Code::limit, fmt::format("more than {} tags", kTagsMax)};
  switch (value.kind) {
    case JsonValue::Kind::null:
      return {};
    case JsonValue::Kind::boolean:
      if (value.number != 0) tags[name] = {};
      return {};
    case JsonValue::Kind::number:
    case JsonValue::Kind::string:
      tags[name] = value_of(value.text);
      return {};
    case JsonValue::Kind::array:
    case JsonValue::Kind::object:
      break;
  }
  return Error{Code::malformed, fmt::format("tag '{}' is neither text, number nor boolean", name)};
}

Result<Term> parse_term(std::string_view text) {
  using Op = Term::Op;
  constexpr std::pair<std::string_view, Op> kOps[] = {{">=", Op::at_least}, {"<=", Op::at_most},
                                                      {"!=", Op::unequal},  {"=", Op::equal},
                                                      {">", Op::above},     {"<", Op::below}};
  const auto whole = text;
  Term out;
  if (text.starts_with('!')) {
    out.op = Op::lacks;
    text.remove_prefix(1);
  }
  const auto at = text.find_first_of("<>=!");
  out.name = text.substr(0, at);
  if (out.name.empty())
    return Error{Code::malformed, fmt::format("condition '{}' names no tag", whole)};
  if (at == std::string_view::npos) return out;
  for (const auto& [sign, op] : kOps) {
    if (out.op == Op::lacks || !text.substr(at).starts_with(sign)) continue;
    out.op = op;
    out.value = value_of(std::string{text.substr(at + sign.size())});
    const bool order = op != Op::equal && op != Op::unequal;
    if (out.value.text.empty() || (order && !out.value.number)) break;
    return out;
  }
  return Error{Code::malformed,
               fmt::format("condition '{}' is not of the form tag, !tag, tag=text, tag!=text or "
                           "tag>=number (also <=, >, <)",
                           whole)};
}

bool same(const TagValue& a, const TagValue& b) {
  return a.number && b.number ? *a.number == *b.number : a.text == b.text;
}

bool holds(const TagValue& tag, const Term& term) {
  using Op = Term::Op;
  if (term.op == Op::has) return true;
  if (term.op == Op::equal) return same(tag, term.value);
  if (term.op == Op::unequal) return !same(tag, term.value);
  if (term.op == Op::lacks || !tag.number || !term.value.number) return false;
  const double have = *tag.number, want = *term.value.number;
  if (term.op == Op::below) return have < want;
  if (term.op == Op::at_most) return have <= want;
  return term.op == Op::above ? have > want : have >= want;
}

}  // namespace

Result<Tags> read_tags(std::string_view json) {
  OUTPOST_TRY(const auto parsed, rpc::parse_json(json, {.depth_max = 2, .values_max = 1024}));
  Tags out;
  const bool object = parsed.is(JsonValue::Kind::object);
  if (!object && !parsed.is(JsonValue::Kind::array))
    return Error{Code::malformed, "tags are neither an object nor a list"};
  for (std::size_t i = 0; i < parsed.items.size(); ++i) {
    const auto& item = parsed.items[i];
    if (!object && !item.is(JsonValue::Kind::string))
      return Error{Code::malformed, "a list of tags holds something else than names"};
    JsonValue bare{.kind = JsonValue::Kind::boolean, .number = 1};
    OUTPOST_CHECK(object ? add_tag(out, parsed.names[i], item) : add_tag(out, item.text, bare));
  }
  return out;
}

std::string signature(const Tags& tags) {
  std::string out;
  for (const auto& [name, value] : tags) {
    rpc::append_json_string(out, name);
    rpc::append_json_string(out, value.text);
  }
  return out;
}

Result<Need> parse_need(std::string_view text) {
  Need out;
  while (!text.empty()) {
    const auto comma = text.find(',');
    OUTPOST_TRY(auto term, parse_term(text.substr(0, comma)));
    out.push_back(std::move(term));
    if (out.size() > kTermsMax)
      return Error{Code::limit, fmt::format("more than {} conditions", kTermsMax)};
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return out;
}

bool meets(const Tags& tags, const Need& need) {
  for (const auto& term : need) {
    const auto tag = tags.find(term.name);
    const bool absent_fits = term.op == Term::Op::lacks || term.op == Term::Op::unequal;
    if (tag == tags.end() ? !absent_fits : !holds(tag->second, term)) return false;
  }
  return true;
}

}  // namespace outpost::tracker
