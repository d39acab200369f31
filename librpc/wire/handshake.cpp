#include "wire/handshake.h"

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace outpost::rpc {
namespace {

constexpr std::size_t kHeadBytes = 8;
constexpr std::string_view kBlanks = " \t\n\r\v\f";

/// The next word of `text`, which loses it; empty at the end.
std::string_view next_word(std::string_view& text) {
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return text = {};
  text.remove_prefix(begin);
  const auto word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

Result<double> parse_seconds(std::string_view text) {
  double seconds = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, seconds);
  if (ec != std::errc{} || stop != end || !std::isfinite(seconds))
    return Error{Code::malformed, fmt::format("-timeout='{}' is not a number of seconds", text)};
  return seconds;
}

}  // namespace

Result<std::optional<Hello>> parse_hello(Bytes received, std::uint32_t key_bytes_max,
                                         std::size_t& need) {
  need = kHeadBytes;
  ByteReader in{received};
  if (in.left() >= 4) {
    OUTPOST_TRY(const auto magic, in.le<std::int32_t>("magic"));
    if (magic != kMagic)
      return Error{Code::malformed, fmt::format("magic 0x{:x} is not that of an RPC peer (0x{:x})",
                                                static_cast<std::uint32_t>(magic), kMagic)};
  }
  if (received.size() < kHeadBytes) return std::optional<Hello>{};
  OUTPOST_TRY(const auto size, in.le<std::int32_t>("key length"));
  if (size < 0) return Error{Code::malformed, fmt::format("key length {} is negative", size)};
  if (static_cast<std::uint32_t>(size) > key_bytes_max)
    return Error{Code::limit,
                 fmt::format("key of {} bytes exceeds key_bytes_max {}", size, key_bytes_max)};
  need = kHeadBytes + static_cast<std::size_t>(size);
  if (received.size() < need) return std::optional<Hello>{};
  OUTPOST_TRY(const auto key, in.take(static_cast<std::uint64_t>(size), "key"));
  return std::optional<Hello>{Hello{std::string{as_text(key)}, need}};
}

Result<HelloKey> parse_key(std::string_view key) {
  if (!is_utf8(key)) return Error{Code::malformed, "key is not UTF-8"};
  const auto first = next_word(key);  // so a blank after the colon means an empty match key
  const auto colon = first.find(':');
  if (colon == std::string_view::npos)
    return Error{Code::malformed, fmt::format("key '{}' names no role before a colon", first)};
  HelloKey out;
  out.role = first.substr(0, colon);
  out.match_key = first.substr(colon + 1);
  constexpr std::string_view kTimeout = "-timeout=";
  for (auto word = next_word(key); !word.empty(); word = next_word(key)) {
    if (!word.starts_with(kTimeout)) continue;
    OUTPOST_TRY(out.timeout_seconds, parse_seconds(word.substr(kTimeout.size())));
  }
  return out;
}

std::vector<std::byte> encode_hello(std::int32_t status, std::string_view key) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  out.le<std::int32_t>(status);
  out.le<std::int32_t>(static_cast<std::int32_t>(key.size()));
  out.text(key);
  return raw;
}

}  // namespace outpost::rpc
