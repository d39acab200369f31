#include "wire/tracker_message.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/utf8.h"

namespace outpost::rpc {
namespace {

using Kind = JsonValue::Kind;
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kIdleBytesMax = 4096;  ///< what an emptied buffer may keep
/// A summary is as large as the lab; its size is bounded by the cutter.
constexpr JsonLimits kAnswerLimits{.depth_max = 32, .values_max = 1U << 24};

constexpr std::string_view kBoards = "boards";

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;  // clang 14 does not deduce it for an aggregate

Error malformed(std::string text) {
  return {Code::malformed, std::move(text)};
}

std::string_view kind_name(const JsonValue& value) {
  switch (value.kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "a boolean";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "text";
    case Kind::array:
      return "a list";
    case Kind::object:
      return "an object";
  }
  return "";
}

std::int32_t load_i32(const char* p) {
  return boost::endian::endian_load<std::int32_t, 4, boost::endian::order::little>(
      reinterpret_cast<const unsigned char*>(p));
}

std::string message(std::string_view text) {
  std::string out(kLengthBytes, '\0');
  boost::endian::endian_store<std::int32_t, 4, boost::endian::order::little>(
      reinterpret_cast<unsigned char*>(out.data()), static_cast<std::int32_t>(text.size()));
  return out += text;
}

Result<std::string> text_of(const JsonValue& value, std::string_view what) {
  if (!value.is(Kind::string))
    return malformed(fmt::format("{} is {}, not text", what, kind_name(value)));
  return value.text;
}

/// A number, or digits in a string.
Result<std::uint16_t> port_of(const JsonValue& value) {
  std::uint16_t port = 0;
  const auto* end = value.text.data() + value.text.size();
  const auto [stop, ec] = std::from_chars(value.text.data(), end, port);
  if (!(value.is(Kind::number) || value.is(Kind::string)) || ec != std::errc{} || stop != end)
    return malformed(
        fmt::format("port '{}' is not a number from 0 to 65535", printable(value.text, 40)));
  return port;
}

/// The arguments behind the code; `args[0]` is the code.
Result<const JsonValue*> argument(const JsonValue& args, std::size_t at, std::string_view what) {
  if (at >= args.items.size()) return malformed(fmt::format("{} is missing", what));
  return &args.items[at];
}

Result<TrackerRequest> decode_put(const JsonValue& args) {
  PutRequest out;
  OUTPOST_TRY(const auto* key, argument(args, 1, "key of PUT"));
  OUTPOST_TRY(out.key, text_of(*key, "key of PUT"));
  OUTPOST_TRY(const auto* pair, argument(args, 2, "[port, match key] of PUT"));
  if (!pair->is(Kind::array) || pair->items.size() != 2)
    return malformed("[port, match key] of PUT is not a list of two");
  OUTPOST_TRY(out.port, port_of(pair->items[0]));
  OUTPOST_TRY(out.match_key, text_of(pair->items[1], "match key of PUT"));
  if (args.items.size() > 3 && !args.items[3].is(Kind::null)) {
    OUTPOST_TRY(out.custom_addr, text_of(args.items[3], "address of PUT"));
  }
  return TrackerRequest{std::move(out)};
}

Result<TrackerRequest> decode_device_request(const JsonValue& args) {
  DeviceRequest out;
  OUTPOST_TRY(const auto* key, argument(args, 1, "key of REQUEST"));
  OUTPOST_TRY(out.key, text_of(*key, "key of REQUEST"));
  OUTPOST_TRY(const auto* user, argument(args, 2, "user of REQUEST"));
  if (!user->is(Kind::null)) {
    OUTPOST_TRY(out.user, text_of(*user, "user of REQUEST"));
  }
  OUTPOST_TRY(const auto* priority, argument(args, 3, "priority of REQUEST"));
  if (!priority->is(Kind::number) && !priority->is(Kind::boolean))
    return malformed(fmt::format("priority of REQUEST is {}, not a number", kind_name(*priority)));
  out.priority = priority->number + 0.0;  // -0 becomes 0: they are one priority
  return TrackerRequest{std::move(out)};
}

Result<TrackerRequest> decode_update_info(const JsonValue& args) {
  UpdateInfoRequest out;
  OUTPOST_TRY(const auto* info, argument(args, 1, "information of UPDATE_INFO"));
  if (!info->is(Kind::object))
    return malformed(
        fmt::format("information of UPDATE_INFO is {}, not an object", kind_name(*info)));
  const auto* addr = info->find("addr");
  if (!addr || !addr->is(Kind::array) || addr->items.empty() ||
      !(addr->items[0].is(Kind::null) || addr->items[0].is(Kind::string)))
    return malformed("addr of UPDATE_INFO is not a list of host (text or null) and port");
  if (const auto* key = info->find("key")) {
    OUTPOST_TRY(out.key, text_of(*key, "key of UPDATE_INFO"));
  }
  if (info->items.size() > kInfoMembersMax)
    return Error{Code::limit, fmt::format("UPDATE_INFO of {} members exceeds info_members_max {}",
                                          info->items.size(), kInfoMembersMax)};
  for (std::size_t i = 0; i < info->items.size(); ++i) {
    std::string json;
    append_json(json, info->items[i]);
    merge_member(out.members, {info->names[i], std::move(json)});
  }
  return TrackerRequest{std::move(out)};
}

std::string request_text(const TrackerRequest& request) {
  std::string out;
  const auto begin = [&out](TrackerCode code) {
    out = fmt::format("[{}", static_cast<std::int32_t>(code));
  };
  const auto add_text = [&out](std::string_view text) {
    out += ", ";
    append_json_string(out, text);
  };
  std::visit(
      Overload{[&](const PingRequest&) { begin(TrackerCode::ping); },
               [&](const StopRequest& r) {
                 begin(TrackerCode::stop);
                 add_text(r.stop_key);
               },
               [&](const PutRequest& r) {
                 begin(TrackerCode::put);
                 add_text(r.key);
                 out += fmt::format(", [{}", r.port);
                 add_text(r.match_key);
                 out += ']';
                 r.custom_addr ? add_text(*r.custom_addr) : void(out += ", null");
               },
               [&](const DeviceRequest& r) {
                 begin(TrackerCode::request);
                 add_text(r.key);
                 add_text(r.user);
                 out += fmt::format(", {}", r.priority);
               },
               [&](const UpdateInfoRequest& r) {
                 begin(TrackerCode::update_info);
                 out += ", " + server_info_json(r.members);
               },
               [&](const SummaryRequest& r) {
                 begin(TrackerCode::summary);
                 if (r.boards) add_text(kBoards);
               },
               [&](const PendingMatchKeysRequest&) { begin(TrackerCode::pending_match_keys); }},
      request);
  return out += ']';
}

/// `[0, value]`, the answer to REQUEST and SUMMARY. Denied: `[-1, "why"]`.
Result<JsonValue> decode_success(std::string_view text, std::string_view what) {
  OUTPOST_TRY(auto answer, parse_json(text, kAnswerLimits));
  if (!answer.is(Kind::array) || answer.items.size() < 2 || !answer.items[0].is(Kind::number))
    return malformed(fmt::format("answer to {} is not a list of status and value", what));
  if (answer.items[0].number != 0) {
    std::string why;
    append_json(why, answer.items[1]);
    return Error{Code::denied, fmt::format("tracker refused {}: {}", what, printable(why))};
  }
  return std::move(answer.items[1]);
}

Result<std::uint64_t> count_of(const JsonValue& queue, std::string_view name) {
  const auto* count = queue.find(name);
  const auto value = count ? count->integer() : std::nullopt;
  if (!value || *value < 0)
    return malformed(fmt::format("queue information without a number '{}'", name));
  return static_cast<std::uint64_t>(*value);
}

ServerInfo read_server(const JsonValue& entry) {
  ServerInfo out;
  for (std::size_t i = 0; i < entry.items.size(); ++i) {
    const auto& item = entry.items[i];
    const auto& name = entry.names[i];
    if (name == "key" && item.is(Kind::string)) {
      out.key = item.text;
    } else if (name == "addr" && item.is(Kind::array) && item.items.size() >= 2) {
      out.host = item.items[0].text;
      out.port = item.items[1].text;
    } else {
      std::string json;
      append_json(json, item);
      merge_member(out.members, {name, std::move(json)});
    }
  }
  return out;
}

BoardInfo read_board(const JsonValue& entry) {
  const auto server = read_server(entry);
  const auto text = [&entry](std::string_view name) {
    const auto* member = entry.find(name);
    return member && member->is(Kind::string) ? std::optional{member->text} : std::nullopt;
  };
  const auto* seconds = entry.find("seconds");
  return {.key = server.key,
          .host = server.host,
          .port = server.port,
          .state = text("state").value_or(""),
          .holder = text("holder"),
          .state_seconds = seconds ? seconds->number : 0};
}

}  // namespace

void TrackerCutter::feed(Bytes received) {
  if (begin_ == buffer_.size()) {
    if (buffer_.capacity() > kIdleBytesMax) std::string{}.swap(buffer_);
    buffer_.clear();
  } else if (begin_ != 0) {
    buffer_.erase(0, begin_);
  }
  begin_ = 0;
  buffer_.append(as_text(received));
}

Result<bool> TrackerCutter::take_magic() {
  if (pending() < kLengthBytes) return false;
  const auto magic = load_i32(buffer_.data() + begin_);
  if (magic != kTrackerMagic)
    return malformed(fmt::format("magic 0x{:x} is not that of a tracker's peer (0x{:x})",
                                 static_cast<std::uint32_t>(magic), kTrackerMagic));
  begin_ += kLengthBytes;
  return true;
}

Result<std::optional<std::string_view>> TrackerCutter::next() {
  if (pending() < kLengthBytes) return std::optional<std::string_view>{};
  const auto size = load_i32(buffer_.data() + begin_);
  if (size <= 0) return malformed(fmt::format("message length {} is not above 0", size));
  const auto bytes = static_cast<std::uint32_t>(size);
  if (bytes > message_bytes_max_)
    return Error{Code::limit, fmt::format("message of {} bytes exceeds message_bytes_max {}", bytes,
                                          message_bytes_max_)};
  if (pending() - kLengthBytes < bytes) return std::optional<std::string_view>{};
  const auto text = std::string_view{buffer_}.substr(begin_ + kLengthBytes, bytes);
  begin_ += kLengthBytes + bytes;
  return std::optional{text};
}

void merge_member(std::vector<InfoMember>& into, InfoMember member) {
  const auto same = std::find_if(into.begin(), into.end(),
                                 [&](const InfoMember& m) { return m.name == member.name; });
  if (same == into.end())
    into.push_back(std::move(member));
  else
    same->json = std::move(member.json);
}

UpdateInfoRequest UpdateInfoRequest::of(std::string_view resource,
                                        const std::optional<std::string>& host,
                                        std::uint16_t port) {
  UpdateInfoRequest out;
  out.key = "server:" + std::string{resource};
  std::string key_json;
  append_json_string(key_json, *out.key);
  std::string addr_json = "[";
  if (host)
    append_json_string(addr_json, *host);
  else
    addr_json += "null";
  addr_json += fmt::format(", {}]", port);
  out.members = {{"key", std::move(key_json)}, {"addr", std::move(addr_json)}};
  return out;
}

void UpdateInfoRequest::fill_host(std::string_view peer_host) {
  constexpr std::string_view kNull = "[null";
  for (auto& member : members) {
    if (member.name != "addr" || !member.json.starts_with(kNull)) continue;
    std::string json = "[";
    append_json_string(json, peer_host);
    member.json = json + member.json.substr(kNull.size());
  }
}

Result<TrackerRequest> decode_tracker_request(std::string_view text) {
  OUTPOST_TRY(const auto args, parse_json(text, JsonLimits{}));
  if (!args.is(Kind::array) || args.items.empty())
    return malformed("message is not a list that starts with a code");
  const auto& code = args.items[0];
  if (!code.is(Kind::number) && !code.is(Kind::boolean))
    return malformed(fmt::format("code is {}, not a number", kind_name(code)));
  // A boolean and 1.0 pass in the peer, which compares numbers.
  if (code.number == 1) return TrackerRequest{PingRequest{}};
  if (code.number == 2) {
    OUTPOST_TRY(const auto* key, argument(args, 1, "key of STOP"));
    return TrackerRequest{StopRequest{key->is(Kind::string) ? key->text : std::string{}}};
  }
  if (code.number == 3) return decode_put(args);
  if (code.number == 4) return decode_device_request(args);
  if (code.number == 5) return decode_update_info(args);
  if (code.number == 6)
    return TrackerRequest{SummaryRequest{args.items.size() > 1 && args.items[1].text == kBoards}};
  if (code.number == 7) return TrackerRequest{PendingMatchKeysRequest{}};
  return Error{Code::unsupported, fmt::format("unknown code {}", code.number)};
}

std::string encode(const TrackerRequest& request) {
  return message(request_text(request));
}

std::string encode_tracker_magic() {
  auto out = message({});
  boost::endian::endian_store<std::int32_t, 4, boost::endian::order::little>(
      reinterpret_cast<unsigned char*>(out.data()), kTrackerMagic);
  return out;
}

std::string encode_status(TrackerStatus status) {
  return message(status == TrackerStatus::success ? "0" : "-1");
}

std::string encode(const DeviceAnswer& answer) {
  std::string out = "[0, [";
  append_json_string(out, answer.host);
  out += fmt::format(", {}, ", answer.port);
  append_json_string(out, answer.match_key);
  return message(out += "]]");
}

std::string encode_refusal(std::string_view why) {
  std::string out = "[-1, ";
  append_json_string(out, why);
  return message(out += ']');
}

std::string encode_summary(const std::vector<QueueInfo>& queues,
                           const std::vector<std::string_view>& server_infos,
                           const std::vector<std::string>* boards) {
  std::string out = "[0, {\"queue_info\": {";
  for (std::size_t i = 0; i < queues.size(); ++i) {
    if (i != 0) out += ", ";
    append_json_string(out, queues[i].key);
    out += fmt::format(": {{\"free\": {}, \"pending\": {}}}", queues[i].free, queues[i].pending);
  }
  out += "}, \"server_info\": [";
  for (std::size_t i = 0; i < server_infos.size(); ++i) {
    if (i != 0) out += ", ";
    out += server_infos[i];
  }
  out += ']';
  if (boards) out += fmt::format(", \"{}\": [{}]", kBoards, fmt::join(*boards, ", "));
  return message(out += "}]");
}

std::string board_json(const BoardInfo& board, std::string_view addr_json) {
  std::string out = "{\"key\": ";
  append_json_string(out, board.key);
  out += fmt::format(", \"addr\": {}, \"state\": ", addr_json);
  append_json_string(out, board.state);
  out += ", \"holder\": ";
  board.holder ? append_json_string(out, *board.holder) : void(out += "null");
  return out += fmt::format(", \"seconds\": {:.3f}}}", board.state_seconds);
}

std::string encode_match_keys(const std::vector<std::string>& keys) {
  std::string out = "[";
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i != 0) out += ", ";
    append_json_string(out, keys[i]);
  }
  return message(out += ']');
}

std::string server_info_json(const std::vector<InfoMember>& members) {
  std::string out = "{";
  for (const auto& member : members) {
    if (out.size() > 1) out += ", ";
    append_json_string(out, member.name);
    out += ": ";
    out += member.json;
  }
  return out += '}';
}

Result<TrackerStatus> decode_status(std::string_view text) {
  OUTPOST_TRY(const auto answer, parse_json(text, JsonLimits{}));
  if (!answer.is(Kind::number)) return malformed("answer of the tracker is not a number");
  return answer.number == 0 ? TrackerStatus::success : TrackerStatus::fail;
}

Result<DeviceAnswer> decode_device(std::string_view text) {
  OUTPOST_TRY(const auto value, decode_success(text, "REQUEST"));
  if (!value.is(Kind::array) || value.items.size() < 3)
    return malformed("answer to REQUEST is not a list of host, port and match key");
  DeviceAnswer out;
  OUTPOST_TRY(out.host, text_of(value.items[0], "host of the device"));
  OUTPOST_TRY(out.port, port_of(value.items[1]));
  OUTPOST_TRY(out.match_key, text_of(value.items[2], "match key of the device"));
  return out;
}

Result<SummaryAnswer> decode_summary(std::string_view text) {
  OUTPOST_TRY(const auto value, decode_success(text, "SUMMARY"));
  const auto* queues = value.find("queue_info");
  const auto* servers = value.find("server_info");
  if (!queues || !queues->is(Kind::object) || !servers || !servers->is(Kind::array))
    return malformed("answer to SUMMARY has no queue_info and server_info");
  SummaryAnswer out;
  for (std::size_t i = 0; i < queues->items.size(); ++i) {
    QueueInfo queue{.key = queues->names[i]};
    OUTPOST_TRY(queue.free, count_of(queues->items[i], "free"));
    OUTPOST_TRY(queue.pending, count_of(queues->items[i], "pending"));
    out.queues.push_back(std::move(queue));
  }
  for (const auto& entry : servers->items) {
    if (!entry.is(Kind::object)) return malformed("an entry of server_info is not an object");
    out.servers.push_back(read_server(entry));
  }
  if (const auto* boards = value.find(kBoards); boards && boards->is(Kind::array)) {
    out.boards.emplace();
    for (const auto& entry : boards->items) out.boards->push_back(read_board(entry));
  }
  return out;
}

Result<std::vector<std::string>> decode_match_keys(std::string_view text) {
  OUTPOST_TRY(const auto value, parse_json(text, kAnswerLimits));
  if (!value.is(Kind::array)) return malformed("answer with match keys is not a list");
  std::vector<std::string> out;
  for (const auto& item : value.items) {
    OUTPOST_TRY(auto key, text_of(item, "match key"));
    out.push_back(std::move(key));
  }
  return out;
}

std::string_view resource_key(std::string_view match_key) {
  return match_key.substr(0, match_key.rfind(':'));
}

}  // namespace outpost::rpc
