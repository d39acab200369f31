#include "tracker_core.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "constraint.h"
#include "request_key.h"

namespace outpost::tracker {
namespace {

using Kind = Fact::Kind;

template <class... F>
struct Overload : F... {
  using F::operator()...;
};

std::size_t size_of(const std::vector<rpc::InfoMember>& info) {
  std::size_t bytes = 0;
  for (const auto& member : info) bytes += member.name.size() + member.json.size();
  return bytes;
}

}  // namespace

void Outcome::clear() {
  sends.clear();
  closes.clear();
  facts.clear();
  stop = false;
}

TrackerCore::TrackerCore(const CoreLimits& limits, std::string stop_key)
    : limits_{limits}, stop_key_{std::move(stop_key)}, broker_{limits.broker} {}

void TrackerCore::connected(ConnId id, std::string peer_host, Time now) {
  Outcome unused;
  gone(id, now, unused);
  const auto at = handshakes_.insert(handshakes_.end(), {now + limits_.handshake_within, id});
  peers_.insert_or_assign(id, Peer{.host = std::move(peer_host),
                                   .cutter = rpc::TrackerCutter{limits_.message_bytes_max},
                                   .handshake = at,
                                   .info = {},
                                   .key = {},
                                   .since = now,
                                   .holder = {}});
}

void TrackerCore::received(ConnId id, Bytes bytes, Time now, Outcome& out) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  peer.cutter.feed(bytes);
  if (!peer.greeted) {
    const auto magic = peer.cutter.take_magic();
    if (magic.has_error()) return close(id, magic.error().text, now, out);
    if (!*magic) return;
    peer.greeted = true;
    handshakes_.erase(peer.handshake);
    out.sends.push_back({id, rpc::encode_tracker_magic()});
  }
  answer_all(id, peer, now, out);
}

void TrackerCore::resume(ConnId id, Time now, Outcome& out) {
  const auto found = peers_.find(id);
  if (found != peers_.end()) answer_all(id, found->second, now, out);
}

bool TrackerCore::has_more(ConnId id) const {
  const auto found = peers_.find(id);
  return found != peers_.end() && found->second.more;
}

void TrackerCore::answer_all(ConnId id, Peer& peer, Time now, Outcome& out) {
  peer.more = false;
  std::size_t answer_bytes = 0;
  for (auto sends = out.sends.size();;) {
    const auto text = peer.cutter.next();
    if (text.has_error()) return close(id, text.error().text, now, out);
    if (!*text) break;
    grants_.clear();
    if (broker_.heard(id, now, grants_)) out.facts.push_back({Kind::trusted, id, peer.key});
    deliver(grants_, out);
    handle(id, peer, **text, now, out);
    if (out.stop || !peers_.contains(id)) return;
    for (; sends < out.sends.size(); ++sends) answer_bytes += out.sends[sends].bytes.size();
    peer.more = answer_bytes >= limits_.answer_bytes_pause;
    if (peer.more) break;
  }
  buffered_ += peer.cutter.pending() - peer.buffered;
  peer.buffered = peer.cutter.pending();
  if (buffered_ > limits_.buffered_bytes_max)
    close(
        id,
        fmt::format("unfinished messages exceed buffered_bytes_max {}", limits_.buffered_bytes_max),
        now, out);
}

void TrackerCore::gone(ConnId id, Time now, Outcome& out) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  if (!found->second.greeted) handshakes_.erase(found->second.handshake);
  buffered_ -= found->second.buffered;
  std::vector<Grant> grants;  // a user's quota may be free again
  broker_.gone(id, now, grants);
  server_infos_.erase(id);
  forget_key(found->second);
  peers_.erase(found);
  deliver(grants, out);
}

void TrackerCore::tick(Time now, Outcome& out) {
  while (!handshakes_.empty() && handshakes_.front().first <= now)
    close(handshakes_.front().second, "no magic in time", now, out);
  refusals_.clear();
  for (const auto id : broker_.tick(now, refusals_))
    out.facts.push_back({Kind::suspect, id, peers_.at(id).key});
  for (const auto& refusal : refusals_) refuse(refusal.client, refusal.why, out);
}

std::optional<Time> TrackerCore::next_deadline() const {
  auto next = broker_.next_deadline();
  if (!handshakes_.empty() && (!next || handshakes_.front().first < *next))
    next = handshakes_.front().first;
  return next;
}

bool TrackerCore::mid_message(ConnId id) const {
  const auto found = peers_.find(id);
  return found != peers_.end() && found->second.cutter.pending() != 0;
}

void TrackerCore::handle(ConnId id, Peer& peer, std::string_view text, Time now, Outcome& out) {
  auto decoded = rpc::decode_tracker_request(text);
  if (decoded.has_error()) return close(id, decoded.error().text, now, out);
  const auto answer = [&](std::string bytes) { out.sends.push_back({id, std::move(bytes)}); };
  std::visit(
      Overload{
          [&](const rpc::PingRequest&) { answer(rpc::encode_status(rpc::TrackerStatus::success)); },
          [&](const rpc::StopRequest& r) {
            out.stop = !stop_key_.empty() && r.stop_key == stop_key_;
            answer(rpc::encode_status(out.stop ? rpc::TrackerStatus::success
                                               : rpc::TrackerStatus::fail));
          },
          [&](const rpc::PutRequest& r) { put(id, peer, r, now, out); },
          [&](const rpc::DeviceRequest& r) { request(id, peer, r, now, out); },
          [&](rpc::UpdateInfoRequest& r) { update_info(id, peer, std::move(r), now, out); },
          [&](const rpc::SummaryRequest& r) { answer(summary(r.boards, now)); },
          [&](const rpc::PendingMatchKeysRequest&) {
            answer(rpc::encode_match_keys(broker_.match_keys(id)));
          }},
      *decoded);
}

void TrackerCore::put(ConnId id, const Peer& peer, const rpc::PutRequest& r, Time now,
                      Outcome& out) {
  grants_.clear();
  const auto done = broker_.put(id, r.key, {r.custom_addr.value_or(peer.host), r.port, r.match_key},
                                now, grants_);
  if (done.has_error()) return close(id, done.error().text, now, out);
  out.facts.push_back(
      {*done == Broker::Put::accepted ? Kind::put : Kind::duplicate, id, r.match_key});
  out.sends.push_back({id, rpc::encode_status(rpc::TrackerStatus::success)});
  deliver(grants_, out);
}

void TrackerCore::request(ConnId id, const Peer& peer, const rpc::DeviceRequest& r, Time now,
                          Outcome& out) {
  auto parsed = parse_request_key(r.key);
  if (parsed.has_error()) return refuse(id, parsed.error().text, out);
  Ask ask{.key = std::move(parsed->key),
          .user = parsed->user.value_or(r.user),
          .priority = r.priority,
          .need = std::move(parsed->need),
          .wait = parsed->wait};
  if (ask.user.empty() && limits_.anonymous_by_address) ask.user = "@" + peer.host;
  grants_.clear();
  const auto done = broker_.request(id, ask, now, grants_);
  if (done.has_error() && done.error().code == Code::limit)
    return close(id, done.error().text, now, out);
  if (done.has_error()) return refuse(id, done.error().text, out);
  if (grants_.empty())
    out.facts.push_back(
        {servers_of_key_.contains("server:" + ask.key) ? Kind::waits : Kind::waits_alone, id,
         ask.key});
  deliver(grants_, out);
}

void TrackerCore::refuse(ConnId id, std::string_view why, Outcome& out) {
  out.facts.push_back({Kind::refused, id, std::string{why}});
  out.sends.push_back({id, rpc::encode_refusal(why)});
}

void TrackerCore::update_info(ConnId id, Peer& peer, rpc::UpdateInfoRequest r, Time now,
                              Outcome& out) {
  r.fill_host(peer.host);
  std::optional<Result<Tags>> tags;
  for (const auto& member : r.members)
    if (member.name == "tags") tags = read_tags(member.json);
  for (auto& member : r.members) rpc::merge_member(peer.info, std::move(member));
  if (size_of(peer.info) > limits_.info_bytes_max || peer.info.size() > rpc::kInfoMembersMax)
    return close(id,
                 fmt::format("server information of {} members and {} bytes exceeds {} or "
                             "info_bytes_max {}",
                             peer.info.size(), size_of(peer.info), rpc::kInfoMembersMax,
                             limits_.info_bytes_max),
                 now, out);
  if (r.key) {
    forget_key(peer);
    peer.key = *r.key;
    ++servers_of_key_[peer.key];
  }
  if (peer.key.starts_with("server"))
    server_infos_[id] = rpc::server_info_json(peer.info);
  else
    server_infos_.erase(id);
  out.facts.push_back({Kind::registered, id, peer.key});
  if (tags && tags->has_error()) out.facts.push_back({Kind::odd_tags, id, tags->error().text});
  if (tags && tags->has_value()) {
    grants_.clear();
    const auto done = broker_.set_tags(id, **std::move(tags), now, grants_);
    if (done.has_error()) return close(id, done.error().text, now, out);
    deliver(grants_, out);
  }
  out.sends.push_back({id, rpc::encode_status(rpc::TrackerStatus::success)});
}

void TrackerCore::forget_key(const Peer& peer) {
  const auto found = servers_of_key_.find(peer.key);
  if (found != servers_of_key_.end() && --found->second == 0) servers_of_key_.erase(found);
}

void TrackerCore::deliver(const std::vector<Grant>& grants, Outcome& out) {
  for (const auto& grant : grants) {
    const auto client = peers_.find(grant.client);
    const auto server = peers_.find(grant.server);
    if (client != peers_.end() && server != peers_.end())
      server->second.holder = client->second.host;
    out.facts.push_back(
        {Kind::granted, grant.client, grant.offer.match_key, grant.server, grant.waited});
    out.sends.push_back(
        {grant.client, rpc::encode(rpc::DeviceAnswer{grant.offer.host, grant.offer.port,
                                                     grant.offer.match_key})});
  }
}

void TrackerCore::close(ConnId id, std::string reason, Time now, Outcome& out) {
  gone(id, now, out);
  out.closes.push_back({id, std::move(reason)});
}

}  // namespace outpost::tracker
