#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <outpost/rpc/export.h>
#include <outpost/rpc/types.h>
#include <outpost/rpc/value.h>

namespace outpost::client {

/// How a function is measured on the server. It is called once to warm up; then `repeat` times
/// `number` calls are timed together.
struct EvaluatorOptions {
  Device device;                   ///< synchronised before and after each measurement
  std::int64_t number = 10;        ///< calls in one measurement
  std::int64_t repeat = 1;         ///< measurements
  std::int64_t min_repeat_ms = 0;  ///< raises `number` until one measurement takes this long
  std::int64_t limit_zero_time_iterations = 100;  ///< measurements of zero time before giving up
  std::int64_t cooldown_interval_ms = 0;          ///< pause between measurements
  std::int64_t repeats_to_cooldown = 1;           ///< measurements between two pauses
  std::int64_t cache_flush_bytes = 0;             ///< memory that is copied before each measurement
  std::string preproc;  ///< function called before each measurement, for example
                        ///< "cache_flush_cpu_non_first_arg"
};

/// Seconds per call, one for each repeat.
struct OUTPOST_CLIENT_API TimingResult {
  std::vector<double> seconds;
  // Of no results: 0.
  double mean() const;
  double median() const;
  double min() const;
  double max() const;
  double deviation() const;  ///< of the whole population
};

/// A measurement that stands ready on the server. The raised number of one use stays for the next.
class OUTPOST_CLIENT_API TimeEvaluator {
 public:
  TimeEvaluator() = default;
  /// Measures with these arguments of the function.
  template <class... Args>
  TimingResult operator()(const Args&... args) const {
    if constexpr (sizeof...(Args) == 0) {
      return measure({});
    } else {
      const Argument list[] = {Argument{args}...};
      return measure(list);
    }
  }
  TimingResult measure(std::span<const Argument> args) const;

 private:
  friend detail::Access;
  Function function_;
};

}  // namespace outpost::client
