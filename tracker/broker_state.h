#pragma once
// What the broker keeps; included by its own files only.
#include "broker.h"

namespace outpost::tracker {

/// A request in line, or held back because its user has all that it may have.
struct Waiting {
  Broker::Conn* conn;
  Broker::RequestClass* cls;
  Broker::User* user;
  Place place;
  Time since;
  std::optional<Time> ends;
  bool in_line = false;
};

struct Broker::User {
  std::string name;
  std::map<std::uint64_t, Waiting*> waiting{};  ///< by arrival
  std::size_t held = 0;
};

/// Boards of one pool with equal tags.
struct Broker::DeviceClass {
  Pool* pool;
  Tags tags;
  std::map<std::uint64_t, Conn*> free{};  ///< by arrival
  std::vector<RequestClass*> wanted_by{};
  std::size_t boards = 0;  ///< connections that have offered one
  bool unused() const { return boards == 0 && free.empty(); }
};

/// Requests of one pool with equal conditions.
struct Broker::RequestClass {
  Pool* pool;
  std::string text;
  Need need;
  Line line{};
  std::vector<DeviceClass*> fits{};
  std::size_t waiting = 0;  ///< in line or held back
};

struct Broker::Pool {
  explicit Pool(const OrderOptions& order) : share{order} {}
  std::string key;
  std::uint64_t born = 0;
  std::map<std::string, std::unique_ptr<DeviceClass>> devices;
  std::map<std::string, std::unique_ptr<RequestClass>> requests;
  FairShare share;
  std::size_t free = 0;
  std::size_t waiting = 0;
  std::size_t holds = 0;
};

struct Broker::Conn {
  struct OwnOffer {
    DeviceClass* cls;
    Offer offer;
  };
  /// Who was sent to one of its devices.
  struct Hold {
    std::string user;
    Pool* pool;
    Time since;
    double charged;
  };
  ConnId id;
  Time heard{};
  bool suspect = false;
  Tags tags{};
  std::map<std::uint64_t, DeviceClass*> member_of{};             ///< by the pool's birth
  std::map<std::uint64_t, OwnOffer> offers{};                    ///< by arrival
  std::map<std::uint64_t, std::unique_ptr<Waiting>> requests{};  ///< by arrival
  std::deque<std::string> used_keys{};                           ///< handed out, oldest first
  std::deque<Hold> held{};                                       ///< oldest first
  Time since{};                        ///< when its board changed its state
  std::list<Conn*>::iterator watch{};  ///< place in watched_
  bool watched = false;
};

}  // namespace outpost::tracker
