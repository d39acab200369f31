#pragma once
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "wire/json_text.h"

namespace outpost::test {

/// One message of a conversation recorded from the stock peer (tests/data/captures).
struct Captured {
  std::string conn;   ///< which connection; empty when there is only one
  bool from_client;   ///< from the side that dialled
  std::string bytes;  ///< empty: that side closed
  std::string note;
};

inline std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16));
  return out;
}

/// Reads tests/data/captures/<name>.json.
inline std::vector<Captured> load_capture(const std::string& name) {
  std::ifstream file{std::string{OUTPOST_TEST_DATA} + "/captures/" + name + ".json"};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  auto parsed = rpc::parse_json(text, {.depth_max = 4, .values_max = 1U << 20});
  if (!parsed) throw std::runtime_error{name + ": " + parsed.error().text};
  std::vector<Captured> out;
  for (const auto& item : parsed->items) {
    const auto* conn = item.find("conn");
    out.push_back({conn ? conn->text : "", item.find("from")->text == "client",
                   from_hex(item.find("hex")->text), item.find("note")->text});
  }
  return out;
}

}  // namespace outpost::test
