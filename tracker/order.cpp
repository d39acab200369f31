#include "order.h"

#include <algorithm>
#include <cmath>

namespace outpost::tracker {
namespace {

constexpr std::size_t kUsersMax = 65536;  // remembered; those with the least use are forgotten
constexpr double kMeanWeight = 0.05;      // of the newest session in the running mean

double in_seconds(Time t) {
  return std::chrono::duration<double>(t).count();
}

}  // namespace

std::optional<Order> parse_order(std::string_view text) {
  for (const auto order : {Order::strict, Order::aged, Order::fair})
    if (text == name(order)) return order;
  return std::nullopt;
}

std::string_view name(Order order) {
  switch (order) {
    case Order::strict:
      return "strict";
    case Order::aged:
      return "aged";
    case Order::fair:
      return "fair";
  }
  return "";
}

Place place_of(const OrderOptions& o, double priority, Time now, std::uint64_t arrival) {
  if (o.order == Order::strict) return {-priority, arrival};
  return {in_seconds(now) - in_seconds(o.priority_worth) * priority, arrival};
}

double FairShare::granted(const std::string& user, Time now) {
  if (users_.size() >= kUsersMax && !users_.contains(user)) forget_idle(now);
  auto& use = users_[user];
  use.last_grant = in_seconds(now);
  charge(use, mean_session_, now);
  charge(total_, mean_session_, now);
  return mean_session_;
}

void FairShare::released(const std::string& user, double charged, Time held, Time now) {
  const double seconds = in_seconds(held);
  mean_session_ += kMeanWeight * (seconds - mean_session_);
  charge(users_[user], seconds - charged, now);
  charge(total_, seconds - charged, now);
}

Place FairShare::place(const std::string& user, Place head, std::size_t active) const {
  const auto found = users_.find(user);
  if (found == users_.end()) return head;
  return {std::max(head.seconds, found->second.last_grant) +
              in_seconds(options_.overuse_worth) * overuse(user, active),
          head.arrival};
}

double FairShare::overuse(const std::string& user, std::size_t active) const {
  const auto found = users_.find(user);
  if (found == users_.end() || active < 2) return 0;
  const Time now = total_.at;
  const double all = total_.seconds;
  if (all <= 0) return 0;
  const double used = faded(found->second.seconds, found->second.at, now) / all;
  const double fair = 1.0 / static_cast<double>(active);
  return std::clamp((used - fair) / (1 - fair), 0.0, 1.0);
}

double FairShare::faded(double seconds, Time from, Time to) const {
  return seconds * std::exp2(-in_seconds(to - from) / in_seconds(options_.usage_half_life));
}

void FairShare::charge(Use& use, double seconds, Time now) {
  use.seconds = std::max(0.0, faded(use.seconds, use.at, now) + seconds);
  use.at = now;
}

/// Users whose past use has faded away have nothing to answer for.
void FairShare::forget_idle(Time now) {
  constexpr double kForgotten = 1.0;
  std::erase_if(users_, [&](const auto& entry) {
    return faded(entry.second.seconds, entry.second.at, now) < kForgotten;
  });
  if (users_.size() >= kUsersMax) users_.clear();
}

}  // namespace outpost::tracker
