#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "wire/json_text.h"

namespace outpost::rpc {

inline constexpr std::int32_t kTrackerMagic = 0x0002F271;           ///< first in both directions
inline constexpr std::uint32_t kTrackerMessageBytesMax = 1U << 20;  ///< what a tracker accepts
/// What a client accepts: the summary of a large lab exceeds what it may send itself.
inline constexpr std::uint32_t kTrackerAnswerBytesMax = 64U << 20;

inline constexpr std::size_t kInfoMembersMax = 256;  ///< names that one server may announce

/// Codes of the control plane (tracker-wire.md).
enum class TrackerCode : std::int32_t {
  ping = 1,
  stop = 2,
  put = 3,
  request = 4,
  update_info = 5,
  summary = 6,
  pending_match_keys = 7,
};

/// Cuts a stream of bytes, however it arrives, into the magic and length-prefixed messages.
class TrackerCutter {
 public:
  explicit TrackerCutter(std::uint32_t message_bytes_max) : message_bytes_max_{message_bytes_max} {}

  /// Takes over what was read. Ends the life of what `next` returned.
  void feed(Bytes received);
  /// True once, when the four bytes of the magic are there. Malformed: another number.
  /// To be called until it returns true, before `next`.
  Result<bool> take_magic();
  /// The next message's text, without its length; empty: more bytes are needed. Malformed: a length
  /// of 0 or less; limit: one above the limit, judged before the text is there.
  /// The view lives until the next call of `feed`.
  Result<std::optional<std::string_view>> next();
  /// Bytes held that belong to no returned message yet.
  std::size_t pending() const { return buffer_.size() - begin_; }

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
  std::uint32_t message_bytes_max_;
};

// Requests

struct PingRequest {};
struct StopRequest {
  std::string stop_key;
};
/// One free resource under a key.
struct PutRequest {
  std::string key;
  std::uint16_t port = 0;
  std::string match_key;
  std::optional<std::string> custom_addr;
};
/// Waits for a resource: larger priorities first.
struct DeviceRequest {
  std::string key;
  std::string user;
  double priority = 1;
};
/// A named value whose JSON text is kept, so that unknown ones pass through unchanged.
struct InfoMember {
  std::string name;
  std::string json;
};
/// Replaces the member of that name, or appends it.
void merge_member(std::vector<InfoMember>& into, InfoMember member);

/// What a server says about itself, each name once, in order of first use. `addr` is there and is
/// `[host or null, port, ...]`; the port stays as it was sent (the C++ server sends a string).
struct UpdateInfoRequest {
  std::vector<InfoMember> members;
  std::optional<std::string> key;  ///< the text of member `key`, usually "server:<resource key>"
  /// The usual one: `{"key": "server:<resource>", "addr": [host or null, port]}`.
  static UpdateInfoRequest of(std::string_view resource, const std::optional<std::string>& host,
                              std::uint16_t port);
  /// Puts the peer's address where `addr` has a null host.
  void fill_host(std::string_view peer_host);
};
/// `[6]`, or `[6, "boards"]`: the stock tracker ignores the second element, ours then adds
/// `boards`.
struct SummaryRequest {
  bool boards = false;
};
struct PendingMatchKeysRequest {};

using TrackerRequest = std::variant<PingRequest, StopRequest, PutRequest, DeviceRequest,
                                    UpdateInfoRequest, SummaryRequest, PendingMatchKeysRequest>;

/// Reads one request. Malformed says which part; unsupported: an unknown code.
Result<TrackerRequest> decode_tracker_request(std::string_view text);
/// A whole message, length and text.
std::string encode(const TrackerRequest& request);

/// The magic's four bytes.
std::string encode_tracker_magic();

// Answers

/// 0, or -1 to a wrong stop key.
enum class TrackerStatus : std::int32_t { success = 0, fail = -1 };

/// A resource that was handed out.
struct DeviceAnswer {
  std::string host;
  std::uint16_t port = 0;
  std::string match_key;
};
struct QueueInfo {
  std::string key;
  std::uint64_t free = 0;
  std::uint64_t pending = 0;
};
/// What a server's `server_info` entry says, for readers; unknown members are in `members`.
struct ServerInfo {
  std::string key;  ///< "server:<key>"
  std::string host;
  std::string port;                 ///< digits, whichever JSON kind they came as
  std::vector<InfoMember> members;  ///< the other ones
};
/// What one board does now. Only our tracker tells, and only when asked.
struct BoardInfo {
  std::string key;  ///< as in ServerInfo
  std::string host;
  std::string port;   ///< digits
  std::string state;  ///< "free", "busy", "away" (registered, offers nothing) or "suspect" (silent)
  std::optional<std::string> holder;  ///< address of the client that was sent there
  double state_seconds = 0;           ///< how long it has been in that state
};
struct SummaryAnswer {
  std::vector<QueueInfo> queues;
  std::vector<ServerInfo> servers;
  std::optional<std::vector<BoardInfo>> boards;  ///< empty from a stock tracker
};

std::string encode_status(TrackerStatus status);
std::string encode(const DeviceAnswer& answer);
/// `[-1, "why"]` instead of a device; a stock client shows it in its error.
std::string encode_refusal(std::string_view why);
/// @param server_infos  JSON texts of the entries, as `server_info_json` makes them
/// @param boards  JSON texts as `board_json` makes them; null: they were not asked for
std::string encode_summary(const std::vector<QueueInfo>& queues,
                           const std::vector<std::string_view>& server_infos,
                           const std::vector<std::string>* boards = nullptr);
std::string encode_match_keys(const std::vector<std::string>& keys);

/// The JSON text of one server's entry.
std::string server_info_json(const std::vector<InfoMember>& members);

/// @param addr_json  the board's `addr` as it was sent, `[host, port]`
std::string board_json(const BoardInfo& board, std::string_view addr_json);

Result<TrackerStatus> decode_status(std::string_view text);
/// Denied: `[-1, "why"]`, with that text.
Result<DeviceAnswer> decode_device(std::string_view text);
Result<SummaryAnswer> decode_summary(std::string_view text);
Result<std::vector<std::string>> decode_match_keys(std::string_view text);

// Match keys

/// The resource key before the last colon of a match key; all of it when there is none.
std::string_view resource_key(std::string_view match_key);

}  // namespace outpost::rpc
