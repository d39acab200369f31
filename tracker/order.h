#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace outpost::tracker {

/// A point of the monotonic clock, counted from any fixed start. Given in, never read here.
using Time = std::chrono::nanoseconds;

/// Who goes first.
enum class Order : std::uint8_t {
  strict,  ///< larger priority, then first come: exactly the stock tracker
  aged,    ///< as strict, but a level of priority is worth `priority_worth` of waiting
  fair,    ///< users by turns; who used more than its share stands further back
};
std::optional<Order> parse_order(std::string_view name);
std::string_view name(Order order);

struct OrderOptions {
  Order order = Order::aged;
  Time priority_worth = std::chrono::seconds{900};
  Time overuse_worth = std::chrono::seconds{300};  ///< fair: standing back for full overuse
  Time usage_half_life = std::chrono::hours{24};   ///< fair: how fast past use is forgiven
};

/// Place in line: smallest first. It never changes while a request waits, so all grow old alike
/// and nothing is sorted again.
struct Place {
  double seconds;         ///< what the order makes of arrival and priority
  std::uint64_t arrival;  ///< ties: first come
  auto operator<=>(const Place&) const = default;
};
Place place_of(const OrderOptions& options, double priority, Time now, std::uint64_t arrival);

/// Who used how much of a pool, fading with time. For the fair order.
class FairShare {
 public:
  explicit FairShare(const OrderOptions& options) : options_{options} {}

  /// Charged at once with the mean length of a session, so that a burst cannot outrun its bill;
  /// gives the charge in seconds, to be handed to `released`.
  double granted(const std::string& user, Time now);
  void released(const std::string& user, double charged, Time held, Time now);
  /// Place of a user whose first request stands at `head`. @param active  users that want or hold
  Place place(const std::string& user, Place head, std::size_t active) const;
  /// 0 within the share, 1 for all use of the pool.
  double overuse(const std::string& user, std::size_t active) const;

 private:
  struct Use {
    double seconds = 0;
    Time at{};
    double last_grant = -1e300;
  };
  double faded(double seconds, Time from, Time to) const;
  void charge(Use& use, double seconds, Time now);
  void forget_idle(Time now);

  OrderOptions options_;
  std::unordered_map<std::string, Use> users_;
  Use total_;
  double mean_session_ = 30;
};

}  // namespace outpost::tracker
