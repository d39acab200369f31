// What the tracker tells about itself: the answer to SUMMARY.
#include <algorithm>

#include "tracker_core.h"

namespace outpost::tracker {
namespace {

std::string_view word(BoardState state) {
  switch (state) {
    case BoardState::away:
      return "away";
    case BoardState::free:
      return "free";
    case BoardState::busy:
      return "busy";
    case BoardState::suspect:
      return "suspect";
  }
  return "";
}

std::string_view addr_json(const std::vector<rpc::InfoMember>& info) {
  const auto found = std::find_if(info.begin(), info.end(),
                                  [](const rpc::InfoMember& m) { return m.name == "addr"; });
  return found == info.end() ? "[null, null]" : std::string_view{found->json};
}

}  // namespace

std::string TrackerCore::summary(bool with_boards, Time now) const {
  std::vector<rpc::QueueInfo> queues;
  for (const auto& q : broker_.queues()) queues.push_back({std::string{q.key}, q.free, q.pending});
  std::vector<std::string_view> infos;
  infos.reserve(server_infos_.size());
  for (const auto& [id, text] : server_infos_) infos.push_back(text);
  if (!with_boards) return rpc::encode_summary(queues, infos);
  std::vector<std::string> boards;
  for (const auto& [id, text] : server_infos_) {
    const auto& peer = peers_.at(id);
    const auto board = broker_.board(id);
    const auto since = now - board.since.value_or(peer.since);
    rpc::BoardInfo info{.key = peer.key,
                        .host = {},
                        .port = {},
                        .state = std::string{word(board.state)},
                        .holder = {},
                        .state_seconds = std::chrono::duration<double>(since).count()};
    if (board.state == BoardState::busy) info.holder = peer.holder;
    boards.push_back(rpc::board_json(info, addr_json(peer.info)));
  }
  return rpc::encode_summary(queues, infos, &boards);
}

}  // namespace outpost::tracker
