#pragma once
#include <tvm/ffi/extra/module.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/machine.h"

namespace outpost::vm {

class Args;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"  // tvm-ffi destroys objects by their type

/// What a client holds as a VM (kind `relax.VirtualMachine`): the machine, values set and functions
/// saved by name.
class VmModuleObj final : public tvm::ffi::ModuleObj {
 public:
  VmModuleObj(std::shared_ptr<const Program> program, tvm::ffi::Array<tvm::ffi::Any> imports);

  const char* kind() const final { return "relax.VirtualMachine"; }
  int GetPropertyMask() const final { return tvm::ffi::Module::kRunnable; }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) final;

  Machine& machine() { return machine_; }

 private:
  using Method = void (VmModuleObj::*)(const Args&, tvm::ffi::Any*);
  struct MethodEntry {
    const char* signature;
    Method body;
  };
  static const MethodEntry kMethods[];

  /// A function by its saved name or table name, with the values bound to it.
  struct Target {
    std::uint32_t index = 0;
    std::vector<tvm::ffi::Any> bound;
    bool include_return = true;
  };

  tvm::ffi::Function method(const MethodEntry& entry);
  tvm::ffi::Function caller(Target target);
  /// Table index of a VM or VMTIR function. @throws `kind` with suggestions
  std::uint32_t index_of(std::string_view name, const char* kind) const;
  /// As set_input keeps them: on device 0, views copied.
  tvm::ffi::Any converted(const TVMFFIAny& value) const;
  std::vector<tvm::ffi::Any> inputs(const Args& args, std::uint32_t function, int first) const;
  const tvm::ffi::Any& output(const Args& args) const;
  tvm::ffi::Function instrument_from(const Args& args) const;

  void vm_initialization(const Args& args, tvm::ffi::Any* out);
  void set_input(const Args& args, tvm::ffi::Any* out);
  void set_input_with_param_module(const Args& args, tvm::ffi::Any* out);
  void invoke_stateful(const Args& args, tvm::ffi::Any* out);
  void get_output(const Args& args, tvm::ffi::Any* out);
  void get_output_arity(const Args& args, tvm::ffi::Any* out);
  void save_function(const Args& args, tvm::ffi::Any* out);
  void invoke_closure(const Args& args, tvm::ffi::Any* out);
  void set_instrument(const Args& args, tvm::ffi::Any* out);
  void get_function_arity(const Args& args, tvm::ffi::Any* out);
  void get_function_param_name(const Args& args, tvm::ffi::Any* out);
  void profile(const Args& args, tvm::ffi::Any* out);

  Machine machine_;
  std::map<std::uint32_t, std::vector<tvm::ffi::Any>> inputs_;
  std::map<std::uint32_t, tvm::ffi::Any> outputs_;
  std::map<std::string, Target, std::less<>> saved_;
  std::unique_ptr<CallObserver> instrument_;
};

#pragma GCC diagnostic pop

}  // namespace outpost::vm
