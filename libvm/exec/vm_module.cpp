#include "exec/vm_module.h"

#include <fmt/ranges.h>
#include <tvm/ffi/cast.h>

#include <climits>

#include "device/tensor.h"
#include "exec/closure.h"
#include "exec/instrument.h"
#include "exec/profile.h"
#include "exec/values.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
using ffi::Any;

const VmModuleObj::MethodEntry VmModuleObj::kMethods[] = {
    {"vm_initialization(type, id, allocator, ...)", &VmModuleObj::vm_initialization},
    {"set_input(function, values...)", &VmModuleObj::set_input},
    {"set_input_with_param_module(function, values..., module)",
     &VmModuleObj::set_input_with_param_module},
    {"invoke_stateful(function)", &VmModuleObj::invoke_stateful},
    {"get_output(function, indices...)", &VmModuleObj::get_output},
    {"get_output_arity(function, indices...)", &VmModuleObj::get_output_arity},
    {"save_function(function, name, include_return, values...)", &VmModuleObj::save_function},
    {"invoke_closure(callee, values...)", &VmModuleObj::invoke_closure},
    {"set_instrument(instrument)", &VmModuleObj::set_instrument},
    {"get_function_arity(function)", &VmModuleObj::get_function_arity},
    {"get_function_param_name(function, index)", &VmModuleObj::get_function_param_name},
    {"profile(function, values...)", &VmModuleObj::profile},
};

VmModuleObj::VmModuleObj(std::shared_ptr<const Program> program, ffi::Array<Any> imports)
    : machine_{std::move(program), imports} {
  imports_ = std::move(imports);
}

ffi::Optional<ffi::Function> VmModuleObj::GetFunction(const ffi::String& name) {
  const std::string_view wanted{name.data(), name.size()};
  for (const auto& m : kMethods) {
    const std::string_view signature{m.signature};
    if (signature.substr(0, signature.find('(')) == wanted) return method(m);
  }
  if (const auto it = saved_.find(wanted); it != saved_.end()) return caller(it->second);
  const auto index = machine_.program().executable().find(wanted);
  if (index < 0) return std::nullopt;
  const auto i = static_cast<std::uint32_t>(index);
  if (machine_.program().functions()[i].kind == FunctionKind::packed) return std::nullopt;
  return caller({i, {}, true});
}

ffi::Function VmModuleObj::method(const MethodEntry& entry) {
  return ffi::Function::FromPacked([self = ffi::GetRef<ffi::Module>(this), this, &entry](
                                       const ffi::AnyView* args, std::int32_t n, Any* out) {
    const Args in{reinterpret_cast<const TVMFFIAny*>(args), n, entry.signature};
    if (entry.body != &VmModuleObj::vm_initialization) machine_.require_initialized();
    (this->*entry.body)(in, out);
  });
}

ffi::Function VmModuleObj::caller(Target target) {
  auto self = ffi::GetRef<ffi::Module>(this);
  if (target.bound.empty() && target.include_return)
    return ffi::Function::FromPacked([self = std::move(self), this, index = target.index](
                                         const ffi::AnyView* args, std::int32_t n, Any* out) {
      machine_.invoke(index, reinterpret_cast<const TVMFFIAny*>(args), n, out);
    });
  return ffi::Function::FromPacked([self = std::move(self), this, t = std::move(target)](
                                       const ffi::AnyView* args, std::int32_t n, Any* out) {
    Any dropped;
    Any* result = t.include_return ? out : &dropped;
    if (n == 0)
      return machine_.invoke(t.index, reinterpret_cast<const TVMFFIAny*>(t.bound.data()),
                             static_cast<std::int32_t>(t.bound.size()), result);
    std::vector<ffi::AnyView> all(args, args + n);
    all.insert(all.end(), t.bound.begin(), t.bound.end());
    machine_.invoke(t.index, reinterpret_cast<const TVMFFIAny*>(all.data()),
                    static_cast<std::int32_t>(all.size()), result);
  });
}

std::uint32_t VmModuleObj::index_of(std::string_view name, const char* kind) const {
  const auto& program = machine_.program();
  const auto index = program.executable().find(name);
  if (index < 0 ||
      program.functions()[static_cast<std::size_t>(index)].kind == FunctionKind::packed)
    raise(kind, fmt::format("Unknown function: {}{}", name, program.suggestion(name)));
  return static_cast<std::uint32_t>(index);
}

Any VmModuleObj::converted(const TVMFFIAny& value) const {
  if (const auto* t = tensor_of(value)) {
    const auto target = machine_.devices().front().device;
    const bool there =
        t->device.device_type == target.device_type && t->device.device_id == target.device_id;
    if (there && value.type_index == kTVMFFITensor) return keep(value);
    auto copy = empty({t->shape, static_cast<std::size_t>(t->ndim)}, t->dtype, target);
    copy_tensor(*t, *copy.GetDLTensorPtr());
    return copy;
  }
  if (const auto* a = array_of(value)) {
    ffi::Array<Any> items;
    items.reserve(a->size);
    for (std::int64_t i = 0; i < a->size; ++i)
      items.push_back(converted(static_cast<const TVMFFIAny*>(a->data)[i]));
    return items;
  }
  return keep(value);
}

std::vector<Any> VmModuleObj::inputs(const Args& args, std::uint32_t function, int first) const {
  const auto& f = machine_.program().functions()[function];
  if (args.size() - first != f.num_args)
    raise("InternalError",
          fmt::format(
              "Function {} has {} parameters{}, but {} values were given", f.name, f.num_args,
              f.param_names.empty() ? "" : fmt::format(" ({})", fmt::join(f.param_names, ", ")),
              args.size() - first));
  std::vector<Any> values;
  for (int i = first; i < args.size(); ++i) values.push_back(converted(args[i]));
  return values;
}

void VmModuleObj::vm_initialization(const Args& args, Any*) {
  if (args.size() == 0 || args.size() % 3 != 0)
    args.fail("InternalError", fmt::format("takes a device type, a device id and an allocator for "
                                           "each device, but {} values were given",
                                           args.size()));
  std::vector<Machine::Device> devices;
  for (int i = 0; i < args.size(); i += 3) {
    const auto type = args.integer(i);
    const auto id = args.integer(i + 1);
    const auto allocator = args.integer(i + 2);
    if (type < INT_MIN || type > INT_MAX || id < INT_MIN || id > INT_MAX)
      args.fail("ValueError", fmt::format("no device has type {} and id {}", type, id));
    if (allocator != 1 && allocator != 2)
      args.fail("InternalError",
                fmt::format("Unknown allocator type: {}; 1 is naive, 2 is pooled", allocator));
    const DLDevice device{static_cast<DLDeviceType>(type), static_cast<std::int32_t>(id)};
    device_api(device.device_type);
    devices.push_back({device, static_cast<AllocatorKind>(allocator)});
  }
  machine_.initialize(devices);
}

void VmModuleObj::set_input(const Args& args, Any*) {
  args.need(1, -1);
  const auto function = index_of(args.text(0), "ValueError");
  inputs_[function] = inputs(args, function, 1);
}

void VmModuleObj::set_input_with_param_module(const Args& args, Any*) {
  args.need(2, -1);
  const auto function = index_of(args.text(0), "ValueError");
  const int last = args.size() - 1;
  const auto module = args.view(last).as<ffi::Module>();
  if (!module) args.wrong_type(last, "ffi.Module");
  const auto get = (*module)->GetFunction("get_params");
  if (!get.has_value())
    args.fail("ValueError",
              fmt::format("the {} module has no function get_params", (*module)->kind()));
  const Any params = get.value()();
  std::vector<TVMFFIAny> values(args.data(), args.data() + last);
  values.push_back(raw(params));
  inputs_[function] = inputs(
      Args{values.data(), args.size(), "set_input_with_param_module(function, values..., module)"},
      function, 1);
}

void VmModuleObj::invoke_stateful(const Args& args, Any*) {
  args.need(1);
  const auto function = index_of(args.text(0), "ValueError");
  const auto it = inputs_.find(function);
  if (it == inputs_.end())
    raise("ValueError", fmt::format("No inputs set for stateful call of {}; use `set_input` first.",
                                    args.text(0)));
  const auto values = it->second;  // the call may set inputs itself
  Any result;
  machine_.invoke(function, reinterpret_cast<const TVMFFIAny*>(values.data()),
                  static_cast<std::int32_t>(values.size()), &result);
  outputs_[function] = std::move(result);
}

const Any& VmModuleObj::output(const Args& args) const {
  args.need(1, -1);
  const auto function = index_of(args.text(0), "ValueError");
  const auto it = outputs_.find(function);
  if (it == outputs_.end())
    raise("ValueError", fmt::format("No output saved for call of {}; use `invoke_stateful` first.",
                                    args.text(0)));
  const Any* value = &it->second;
  for (int i = 1; i < args.size(); ++i) {
    const auto* items = array_of(raw(*value));
    if (items == nullptr)
      raise("ValueError", fmt::format("output of {}: index {} on a value of type {}, which has no "
                                      "items",
                                      args.text(0), args.integer(i), type_key(raw(*value))));
    const auto index = args.integer(i);
    if (index < 0 || index >= items->size)
      raise("IndexError", fmt::format("output of {}: index {} out of bounds, there are {} items",
                                      args.text(0), index, items->size));
    value = static_cast<const Any*>(items->data) + index;
  }
  return *value;
}

void VmModuleObj::get_output(const Args& args, Any* out) {
  const auto& value = output(args);
  if (const auto* items = array_of(raw(value)))
    raise("ValueError", fmt::format("output of {} is a tuple of {} items here; give one more index",
                                    args.text(0), items->size));
  put(out, value);
}

void VmModuleObj::get_output_arity(const Args& args, Any* out) {
  const auto* items = array_of(raw(output(args)));
  put(out, items == nullptr ? std::int64_t{-1} : items->size);
}

void VmModuleObj::save_function(const Args& args, Any*) {
  args.need(3, -1);
  const auto name = args.text(0);
  Target target;
  if (const auto it = saved_.find(name); it != saved_.end())
    target = it->second;
  else
    target.index = index_of(name, "ValueError");
  target.include_return = args.integer(2) != 0;
  std::vector<Any> bound;
  for (int i = 3; i < args.size(); ++i) bound.push_back(converted(args[i]));
  // Bound values stand behind the call's own, so the newest come first.
  target.bound.insert(target.bound.begin(), bound.begin(), bound.end());
  saved_.insert_or_assign(std::string{args.text(1)}, std::move(target));
}

void VmModuleObj::invoke_closure(const Args& args, Any* out) {
  args.need(1, -1);
  const auto* in = reinterpret_cast<const ffi::AnyView*>(args.data());
  if (const auto* closure = as_closure(args[0])) {
    std::vector<TVMFFIAny> all(args.data(), args.data() + args.size());
    all[0] = opaque(&machine_);
    return closure->call.CallPacked(reinterpret_cast<const ffi::AnyView*>(all.data()), args.size(),
                                    out);
  }
  if (args[0].type_index != kTVMFFIFunction)
    args.fail("InternalError", "cannot call a value of type " + type_key(args[0]) +
                                   "; a closure or function can be");
  args.function(0).CallPacked(in + 1, args.size() - 1, out);
}

ffi::Function VmModuleObj::instrument_from(const Args& args) const {
  if (args[0].type_index == kTVMFFIFunction) {
    args.need(1);
    return args.function(0);
  }
  const std::string name{args.text(0)};
  const auto factory = ffi::Function::GetGlobal(name);
  if (!factory) args.fail("ValueError", fmt::format("no global function '{}'", name));
  Any made;
  factory->CallPacked(reinterpret_cast<const ffi::AnyView*>(args.data()) + 1, args.size() - 1,
                      &made);
  const auto f = made.as<ffi::Function>();
  if (!f)
    args.fail("TypeError",
              fmt::format("'{}' must return a function, not {}", name, type_key(raw(made))));
  return *f;
}

void VmModuleObj::set_instrument(const Args& args, Any*) {
  args.need(1, -1);
  std::unique_ptr<CallObserver> next;
  if (args[0].type_index != kTVMFFINone) next = make_instrument(instrument_from(args));
  machine_.set_observer(next.get());
  instrument_ = std::move(next);
}

void VmModuleObj::get_function_arity(const Args& args, Any* out) {
  args.need(1);
  const auto& f = machine_.program().functions()[index_of(args.text(0), "ValueError")];
  put(out, f.num_args);
}

void VmModuleObj::get_function_param_name(const Args& args, Any* out) {
  args.need(2);
  const auto& f = machine_.program().functions()[index_of(args.text(0), "ValueError")];
  const auto index = args.integer(1);
  if (index < 0 || index >= std::ssize(f.param_names))
    raise("ValueError", fmt::format("function {} has {} named parameters, none at {}", f.name,
                                    f.param_names.size(), index));
  put(out, ffi::String{f.param_names[static_cast<std::size_t>(index)]});
}

void VmModuleObj::profile(const Args& args, Any* out) {
  args.need(1, -1);
  const auto function = index_of(args.text(0), "ValueError");
  std::vector<Any> values;
  if (const auto it = inputs_.find(function); it != inputs_.end()) {
    if (args.size() > 1)
      args.fail("ValueError",
                fmt::format("inputs of {} are set already; give none here", args.text(0)));
    values = it->second;
  } else {
    values = inputs(args, function, 1);
  }
  put(out, ffi::String{profile_json(machine_, function, values)});
}

}  // namespace outpost::vm
