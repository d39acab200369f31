#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace outpost::rpc {

/// Numbers of the RPC handshake (rpc-wire.md, Handshake).
inline constexpr std::int32_t kMagic = 0x000FF271;         ///< hello, and "success" as an answer
inline constexpr std::int32_t kDuplicateKey = 0x000FF272;  ///< answer of a proxy
inline constexpr std::int32_t kNoMatch = 0x000FF273;       ///< answer: no such match key

/// The first bytes of a connection: i32 magic, i32 key length, key.
struct Hello {
  std::string key;    ///< the whole text, for example "client:pi4:0.123 -timeout=10"
  std::size_t bytes;  ///< how many bytes it took
};

/// Reads a hello from all bytes received so far. Empty: more are needed (`need` says how many in
/// total). An error (malformed, limit) is final. @param key_bytes_max  longest key accepted
Result<std::optional<Hello>> parse_hello(Bytes received, std::uint32_t key_bytes_max,
                                         std::size_t& need);

/// A key taken apart: role ("client", "server"), match key (first word) and known options.
struct HelloKey {
  std::string role;
  std::string match_key;
  /// `-timeout=` in seconds; absent when not given. Zero and less mean "expires at once".
  std::optional<double> timeout_seconds;
};

/// Splits "client:<match-key>[ <option>...]". Malformed: not UTF-8, no role, a timeout that is no
/// number.
Result<HelloKey> parse_key(std::string_view key);

/// The bytes of a hello or of an answer with a key: i32 status, i32 length, text.
std::vector<std::byte> encode_hello(std::int32_t status, std::string_view key);

}  // namespace outpost::rpc
