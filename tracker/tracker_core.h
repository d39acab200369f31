#pragma once
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "broker.h"
#include "wire/tracker_message.h"

namespace outpost::tracker {

struct CoreLimits {
  BrokerLimits broker{};
  bool anonymous_by_address = false;  ///< a client without a name is the user of its address
  std::uint32_t message_bytes_max = rpc::kTrackerMessageBytesMax;
  std::size_t info_bytes_max = 65536;                ///< what a server may say about itself
  std::size_t buffered_bytes_max = 256U << 20;       ///< unfinished messages of all peers together
  std::size_t answer_bytes_pause = 256U << 10;       ///< answers of one input, then `resume` is due
  Time handshake_within = std::chrono::seconds{30};  ///< the magic, from the connection on
};

/// A fact for the log or for statistics; words are made by who logs.
struct Fact {
  enum class Kind : std::uint8_t {
    registered,   ///< detail: its key
    put,          ///< detail: match key
    duplicate,    ///< detail: match key that was ignored
    waits,        ///< detail: key; nothing is free
    waits_alone,  ///< detail: key; nobody offers that key at all
    granted,      ///< detail: match key; `other` is the server
    suspect,      ///< detail: its key
    trusted,      ///< a suspect that asks again; detail: its key
    refused,      ///< a request; detail: why
    odd_tags,     ///< a server's tags that cannot be read; detail: why
  };
  Kind kind;
  ConnId conn;
  std::string detail;
  ConnId other{};
  Time waited{};
};

/// What has to happen after an input. The caller owns it, clears it and uses it again.
struct Outcome {
  struct Send {
    ConnId to;
    std::string bytes;
  };
  struct Close {
    ConnId conn;
    std::string reason;
  };
  std::vector<Send> sends;    ///< to be written in this order
  std::vector<Close> closes;  ///< after what was sent to them; `gone` is already done for these
  std::vector<Fact> facts;
  bool stop = false;  ///< the owner's STOP: send, close everything, end

  void clear();
};

/// From connections to messages: the whole control plane without a socket or a clock.
/// Inputs are connected, received and gone for each connection, and `tick` at `next_deadline`.
class TrackerCore {
 public:
  /// @param stop_key  what STOP has to say; empty: nobody may stop it that way
  TrackerCore(const CoreLimits& limits, std::string stop_key);

  /// @param peer_host  the address that is handed out for servers that name none
  /// An id that was used before starts over.
  void connected(ConnId id, std::string peer_host, Time now);
  /// Bytes in any segmentation. A connection that is unknown, or was closed by us, is ignored.
  void received(ConnId id, Bytes bytes, Time now, Outcome& out);
  /// Goes on where `received` stopped because its answers grew large; see `has_more`.
  void resume(ConnId id, Time now, Outcome& out);
  /// Whole messages are left over: write what there is, then call `resume`, before more is read.
  bool has_more(ConnId id) const;
  /// The peer closed, or is lost. What is due to it was sent before.
  void gone(ConnId id, Time now, Outcome& out);
  void tick(Time now, Outcome& out);
  std::optional<Time> next_deadline() const;

  const Broker& broker() const { return broker_; }
  /// Whether a part of a message was read, so that the rest should be asked for at once.
  bool mid_message(ConnId id) const;

 private:
  struct Peer {
    std::string host;
    rpc::TrackerCutter cutter;
    bool greeted = false;
    bool more = false;         ///< see has_more
    std::size_t buffered = 0;  ///< its share of buffered_
    std::list<std::pair<Time, ConnId>>::iterator handshake;
    std::vector<rpc::InfoMember> info;  ///< of a server, merged
    std::string key;                    ///< as its info says
    Time since{};                       ///< of the connection
    std::string holder;                 ///< of a server: the client that was sent there last
  };

  void answer_all(ConnId id, Peer& peer, Time now, Outcome& out);
  void handle(ConnId id, Peer& peer, std::string_view text, Time now, Outcome& out);
  void put(ConnId id, const Peer& peer, const rpc::PutRequest& request, Time now, Outcome& out);
  void request(ConnId id, const Peer& peer, const rpc::DeviceRequest& request, Time now,
               Outcome& out);
  void update_info(ConnId id, Peer& peer, rpc::UpdateInfoRequest request, Time now, Outcome& out);
  void refuse(ConnId id, std::string_view why, Outcome& out);
  void forget_key(const Peer& peer);
  void deliver(const std::vector<Grant>& grants, Outcome& out);
  void close(ConnId id, std::string reason, Time now, Outcome& out);
  std::string summary(bool boards, Time now) const;

  CoreLimits limits_;
  std::string stop_key_;
  Broker broker_;
  std::unordered_map<ConnId, Peer> peers_;
  std::list<std::pair<Time, ConnId>> handshakes_;                ///< deadlines, soonest first
  std::map<ConnId, std::string> server_infos_;                   ///< JSON text for SUMMARY
  std::unordered_map<std::string, std::size_t> servers_of_key_;  ///< by what their info says
  std::size_t buffered_ = 0;
  std::vector<Refusal> refusals_;
  std::vector<Grant> grants_;  ///< used again, so that no call allocates
};

}  // namespace outpost::tracker
