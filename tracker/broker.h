#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace outpost::tracker {

enum class ConnId : std::uint64_t {};
/// A point of the monotonic clock, counted from any fixed start. Given in, never read here.
using Time = std::chrono::nanoseconds;

/// Where a free device waits for its one client.
struct Offer {
  std::string host;
  std::uint16_t port = 0;
  std::string match_key;
};

/// A device that goes to a client.
struct Grant {
  ConnId client;
  ConnId server;
  std::string key;
  Offer offer;
  Time waited;  ///< how long the client stood in line
};

/// Free and waiting under one key.
struct QueueCount {
  std::string_view key;
  std::uint64_t free = 0;
  std::uint64_t pending = 0;
};

/// What one board does, for people.
enum class BoardState : std::uint8_t {
  away,     ///< registered, offers nothing and nobody was sent there
  free,     ///< can be handed out
  busy,     ///< handed out
  suspect,  ///< offers something, but has stopped to ask; not handed out
};

struct Board {
  BoardState state = BoardState::away;
  std::optional<Time> since{};  ///< when the state began; empty: it never offered anything
};

/// What foreign peers may make the broker keep.
struct BrokerLimits {
  std::size_t requests_per_connection_max = 65536;
  std::size_t offers_per_connection_max = 4096;
  std::size_t keys_max = 16384;                   ///< resource keys that are remembered
  std::size_t key_bytes_max = 1024;               ///< of a resource key, match key or address
  Time suspect_after = std::chrono::seconds{10};  ///< silence of a connection with a free device
};

/// Who gets which device: larger priority first, then first come; devices in the order they came.
/// Pure and deterministic: one owner calls it, time comes in, grants go out. A decision costs
/// O(log n); a connection that ends costs what it owned.
class Broker {
 public:
  explicit Broker(const BrokerLimits& limits) : limits_{limits} {}
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  enum class Put : std::uint8_t { accepted, duplicate };

  /// A device of `server` becomes free. Duplicate: that match key is offered or was used; ignored.
  /// Limit: the connection has to be closed.
  Result<Put> put(ConnId server, const std::string& key, Offer offer, Time now,
                  std::vector<Grant>& grants);
  /// `client` stands in line. Limit: the connection has to be closed.
  Result<> request(ConnId client, const std::string& key, double priority, Time now,
                   std::vector<Grant>& grants);
  /// A sign of life. True when it was a suspect, which is trusted again.
  bool heard(ConnId who, Time now, std::vector<Grant>& grants);
  /// The connection is gone: its devices and requests go with it.
  void gone(ConnId who);
  /// Withdraws the devices of those who have been silent for too long; gives who is newly suspect.
  std::vector<ConnId> tick(Time now);
  /// When `tick` will have something to do; empty: never, as things stand.
  std::optional<Time> next_deadline() const;

  /// Match keys that the connection offered and nobody has taken, suspects' too, oldest first.
  std::vector<std::string> match_keys(ConnId who) const;
  /// Every key ever named, in order of first use. A suspect's devices do not count as free.
  std::vector<QueueCount> queues() const;
  Board board(ConnId server) const;
  /// How many free devices and waiting requests a key has.
  QueueCount queue(std::string_view key) const;

 private:
  struct Conn;
  /// Place in line, smallest first.
  struct Place {
    double order;  ///< the negated priority
    std::uint64_t arrival;
    auto operator<=>(const Place&) const = default;
  };
  struct Pool {
    std::string key;
    std::map<std::uint64_t, Conn*> free;  ///< by arrival
    std::map<Place, Conn*> waiting;
    std::uint64_t born = 0;
  };
  struct OwnOffer {
    Pool* pool;
    Offer offer;
  };
  struct OwnRequest {
    Pool* pool;
    Place place;
    Time since;
  };
  struct Conn {
    ConnId id;
    Time heard{};
    bool suspect = false;
    std::map<std::uint64_t, OwnOffer> offers;      ///< by arrival
    std::map<std::uint64_t, OwnRequest> requests;  ///< by arrival
    std::deque<std::string> used_keys;             ///< handed out, oldest first
    std::size_t handed_out = 0;                    ///< devices that clients were sent to
    Time since{};                                  ///< when its board changed its state
    std::list<Conn*>::iterator watch{};            ///< place in watched_, while it has offers
    bool watched = false;
  };

  Conn& conn(ConnId who, Time now);
  Result<Pool*> pool(const std::string& key);
  bool make_room_for_a_pool();
  void match(Pool& pool, Time now, std::vector<Grant>& grants);
  void hand_out(Pool& pool, Time now, std::vector<Grant>& grants);
  void watch(Conn& c);
  void unwatch(Conn& c);
  void remember_used(Conn& c, const std::string& match_key);

  BrokerLimits limits_;
  std::uint64_t arrivals_ = 0;
  std::unordered_map<ConnId, Conn> conns_;
  std::unordered_map<std::string, Pool> pools_;
  std::map<std::uint64_t, Pool*> pools_by_age_;
  std::unordered_map<std::string, Conn*> match_keys_;  ///< offered, or used not long ago
  std::list<Conn*> watched_;  ///< with offers, not suspect, longest silent first
};

}  // namespace outpost::tracker
