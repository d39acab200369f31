#pragma once
#include <tvm/ffi/memory.h>
#include <tvm/ffi/object.h>

#include <chrono>
#include <functional>

#include "device/device_api.h"
#include "time/clock.h"

namespace outpost::vm {

/// Measures what a device does between start and stop. Plug-ins register a maker of theirs as the
/// global function `runtime.timer.<device>` (device) -> timer; it then counts device time only.
class TimerObj : public tvm::ffi::Object {
 public:
  virtual ~TimerObj() = default;
  virtual void start() = 0;
  virtual void stop() = 0;
  /// Waits until the device has done it all.
  virtual std::chrono::nanoseconds elapsed() = 0;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO("outpost.Timer", TimerObj, tvm::ffi::Object);
};

class Timer : public tvm::ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Timer, tvm::ffi::ObjectRef, TimerObj);
};

/// Host time, with the device waited for at both ends.
Timer make_clock_timer(DLDevice device, Clock& clock);

/// The device's own timer where one is registered, else the clock's.
Timer make_timer(DLDevice device);

}  // namespace outpost::vm
