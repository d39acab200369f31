#include "time/timer.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/device.h>
#include <tvm/ffi/function.h>

#include <string>
#include <thread>

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

class SteadyClock final : public Clock {
 public:
  std::chrono::nanoseconds now() override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  void sleep(std::chrono::milliseconds duration) override { std::this_thread::sleep_for(duration); }
};

class ClockTimerObj final : public TimerObj {
 public:
  ClockTimerObj(DLDevice device, Clock& clock)
      : device_{device}, api_{&device_api(device.device_type)}, clock_{&clock} {}
  void start() override {
    wait();
    start_ = clock_->now();
  }
  void stop() override {
    wait();
    stop_ = clock_->now();
  }
  std::chrono::nanoseconds elapsed() override { return stop_ - start_; }

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("outpost.ClockTimer", ClockTimerObj, TimerObj);

 private:
  void wait() { api_->synchronize(device_, api_->current_stream(device_)); }
  DLDevice device_;
  DeviceApi* api_;
  Clock* clock_;
  std::chrono::nanoseconds start_{};
  std::chrono::nanoseconds stop_{};
};

}  // namespace

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

Timer make_clock_timer(DLDevice device, Clock& clock) {
  return Timer{ffi::make_object<ClockTimerObj>(device, clock)};
}

Timer make_timer(DLDevice device) {
  const auto name = "runtime.timer." + device_type_name(device.device_type);
  if (const auto make = ffi::Function::GetGlobal(name)) return (*make)(device).cast<Timer>();
  return make_clock_timer(device, steady_clock());
}

}  // namespace outpost::vm
