#include "exec/profile.h"

#include <tvm/ffi/dtype.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "device/device_api.h"
#include "exec/values.h"

namespace outpost::vm {
namespace {
using Clock = std::chrono::steady_clock;
using nlohmann::json;

struct Row {
  std::string name;
  std::string device;
  std::string shapes;
  double microseconds = 0;
};

const DLTensor* first_tensor(const CallObserver::Call& call) {
  for (std::int32_t i = 0; i < call.size; ++i)
    if (const auto* t = tensor_of(call.args[i])) return t;
  return nullptr;
}

std::string shapes_of(const CallObserver::Call& call) {
  std::string out;
  for (std::int32_t i = 0; i < call.size; ++i) {
    const auto* t = tensor_of(call.args[i]);
    if (t == nullptr) continue;
    if (!out.empty()) out += ", ";
    out += std::string{tvm::ffi::DLDataTypeToString(t->dtype)} + "[";
    for (int k = 0; k < t->ndim; ++k) out += (k == 0 ? "" : ", ") + std::to_string(t->shape[k]);
    out += "]";
  }
  return out;
}

/// Times every call; calls inside a call are part of it and have rows of their own.
class Profiler final : public CallObserver {
 public:
  bool before(const Call& call) override {
    const auto* t = first_tensor(call);
    if (t != nullptr) device_api(t->device.device_type).synchronize(t->device, nullptr);
    begins_.push_back(Clock::now());
    return true;
  }
  void after(const Call& call, const TVMFFIAny&) override {
    const auto* t = first_tensor(call);
    if (t != nullptr) device_api(t->device.device_type).synchronize(t->device, nullptr);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begins_.back();
    begins_.pop_back();
    if (t == nullptr) return;
    const auto device =
        device_type_name(t->device.device_type) + std::to_string(t->device.device_id);
    rows_.push_back({call.name, device, shapes_of(call), took.count()});
    if (begins_.empty()) totals_[device] += took.count();
  }
  json report() const;

 private:
  std::vector<Clock::time_point> begins_;
  std::vector<Row> rows_;
  std::map<std::string, double> totals_;
};

json as_json(const Row& row, double longest) {
  return {{"Name", row.name},
          {"Device", row.device},
          {"Argument Shapes", row.shapes},
          {"Duration (us)", {{"microseconds", row.microseconds}}},
          {"Count", {{"count", 1}}},
          {"Percent", {{"percent", longest > 0 ? 100 * row.microseconds / longest : 0.0}}}};
}

json Profiler::report() const {
  double longest = 0;
  for (const auto& [device, total] : totals_) longest = std::max(longest, total);
  json calls = json::array();
  for (const auto& row : rows_) calls.push_back(as_json(row, longest));
  json devices = json::object();
  for (const auto& [device, total] : totals_)
    devices[device] = as_json({"Total", device, "", total}, longest);
  return {{"calls", std::move(calls)},
          {"device_metrics", std::move(devices)},
          {"configuration", {{"Executor", "VM"}}}};
}

/// Puts the observer in for a while.
class Observed {
 public:
  Observed(Machine& machine, CallObserver& observer)
      : machine_{machine}, before_{machine.observer()} {
    machine_.set_observer(&observer);
  }
  ~Observed() { machine_.set_observer(before_); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  Machine& machine_;
  CallObserver* before_;
};

}  // namespace

std::string profile_json(Machine& machine, std::uint32_t function,
                         const std::vector<tvm::ffi::Any>& args) {
  const auto run = [&] {
    tvm::ffi::Any dropped;
    machine.invoke(function, reinterpret_cast<const TVMFFIAny*>(args.data()),
                   static_cast<std::int32_t>(args.size()), &dropped);
  };
  run();
  Profiler profiler;
  {
    const Observed observed{machine, profiler};
    run();
  }
  return profiler.report().dump();
}

}  // namespace outpost::vm
