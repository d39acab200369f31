// Days of lab life in virtual time, with the real broker: what each order does to a rare user while
// another one keeps a deep backlog.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <random>

#include "broker.h"

namespace outpost::tracker {
namespace {

using namespace std::chrono_literals;

constexpr Time kLength = 6h;
constexpr std::uint64_t kBoards = 10;
constexpr std::size_t kBacklog = 2000;
constexpr ConnId kBig{1000}, kRare{1001};

/// Ten boards with leases of 20 to 40 s; "big" always has 2,000 requests of priority 1 waiting,
/// "rare" asks every 120 s with priority 0.
class Lab {
 public:
  Lab(Order order, unsigned seed) : broker_{limits(order)}, random_{seed} {}

  void run() {
    for (std::size_t i = 0; i < kBacklog; ++i) ask(kBig, "big", 1);
    for (std::uint64_t b = 1; b <= kBoards; ++b) free_board(ConnId{b});
    Time next_rare = 0s;
    while (now_ < kLength) {
      if (ends_.empty() || next_rare <= ends_.top().first) {
        now_ = next_rare;
        next_rare += 120s;
        ++rare_asked_;
        ask(kRare, "rare", 0);
      } else {
        now_ = ends_.top().first;
        const auto board = ends_.top().second;
        ends_.pop();
        free_board(board);
      }
    }
  }

  std::size_t rare_asked_ = 0;
  std::vector<Time> rare_waits_;
  std::size_t big_served_ = 0;

 private:
  static BrokerLimits limits(Order order) {
    BrokerLimits out;
    out.order.order = order;
    out.order.priority_worth = 600s;
    out.suspect_after = kLength * 2;
    return out;
  }
  void ask(ConnId who, const std::string& user, double priority) {
    std::vector<Grant> grants;
    ASSERT_TRUE(
        broker_.request(who, {.key = "k", .user = user, .priority = priority}, now_, grants));
    take(grants);
  }
  void free_board(ConnId board) {
    std::vector<Grant> grants;
    const auto match_key = fmt::format("k:{}", ++keys_);
    ASSERT_TRUE(broker_.put(board, "k", {"h", 1, match_key}, now_, grants));
    take(grants);
  }
  void take(const std::vector<Grant>& grants) {
    for (const auto& g : grants) {
      ASSERT_TRUE(busy_until_[g.server] <= now_) << "a board with two holders";
      const auto end = now_ + std::chrono::milliseconds{length_(random_)};
      busy_until_[g.server] = end;
      ends_.emplace(end, g.server);
      if (g.client == kRare) {
        rare_waits_.push_back(g.waited);
      } else {
        ++big_served_;
        ask(kBig, "big", 1);  // the backlog stays as deep as it is
      }
    }
  }

  Broker broker_;
  std::mt19937 random_;
  std::uniform_int_distribution<int> length_{20'000, 40'000};
  Time now_{};
  std::uint64_t keys_ = 0;
  std::map<ConnId, Time> busy_until_;
  std::priority_queue<std::pair<Time, ConnId>, std::vector<std::pair<Time, ConnId>>, std::greater<>>
      ends_;
};

TEST(OrderSim, StrictNeverServesTheLowerPriority) {
  Lab lab{Order::strict, 1};
  lab.run();
  EXPECT_EQ(lab.rare_waits_.size(), 0U);
}

TEST(OrderSim, AgedServesTheLowerPriorityOnceItHasWaitedLongEnough) {
  Lab lab{Order::aged, 1};
  lab.run();
  EXPECT_GT(lab.rare_waits_.size(), 100U);
  EXPECT_LT(*std::max_element(lab.rare_waits_.begin(), lab.rare_waits_.end()), 7200s);
}

TEST(OrderSim, FairServesTheRareUserSoonAndCostsTheBigOneLittle) {
  Lab fair{Order::fair, 1}, strict{Order::strict, 1};
  fair.run();
  strict.run();
  auto waits = fair.rare_waits_;
  ASSERT_GE(waits.size() + 1, fair.rare_asked_);
  std::sort(waits.begin(), waits.end());
  EXPECT_LE(waits[waits.size() / 2], 10s);
  EXPECT_LE(waits.back(), 40s);
  EXPECT_GE(static_cast<double>(fair.big_served_), 0.95 * static_cast<double>(strict.big_served_));
  RecordProperty("rare_median_ms", static_cast<int>(waits[waits.size() / 2] / 1ms));
  RecordProperty("rare_longest_ms", static_cast<int>(waits.back() / 1ms));
}

}  // namespace
}  // namespace outpost::tracker
