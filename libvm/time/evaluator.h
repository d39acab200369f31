#pragma once
#include <tvm/ffi/function.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "device/device_api.h"
#include "time/clock.h"
#include "time/timer.h"

namespace outpost::vm {

/// How a time evaluator measures (server-functions.md, The time evaluator).
struct EvaluatorKnobs {
  std::int64_t number = 10;
  std::int64_t repeat = 1;
  std::int64_t min_repeat_ms = 0;
  std::int64_t limit_zero_time_iterations = 100;
  std::int64_t cooldown_interval_ms = 0;
  std::int64_t repeats_to_cooldown = 1;
  std::int64_t cache_flush_bytes = 0;
};

/// The number of calls for the next try after `number` calls took `ms` > 0, too short a time.
std::int64_t raised_number(std::int64_t number, double ms, std::int64_t min_repeat_ms);

/// Measures a function on a device. Keeps the raised number of calls for its next use.
class TimeEvaluator {
 public:
  using MakeTimer = std::function<Timer(DLDevice)>;
  /// @throws ValueError for a cool-down every 0 repeats
  TimeEvaluator(tvm::ffi::Function target, std::optional<tvm::ffi::Function> preproc,
                DLDevice device, const EvaluatorKnobs& knobs, Clock& clock, MakeTimer make_timer);

  /// One call to warm up, then `repeat` measurements: seconds per call, as bytes of doubles.
  std::string run(tvm::ffi::PackedArgs args);

 private:
  double measure_ms(tvm::ffi::PackedArgs args, TimerObj& timer,
                    const std::function<void()>& flush_cache);

  tvm::ffi::Function target_;
  std::optional<tvm::ffi::Function> preproc_;
  DLDevice device_;
  EvaluatorKnobs knobs_;
  Clock* clock_;
  MakeTimer make_timer_;
};

/// runtime.RPCTimeEvaluator, runtime.timer.cpu.
void register_time_functions();

}  // namespace outpost::vm
