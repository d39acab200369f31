#include "time/evaluator.h"

#include <gtest/gtest.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "outpost/vm/runtime.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;
using std::chrono::milliseconds;
constexpr DLDevice kCpu{kDLCPU, 0};

struct FakeClock final : Clock {
  std::chrono::nanoseconds now() override { return time; }
  void sleep(milliseconds duration) override { sleeps.push_back(duration); }
  std::chrono::nanoseconds time{0};
  std::vector<milliseconds> sleeps;
};

/// A target that takes `per_call` of the fake clock, and what was called in which order.
struct Bench {
  FakeClock clock;
  std::chrono::nanoseconds per_call{0};
  std::string calls;

  TimeEvaluator evaluator(const EvaluatorKnobs& knobs, bool with_preproc = false) {
    auto target = ffi::Function::FromPacked([this](ffi::PackedArgs args, ffi::Any*) {
      calls += "f" + std::to_string(args.size());
      clock.time += per_call;
    });
    std::optional<ffi::Function> preproc;
    if (with_preproc)
      preproc = ffi::Function::FromPacked(
          [this](ffi::PackedArgs args, ffi::Any*) { calls += "p" + std::to_string(args.size()); });
    return {target, preproc, kCpu,
            knobs,  clock,   [this](DLDevice device) { return make_clock_timer(device, clock); }};
  }
  std::vector<double> run(TimeEvaluator& evaluator) {
    const std::vector<ffi::AnyView> args{1, 2.0};
    const auto bytes = evaluator.run({args.data(), 2});
    std::vector<double> out(bytes.size() / sizeof(double));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(double));
    return out;
  }
};

TEST(TimeEvaluator, WarmsUpOnceAndMeasuresEachRepeat) {
  Bench bench;
  bench.per_call = milliseconds{3};
  auto evaluator = bench.evaluator({.number = 2, .repeat = 3}, true);
  EXPECT_EQ(bench.run(evaluator), (std::vector<double>{0.003, 0.003, 0.003}));
  EXPECT_EQ(bench.calls, "f2p2f2f2p2f2f2p2f2f2");
}

TEST(TimeEvaluator, NoRepeatsOnlyWarmUp) {
  Bench bench;
  for (const int repeat : {0, -1}) {
    auto evaluator = bench.evaluator({.number = 2, .repeat = repeat});
    EXPECT_TRUE(bench.run(evaluator).empty());
  }
  EXPECT_EQ(bench.calls, "f2f2");
}

TEST(TimeEvaluator, RaisesTheNumberUntilAMeasurementIsLongEnough) {
  Bench bench;
  bench.per_call = milliseconds{1};
  auto evaluator = bench.evaluator({.number = 1, .repeat = 2, .min_repeat_ms = 5}, true);
  EXPECT_EQ(bench.run(evaluator), (std::vector<double>{0.001, 0.001}));
  // One call is too short; 5 / 1 + 1 = 6 calls are enough, and stay for the second repeat.
  EXPECT_EQ(bench.calls, "f2p2f2f2f2f2f2f2f2p2f2f2f2f2f2f2");
  bench.calls.clear();
  bench.run(evaluator);
  EXPECT_EQ(bench.calls, "f2p2f2f2f2f2f2f2p2f2f2f2f2f2f2") << "and for later uses";
}

TEST(TimeEvaluator, AClockThatStandsStillEndsAtTheLimitOfZeroMeasurements) {
  Bench bench;
  auto evaluator = bench.evaluator(
      {.number = 1, .repeat = 2, .min_repeat_ms = 100, .limit_zero_time_iterations = 4});
  EXPECT_EQ(bench.run(evaluator), (std::vector<double>{0, 0}));
  EXPECT_EQ(bench.calls.size() / 2, 1U + 2 * 4);
}

TEST(TimeEvaluator, CoolsDownAfterTheFirstRepeatAndThenEveryFew) {
  Bench bench;
  auto evaluator = bench.evaluator(
      {.number = 1, .repeat = 4, .cooldown_interval_ms = 200, .repeats_to_cooldown = 2});
  EXPECT_EQ(bench.run(evaluator).size(), 4U);
  EXPECT_EQ(bench.clock.sleeps, (std::vector<milliseconds>(2, milliseconds{200})));
}

TEST(TimeEvaluator, RefusesACoolDownEveryZeroRepeats) {
  Bench bench;
  EXPECT_THROW(bench.evaluator({.cooldown_interval_ms = 1, .repeats_to_cooldown = 0}), ffi::Error);
  auto without = bench.evaluator({.number = 1, .repeats_to_cooldown = 0});
  EXPECT_EQ(bench.run(without).size(), 1U);
}

TEST(TimeEvaluator, ZeroCallsTakeInfinitelyLongEach) {
  Bench bench;
  auto target = ffi::Function::FromPacked([](ffi::PackedArgs, ffi::Any*) {});
  EvaluatorKnobs knobs{.number = 0};
  TimeEvaluator evaluator{target, std::nullopt, kCpu, knobs, steady_clock(), make_timer};
  EXPECT_TRUE(std::isinf(bench.run(evaluator).at(0)));
}

TEST(TimeEvaluator, FlushesTheCacheBeforeEachMeasurementButNotInIt) {
  Bench bench;
  auto evaluator = bench.evaluator({.number = 1, .repeat = 2, .cache_flush_bytes = 4097});
  EXPECT_EQ(bench.run(evaluator).size(), 2U);
}

TEST(RaisedNumber, FollowsTheStockRuleWithinBounds) {
  EXPECT_EQ(raised_number(1, 1.0, 100), 101);
  EXPECT_EQ(raised_number(100, 99.0, 100), 161) << "at least the golden ratio";
  EXPECT_EQ(raised_number(0, 0.5, 100), 1);
  EXPECT_EQ(raised_number(-5, 0.5, 100), 1);
  EXPECT_EQ(raised_number(1, 1e-300, 1 << 30), 1'000'000'000'000'000);
}

std::string make_error(std::initializer_list<ffi::AnyView> args) {
  register_runtime();
  const std::vector<ffi::AnyView> list{args};
  ffi::Any out;
  try {
    ffi::Function::GetGlobalRequired("runtime.RPCTimeEvaluator")
        .CallPacked(list.data(), static_cast<int>(list.size()), &out);
    return "no error";
  } catch (const ffi::Error& e) {
    return e.message();
  }
}

TEST(RpcTimeEvaluator, SaysHowManyArgumentsItExpects) {
  EXPECT_NE(make_error({nullptr, "f", 1, 0, 1, 1, 0}).find("Expected 12 but got 7 arguments"),
            std::string::npos);
}

TEST(RpcTimeEvaluator, AnUnknownNameIsAnErrorAtOnce) {
  EXPECT_EQ(make_error({nullptr, "no.such", 1, 0, 1, 1, 0, 100, 0, 1, 0, ""}),
            "Cannot find no.such in the global function");
  EXPECT_EQ(make_error({nullptr, "runtime.NumThreads", 1, 0, 1, 1, 0, 100, 0, 1, 0, "no.pre"}),
            "Cannot find no.pre in the global function");
}

TEST(RpcTimeEvaluator, MeasuresAGlobalFunctionWithItsOwnArguments) {
  register_runtime();
  const auto make = ffi::Function::GetGlobalRequired("runtime.RPCTimeEvaluator");
  const auto f =
      make(nullptr, "runtime.GetDeviceAttr", 1, 0, 3, 2, 0, 100, 0, 1, 0, "").cast<ffi::Function>();
  EXPECT_EQ(f(1, 0, 0).cast<ffi::Bytes>().size(), 16U);
  EXPECT_THROW(f(1, 0), ffi::Error);
  const auto absent = make(nullptr, "runtime.NumThreads", 2, 0, 1, 1, 0, 100, 0, 1, 0, "");
  EXPECT_THROW(absent.cast<ffi::Function>()(), ffi::Error);
}
}  // namespace
}  // namespace outpost::vm
