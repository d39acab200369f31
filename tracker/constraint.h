#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace outpost::tracker {

struct TagValue {
  std::string text;
  std::optional<double> number;
  bool operator==(const TagValue&) const = default;
};
/// What a server says about its board: "mem" = 4096, "arch" = "aarch64"; a bare tag has an empty
/// text.
using Tags = std::map<std::string, TagValue, std::less<>>;

/// Reads the `tags` member of a server's information: an object of numbers, texts and booleans, or
/// a list of names. Malformed: anything else; limit: too many or too long.
Result<Tags> read_tags(std::string_view json);

/// One text for equal tags, so that boards that look alike share a class.
std::string signature(const Tags& tags);

/// One condition on a tag.
struct Term {
  enum class Op : std::uint8_t { has, lacks, equal, unequal, below, at_most, above, at_least };
  std::string name;
  Op op = Op::has;
  TagValue value;
};
/// All of them have to hold.
using Need = std::vector<Term>;

/// Reads "mem>=4096,fp16,!slow,arch=aarch64". Malformed: says which term.
Result<Need> parse_need(std::string_view text);

/// Numbers are compared as numbers; an order between texts never holds.
bool meets(const Tags& tags, const Need& need);

}  // namespace outpost::tracker
