// Calls through values and by name: vm-builtins.md, section 3.
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "builtin/tables.h"
#include "exec/closure.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Function;

/// Functions that call_py_func finds by name. One session per process, so this is the session's.
std::map<std::string, Function, std::less<>>& registry() {
  static std::map<std::string, Function, std::less<>> functions;
  return functions;
}

const Function& registered(const Args& args, std::string_view name) {
  const auto it = registry().find(name);
  if (it == registry().end())
    args.fail("InternalError", fmt::format("no function '{}' is registered", name));
  return it->second;
}

void call(const Function& f, const AnyView* args, std::size_t n, Any* out) {
  f.CallPacked(args, static_cast<std::int32_t>(n), out);
}

void make_closure(const Args& args, Any* out) {
  args.need(1, -1);
  const auto* closure = as_closure(args[0]);
  if (closure == nullptr) args.wrong_type(0, "relax.vm.Closure");
  std::vector<Any> bound;
  for (int i = 1; i < args.size(); ++i) bound.push_back(keep(args[i]));
  auto target = closure->call;
  put(out, Closure{closure->name,
                   Function::FromPacked([target = std::move(target), bound = std::move(bound)](
                                            const AnyView* in, std::int32_t n, Any* result) {
                     std::vector<AnyView> all(in, in + n);
                     all.insert(all.end(), bound.begin(), bound.end());
                     call(target, all.data(), all.size(), result);
                   })});
}

void invoke_closure(const Args& args, Any* out) {
  args.need(2, -1);
  const auto* in = reinterpret_cast<const AnyView*>(args.data());
  const auto n = static_cast<std::size_t>(args.size());
  if (const auto* closure = as_closure(args[1])) {
    std::vector<AnyView> all;
    all.reserve(n - 1);
    all.push_back(in[0]);
    all.insert(all.end(), in + 2, in + n);
    return call(closure->call, all.data(), all.size(), out);
  }
  if (args[1].type_index != kTVMFFIFunction)
    args.fail(
        args[1].type_index < kTVMFFIStaticObjectBegin ? "TypeError" : "InternalError",
        "cannot call a value of type " + type_key(args[1]) + "; a closure or function can be");
  call(args.function(1), in + 2, n - 2, out);
}

void call_tir_dyn(const Args& args, Any* out) {
  args.need(2, -1);
  const auto f = args.function(0);
  const auto last = args.size() - 1;
  const auto* shape = vm::shape_of(args[last]);
  if (shape == nullptr) args.wrong_type(last, "ffi.Shape");
  const auto* in = reinterpret_cast<const AnyView*>(args.data());
  std::vector<AnyView> all(in + 1, in + last);
  for (std::size_t i = 0; i < shape->size; ++i) all.emplace_back(shape->data[i]);
  call(f, all.data(), all.size(), out);
}

void invoke_debug_func(const Args& args, Any*) {
  args.need(3, -1);
  const std::string name{args.text(1)};
  const auto f = Function::GetGlobal(name);
  if (!f) args.fail("ValueError", fmt::format("no global function '{}'", name));
  const auto* in = reinterpret_cast<const AnyView*>(args.data());
  Any dropped;
  call(*f, in + 2, static_cast<std::size_t>(args.size() - 2), &dropped);
}

void call_py_func(const Args& args, Any* out) {
  args.need(1);
  const auto& pair = args.array(0);
  if (pair.size != 2) args.fail("TypeError", "needs an array of a name and an array of values");
  const auto* items = static_cast<const TVMFFIAny*>(pair.data);
  const auto name = text_of(items[0]);
  const auto* values = array_of(items[1]);
  if (!name || values == nullptr)
    args.fail("TypeError", "needs an array of a name and an array of values");
  const auto f = registered(args, *name);
  call(f, static_cast<const AnyView*>(values->data), static_cast<std::size_t>(values->size), out);
}

void register_py_func(const Args& args, Any*) {
  args.need(2);
  registry().insert_or_assign(std::string{args.text(0)}, args.function(1));
}

void get_py_func(const Args& args, Any* out) {
  args.need(1);
  put(out, registered(args, args.text(0)));
}

void clear_py_func_registry(const Args& args, Any*) {
  args.need(0);
  registry().clear();
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.make_closure(closure, values...)", make_closure>(),
    builtin<"vm.builtin.invoke_closure(vm, callee, values...)", invoke_closure>(),
    builtin<"vm.builtin.call_tir_dyn(function, values..., shape)", call_tir_dyn>(),
    builtin<"vm.builtin.invoke_debug_func(none, name, line, values...)", invoke_debug_func>(),
    builtin<"vm.builtin.call_py_func((name, values))", call_py_func>(),
    builtin<"vm.builtin.register_py_func(name, function)", register_py_func>(),
    builtin<"vm.builtin.get_py_func(name)", get_py_func>(),
    builtin<"vm.builtin.clear_py_func_registry()", clear_py_func_registry>(),
};

}  // namespace

std::span<const Builtin> call_builtins() {
  return kTable;
}
}  // namespace outpost::vm
