#include "time/evaluator.h"

#include <tvm/ffi/device.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/optional.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "device/tensor.h"
#include "register.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

/// Two arrays on the device; copying one onto the other pushes everything else out of its caches.
std::function<void()> make_flush(DLDevice device, std::int64_t bytes) {
  if (bytes <= 0) return {};
  const DLDataType byte{kDLUInt, 8, 1};
  auto from = empty({bytes}, byte, device);
  auto to = empty({bytes}, byte, device);
  return [from, to, device] {
    copy_tensor(*from.GetDLTensorPtr(), *to.GetDLTensorPtr());
    device_api(device.device_type).synchronize(device, nullptr);
  };
}

ffi::Function find_target(const ffi::Optional<ffi::Module>& module, const std::string& name) {
  if (!module.has_value()) {
    if (auto f = ffi::Function::GetGlobal(name)) return *std::move(f);
    TVM_FFI_THROW(InternalError) << "Cannot find " << name << " in the global function";
  }
  if (auto f = (*module)->GetFunction(name, true); f.has_value()) return *std::move(f);
  TVM_FFI_THROW(InternalError) << "Cannot find " << name << " in the module of kind "
                               << (*module)->kind();
}

ffi::Function make_evaluator(const ffi::Optional<ffi::Module>& module, const std::string& name,
                             int device_type, int device_id, std::int64_t number,
                             std::int64_t repeat, std::int64_t min_repeat_ms,
                             std::int64_t limit_zero_time_iterations,
                             std::int64_t cooldown_interval_ms, std::int64_t repeats_to_cooldown,
                             std::int64_t cache_flush_bytes, const std::string& preproc_name) {
  auto target = find_target(module, name);
  std::optional<ffi::Function> preproc;
  if (!preproc_name.empty()) preproc = find_target(std::nullopt, preproc_name);
  const EvaluatorKnobs knobs{number,
                             repeat,
                             min_repeat_ms,
                             limit_zero_time_iterations,
                             cooldown_interval_ms,
                             repeats_to_cooldown,
                             cache_flush_bytes};
  const DLDevice device{static_cast<DLDeviceType>(device_type), device_id};
  // Shared, for a packed function must be copyable; the raised number belongs to all copies.
  auto evaluator = std::make_shared<TimeEvaluator>(std::move(target), std::move(preproc), device,
                                                   knobs, steady_clock(), make_timer);
  return ffi::Function::FromPacked([evaluator](ffi::PackedArgs args, ffi::Any* result) {
    *result = ffi::Bytes{evaluator->run(args)};
  });
}

}  // namespace

std::int64_t raised_number(std::int64_t number, double ms, std::int64_t min_repeat_ms) {
  constexpr double kMost = 1e15;  // more calls than anyone waits for, and still exact
  const auto calls = static_cast<double>(number);
  const double wanted =
      std::max(static_cast<double>(min_repeat_ms) / (ms / calls) + 1, calls * 1.618);
  return static_cast<std::int64_t>(std::clamp(wanted, 1.0, kMost));
}

TimeEvaluator::TimeEvaluator(ffi::Function target, std::optional<ffi::Function> preproc,
                             DLDevice device, const EvaluatorKnobs& knobs, Clock& clock,
                             MakeTimer make_timer)
    : target_{std::move(target)},
      preproc_{std::move(preproc)},
      device_{device},
      knobs_{knobs},
      clock_{&clock},
      make_timer_{std::move(make_timer)} {
  if (knobs.cooldown_interval_ms > 0 && knobs.repeats_to_cooldown == 0)
    TVM_FFI_THROW(ValueError) << "cool-down of " << knobs.cooldown_interval_ms
                              << " ms every 0 repeats: repeats_to_cooldown must not be 0";
}

double TimeEvaluator::measure_ms(ffi::PackedArgs args, TimerObj& timer,
                                 const std::function<void()>& flush_cache) {
  if (flush_cache) flush_cache();
  ffi::Any result;
  timer.start();
  for (std::int64_t i = 0; i < knobs_.number; ++i) {
    target_.CallPacked(args, &result);
    result.reset();
  }
  timer.stop();
  return static_cast<double>(timer.elapsed().count()) / 1e6;
}

std::string TimeEvaluator::run(ffi::PackedArgs args) {
  auto& api = device_api(device_.device_type);
  ffi::Any dropped;
  target_.CallPacked(args, &dropped);
  dropped.reset();
  const auto flush_cache = make_flush(device_, knobs_.cache_flush_bytes);
  api.synchronize(device_, nullptr);
  const auto timer = make_timer_(device_);
  std::vector<std::byte> seconds;
  ByteWriter out{seconds};
  for (std::int64_t i = 0; i < knobs_.repeat; ++i) {
    if (preproc_) {
      preproc_->CallPacked(args, &dropped);
      dropped.reset();
    }
    double ms = measure_ms(args, *timer.get(), flush_cache);
    std::int64_t zeros = ms == 0 ? 1 : 0;
    while (ms < static_cast<double>(knobs_.min_repeat_ms) &&
           zeros < knobs_.limit_zero_time_iterations) {
      if (ms > 0) knobs_.number = raised_number(knobs_.number, ms, knobs_.min_repeat_ms);
      ms = measure_ms(args, *timer.get(), flush_cache);
      if (ms == 0) ++zeros;
    }
    out.le(ms / 1e3 / static_cast<double>(knobs_.number));
    if (knobs_.cooldown_interval_ms > 0 && i % knobs_.repeats_to_cooldown == 0)
      clock_->sleep(std::chrono::milliseconds{knobs_.cooldown_interval_ms});
  }
  return std::string{as_text(seconds)};
}

void register_time_functions() {
  add_typed("runtime.RPCTimeEvaluator", make_evaluator);
  add_typed("runtime.timer.cpu",
            [](DLDevice device) { return make_clock_timer(device, steady_clock()); });
}

}  // namespace outpost::vm
