#pragma once
#include <chrono>

namespace outpost::vm {

/// Where measurements take their time from; tests put one of their own in its place.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds now() = 0;
  virtual void sleep(std::chrono::milliseconds duration) = 0;
};

/// The machine's monotonic clock.
Clock& steady_clock();

}  // namespace outpost::vm
