// Weights by name: vm-builtins.md, section 4. One session per process, so the map is the session's.
#include <tvm/ffi/cast.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/string.h>

#include <fmt/format.h>
#include <map>
#include <string>
#include <vector>

#include "builtin/tables.h"
#include "builtin/weights_folder.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;
using ffi::Any;
using ffi::Array;
using ffi::Tensor;

std::map<std::string, Tensor, std::less<>>& weights() {
  static std::map<std::string, Tensor, std::less<>> map;
  return map;
}

const Tensor* find(std::string_view name) {
  const auto it = weights().find(name);
  return it == weights().end() ? nullptr : &it->second;
}

void update(const Args& args, Any*) {
  args.need(2, 3);
  const auto name = args.text(0);
  const bool override = args.size() == 3 && args.integer(2) != 0;
  if (!override && find(name) != nullptr)
    args.fail("InternalError",
              fmt::format("'{}' is in the cache already; override it by a third argument", name));
  weights().insert_or_assign(std::string{name}, args.owned_tensor(1));
}

void get(const Args& args, Any* out) {
  args.need(1);
  if (const auto* t = find(args.text(0))) put(out, *t);
}

void remove(const Args& args, Any*) {
  args.need(1);
  if (const auto it = weights().find(args.text(0)); it != weights().end()) weights().erase(it);
}

void clear(const Args& args, Any*) {
  args.need(0);
  weights().clear();
}

void load(const Args& args, Any*) {
  args.need(3);
  const DLDevice device{static_cast<DLDeviceType>(args.integer(1)),
                        static_cast<std::int32_t>(args.integer(2))};
  for (auto& [name, tensor] : load_weights_folder(std::string{args.text(0)}, device))
    weights().insert_or_assign(name, std::move(tensor));
}

Array<Any> by_prefix(const Args& args) {
  args.need(2);
  const auto prefix = args.text(0);
  const auto n = args.integer(1);
  Array<Any> out;
  for (std::int64_t i = 0; n < 0 || i < n; ++i) {
    const auto name = fmt::format("{}_{}", prefix, i);
    const auto* t = find(name);
    if (t == nullptr) {
      if (n == -1) break;
      args.fail("InternalError", fmt::format("'{}' is not in the cache", name));
    }
    out.push_back(*t);
  }
  return out;
}

Any named(const Args& args, const TVMFFIAny& name, std::int64_t position) {
  const auto text = text_of(name);
  if (!text)
    args.fail("ValueError",
              fmt::format("expected a name, but got {} at {}", type_key(name), position));
  const auto* t = find(*text);
  if (t == nullptr) args.fail("ValueError", fmt::format("'{}' is not in the cache", *text));
  return *t;
}

Array<Any> by_names(const Args& args) {
  args.need(1);
  const auto& names = args.array(0);
  Array<Any> out;
  for (std::int64_t i = 0; i < names.size; ++i)
    out.push_back(named(args, static_cast<const TVMFFIAny*>(names.data)[i], i));
  return out;
}

void param_array(const Args& args, Any* out) {
  put(out, by_prefix(args));
}
void param_array_by_name(const Args& args, Any* out) {
  put(out, by_names(args));
}
void param_array_by_name_unpacked(const Args& args, Any* out) {
  Array<Any> params;
  for (int i = 0; i < args.size(); ++i) params.push_back(named(args, args[i], i));
  put(out, params);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"  // tvm-ffi destroys objects by their type

/// Gives parameters to set_input_with_param_module.
class ParamModuleObj final : public ffi::ModuleObj {
 public:
  explicit ParamModuleObj(Array<Any> params) : params_(std::move(params)) {}
  const char* kind() const final { return "param_module"; }
  int GetPropertyMask() const final { return ffi::Module::kRunnable; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (name != "get_params") return std::nullopt;
    return ffi::Function::FromTyped([params = params_]() { return params; });
  }

 private:
  Array<Any> params_;
};

#pragma GCC diagnostic pop

void param_module(const Args& args, Any* out) {
  put(out, ffi::Module{ffi::make_object<ParamModuleObj>(by_prefix(args))});
}
void param_module_by_name(const Args& args, Any* out) {
  put(out, ffi::Module{ffi::make_object<ParamModuleObj>(by_names(args))});
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.tensor_cache.update(name, tensor[, override])", update>(),
    builtin<"vm.builtin.tensor_cache.get(name)", get>(),
    builtin<"vm.builtin.tensor_cache.remove(name)", remove>(),
    builtin<"vm.builtin.tensor_cache.clear()", clear>(),
    builtin<"vm.builtin.tensor_cache.load(folder, type, id)", load>(),
    builtin<"vm.builtin.param_array_from_cache(prefix, n)", param_array>(),
    builtin<"vm.builtin.param_array_from_cache_by_name(names)", param_array_by_name>(),
    builtin<"vm.builtin.param_array_from_cache_by_name_unpacked(names...)",
            param_array_by_name_unpacked>(),
    builtin<"vm.builtin.param_module_from_cache(prefix, n)", param_module>(),
    builtin<"vm.builtin.param_module_from_cache_by_name(names)", param_module_by_name>(),
};

}  // namespace

std::span<const Builtin> weights_builtins() {
  return kTable;
}
}  // namespace outpost::vm
