#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/tracker_message.h"

namespace outpost::rpc {

struct RegistrationOptions {
  std::string key;                         ///< resource key: the board's type
  std::uint16_t port = 0;                  ///< where clients reach this server
  std::optional<std::string> custom_addr;  ///< handed out instead of the peer's address
  std::chrono::milliseconds poll_interval{2000};
  int missed_polls_max = 4;  ///< polls in a row that lack a key before it counts as unused
  std::chrono::milliseconds connect_deadline{3000};
  std::chrono::milliseconds answer_deadline{10'000};
  std::chrono::milliseconds retry_first{500};
  std::chrono::milliseconds retry_max{5000};
};

/// A server's side of its tracker connection (tracker-wire.md, What a server does), without
/// sockets or clock: it is told what happened and when, and says what to do and when it wants to be
/// told the time. One match key is offered for each free slot. It tries again for ever.
class Registration {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Action {
    enum class Kind : std::uint8_t { connect, send, close } kind;
    std::string bytes;  ///< of send
  };
  /// Something a person may want to read.
  struct Fact {
    enum class Kind : std::uint8_t {
      registered,  ///< text: the address that clients are given
      failed,      ///< no connection; text: why, count: tries in a row, retry_in
      lost,        ///< a registration ended; text: why, retry_in
      unused_key,  ///< taken from the tracker, but nobody came; text: the address handed out
    } kind;
    std::string text;
    std::uint64_t count = 0;
    std::chrono::milliseconds retry_in{0};
  };

  /// @param random  uniform 64-bit numbers that nobody can guess: they make match keys
  Registration(RegistrationOptions options, std::size_t free_slots,
               std::function<std::uint64_t()> random);

  // What happened.
  void start(Time now);
  void connected(Time now, std::string local_host);
  void received(Time now, Bytes bytes);
  /// The connection could not be made, or has ended.
  void lost(Time now, std::string why);
  void tick(Time now);
  void set_free_slots(Time now, std::size_t count);
  /// Ends the registration: the tracker withdraws what was offered when the connection closes.
  void stop();

  /// True when a client's match key is one that is offered; it is used up then.
  bool take(std::string_view match_key);

  // What to do about it; both empty the list.
  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }
  std::vector<Fact> take_facts() { return std::exchange(facts_, {}); }
  /// When tick() is due; Time::max() when nothing is waited for.
  Time deadline() const;

  bool is_registered() const { return state_ == State::registered; }
  std::size_t offered() const { return offers_.size(); }

 private:
  enum class State : std::uint8_t {
    stopped,
    waiting,
    connecting,
    greeting,
    registering,
    registered
  };
  struct Offer {
    std::string match_key;
    bool known = false;  ///< the tracker has confirmed it
    int missed = 0;      ///< polls in a row without it
  };
  struct Question {
    TrackerCode code;
    Time asked;
    std::string match_key;  ///< of a put
  };

  void connect(Time now);
  void retry(Time now, std::string why);
  void send(std::string bytes);
  void ask(Time now, TrackerCode code, const TrackerRequest& request, std::string match_key = {});
  void offer(Time now);
  Result<> answer(Time now, std::string_view text);
  Result<> judge_offers(Time now, std::string_view text);
  std::string new_match_key();
  std::string address() const;

  RegistrationOptions options_;
  std::function<std::uint64_t()> random_;
  State state_ = State::stopped;
  std::size_t free_slots_;
  std::string local_host_;
  TrackerCutter cutter_{kTrackerAnswerBytesMax};
  std::vector<Offer> offers_;
  std::deque<Question> questions_;
  Time due_ =
      Time::max();  // end of the wait, of the connect or of the greeting; else the next poll
  Time registered_since_{};
  std::chrono::milliseconds retry_in_{0};
  std::uint64_t failures_ = 0;
  std::vector<Action> actions_;
  std::vector<Fact> facts_;
};

}  // namespace outpost::rpc
