#pragma once
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "constraint.h"
#include "line.h"
#include "order.h"

namespace outpost::tracker {

enum class ConnId : std::uint64_t {};

/// Where a free device waits for its one client.
struct Offer {
  std::string host;
  std::uint16_t port = 0;
  std::string match_key;
};

/// What a client asks for.
struct Ask {
  std::string key;
  std::string user{};
  double priority = 1;
  std::string need{};          ///< conditions on tags; empty: any device of the key
  std::optional<Time> wait{};  ///< refused when nothing came by then; empty: no limit
};

/// A device that goes to a client.
struct Grant {
  ConnId client;
  ConnId server;
  std::string key;
  Offer offer;
  Time waited;  ///< how long the client stood in line
};

/// A request that ends without a device.
struct Refusal {
  ConnId client;
  std::string why;
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

/// What foreign peers may make the broker keep, and what a user may have. 0 devices: no limit.
struct BrokerLimits {
  OrderOptions order{};
  std::size_t requests_per_connection_max = 65536;
  std::size_t offers_per_connection_max = 4096;
  std::size_t keys_max = 16384;                   ///< resource keys that are remembered
  std::size_t classes_max = 256;                  ///< of devices or of requests under one key
  std::size_t key_bytes_max = 1024;               ///< of a resource key, match key or address
  std::size_t held_per_user_max = 0;              ///< devices at a time; more requests wait
  std::size_t waiting_per_user_max = 0;           ///< requests; more are refused
  Time suspect_after = std::chrono::seconds{10};  ///< silence of a connection with a free device
};

/// Who gets which device. Boards with equal tags form a device class, requests with equal
/// conditions a request class; which fits which is worked out once, so nothing looks at the whole
/// queue. Pure and deterministic: one owner calls it, time comes in, grants go out. With n waiting
/// and c classes under a key (few) a decision costs O(log n + c); a connection that ends costs
/// what it owned. Waiting requests and fitting free devices never coexist between two calls.
class Broker {
 public:
  explicit Broker(const BrokerLimits& limits);
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  enum class Put : std::uint8_t { accepted, duplicate };

  /// A device of `server` becomes free. Duplicate: that match key is offered or was used; ignored.
  /// Limit: the connection has to be closed.
  Result<Put> put(ConnId server, const std::string& key, Offer offer, Time now,
                  std::vector<Grant>& grants);
  /// `client` stands in line. Limit: the connection has to be closed; every other error is an
  /// answer for the client (malformed: the condition; denied: a quota; not_found: no board of that
  /// key can ever meet the condition, and the client does not say how long it would wait for one).
  Result<> request(ConnId client, const Ask& ask, Time now, std::vector<Grant>& grants);
  /// What the boards of this connection are like; at first like nothing in particular.
  Result<> set_tags(ConnId server, Tags tags, Time now, std::vector<Grant>& grants);
  /// A sign of life. True when it was a suspect, which is trusted again.
  bool heard(ConnId who, Time now, std::vector<Grant>& grants);
  /// The connection is gone: its devices and requests go with it. What its clients' users held is
  /// given back, which may let others of theirs advance.
  void gone(ConnId who, Time now, std::vector<Grant>& grants);
  /// Withdraws the devices of those who have been silent for too long; gives who is newly suspect.
  std::vector<ConnId> tick(Time now, std::vector<Refusal>& refusals);
  /// When `tick` will have something to do; empty: never, as things stand.
  std::optional<Time> next_deadline() const;

  /// Match keys that the connection offered and nobody has taken, suspects' too, oldest first.
  std::vector<std::string> match_keys(ConnId who) const;
  /// Every key ever named, in order of first use. A suspect's devices do not count as free.
  std::vector<QueueCount> queues() const;
  QueueCount queue(std::string_view key) const;
  Board board(ConnId server) const;
  /// Where the connection's oldest request stands and why it waits, in words; empty: it has none.
  std::string reason(ConnId client) const;

 private:
  struct Conn;
  struct Pool;
  struct DeviceClass;
  struct RequestClass;
  struct User;
  friend struct Waiting;  // names the private types

  Conn* find(ConnId who) const;
  Conn& conn(ConnId who, Time now);
  User& user(const std::string& name);
  Result<Pool*> pool(const std::string& key);
  bool make_room_for_a_pool();
  Result<DeviceClass*> device_class(Pool& pool, const Tags& tags);
  Result<RequestClass*> request_class(Pool& pool, const std::string& need);
  Result<DeviceClass*> join(Conn& c, Pool& pool);
  void offer(DeviceClass& d, std::uint64_t arrival, Conn& c);
  void withdraw(DeviceClass& d, std::uint64_t arrival);
  void serve(DeviceClass& d, Time now, std::vector<Grant>& grants);
  void seek(const std::vector<DeviceClass*>& fits, Time now, std::vector<Grant>& grants);
  void hand_out(DeviceClass& d, Waiting& w, Time now, std::vector<Grant>& grants);
  void stand_in_line(Waiting& w);
  void leave_line(Waiting& w);
  void forget(Waiting& w);
  void release(Conn& server, Time now, std::vector<Grant>& grants);
  void hold_back(User& u);
  void rekey(Pool& pool, const std::string& user);
  void forget_if_idle(User& u);
  void watch(Conn& c);
  void unwatch(Conn& c);
  void remember_used(Conn& c, const std::string& match_key);
  std::string words(const Waiting& w) const;
  bool fair() const { return limits_.order.order == Order::fair; }

  BrokerLimits limits_;
  std::uint64_t arrivals_ = 0;
  std::unordered_map<ConnId, std::unique_ptr<Conn>> conns_;
  std::unordered_map<std::string, std::unique_ptr<Pool>> pools_;
  std::map<std::uint64_t, Pool*> pools_by_age_;
  std::unordered_map<std::string, Conn*> match_keys_;  ///< offered, or used not long ago
  std::list<Conn*> watched_;  ///< with offers, not suspect, longest silent first
  std::set<std::pair<Time, Waiting*>> wait_ends_;
  std::unordered_map<std::string, std::unique_ptr<User>> users_;  ///< who wait or hold
};

}  // namespace outpost::tracker
