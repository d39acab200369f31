#pragma once
#include <tvm/ffi/extra/module.h>

#include <memory>

#include "exec/program.h"

namespace outpost::vm {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"  // tvm-ffi destroys objects by their type

/// A loaded executable (kind `relax.VMExecutable`): can be asked about its program and makes VMs.
class ExecutableModuleObj final : public tvm::ffi::ModuleObj {
 public:
  explicit ExecutableModuleObj(std::shared_ptr<const Program> program)
      : program_{std::move(program)} {}

  const char* kind() const final { return "relax.VMExecutable"; }
  int GetPropertyMask() const final {
    return tvm::ffi::Module::kBinarySerializable | tvm::ffi::Module::kRunnable;
  }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) final;
  tvm::ffi::Bytes SaveToBytes() const final;
  void WriteToFile(const tvm::ffi::String& path, const tvm::ffi::String& format) const final;

  const std::shared_ptr<const Program>& program() const { return program_; }
  /// A new VM of this program, without devices yet.
  tvm::ffi::Module make_vm() const;

 private:
  std::shared_ptr<const Program> program_;
};

#pragma GCC diagnostic pop

/// ffi.Module.load_from_bytes / load_from_file for `relax.VMExecutable`, and
/// relax.ExecutableLoadFromFile.
void register_executable_loaders();

}  // namespace outpost::vm
