#pragma once
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace outpost::test {

/// A binary file written as text, one named field a line: `name: type value`, `#` starts a comment
/// line, `expect: TEXT` holds what reading it must answer. Types: u8 u16 i32 i64 u64 f64, str (u64
/// length and the rest of the line) and hex (the bytes themselves).
struct FieldFile {
  std::vector<std::byte> bytes;
  std::string expect;
};

inline void append_field(ByteWriter& out, const std::string& type, const std::string& value) {
  const auto integer = [&value] { return std::stoll(value, nullptr, 0); };
  if (type == "u64") return out.le<std::uint64_t>(std::stoull(value, nullptr, 0));
  if (type == "i64") return out.le<std::int64_t>(integer());
  if (type == "i32") return out.le(static_cast<std::int32_t>(integer()));
  if (type == "u16") return out.le(static_cast<std::uint16_t>(integer()));
  if (type == "u8") return out.le(static_cast<std::uint8_t>(integer()));
  if (type == "f64") return out.le(std::stod(value));
  if (type == "str") return out.sized(as_bytes(value));
  if (type != "hex") throw std::runtime_error{"unknown field type '" + type + "'"};
  for (std::size_t i = 0; i + 1 < value.size(); i += 2)
    out.le(static_cast<std::uint8_t>(std::stoul(value.substr(i, 2), nullptr, 16)));
}

inline FieldFile read_field_file(const std::string& path) {
  FieldFile file;
  ByteWriter out{file.bytes};
  std::ifstream in{path};
  for (std::string line; std::getline(in, line);) {
    const auto begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line[begin] == '#') continue;
    const auto colon = line.find(": ", begin);
    const auto name = line.substr(begin, colon - begin);
    const auto rest = line.substr(colon + 2);
    if (name == "expect") {
      file.expect = rest;
      continue;
    }
    const auto blank = rest.find(' ');
    append_field(out, rest.substr(0, blank),
                 blank == std::string::npos ? "" : rest.substr(blank + 1));
  }
  return file;
}

}  // namespace outpost::test
