#pragma once
#include <string>
#include <string_view>

namespace outpost {

/// Whether every byte belongs to a well-formed UTF-8 sequence (RFC 3629: shortest form, no
/// surrogates).
bool is_utf8(std::string_view text);

/// Foreign text made safe for a log line or an error: control bytes and ill-formed ones as \xNN,
/// cut at `bytes_max`.
std::string printable(std::string_view text, std::size_t bytes_max = 200);

}  // namespace outpost
