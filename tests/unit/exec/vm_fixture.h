#pragma once
#include <gtest/gtest.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <vector>

#include "device/tensor.h"
#include "exec/executable_module.h"
#include "exec/vm_module.h"
#include "outpost/vm/builtins.h"
#include "support/program.h"

namespace outpost::vm {

/// Makes VMs of built programs, with their machine at hand.
class VmTest : public testing::Test {
 protected:
  using B = test::ProgramBuilder;
  static void SetUpTestSuite() { register_vm_builtins(); }

  static tvm::ffi::Module load(const B& program) {
    return tvm::ffi::Module{
        tvm::ffi::make_object<ExecutableModuleObj>(Program::load(Bytes{program.bytes()}))};
  }
  static tvm::ffi::Module make(const B& program) {
    auto vm = load(program)->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
    vm->GetFunction("vm_initialization").value()(1, 0, 2);
    return vm;
  }
  static Machine& machine(const tvm::ffi::Module& vm) {
    return static_cast<VmModuleObj*>(const_cast<tvm::ffi::ModuleObj*>(vm.operator->()))->machine();
  }
  template <class... A>
  static tvm::ffi::Any call(const tvm::ffi::Module& vm, const std::string& name, A&&... args) {
    const auto f = const_cast<tvm::ffi::ModuleObj*>(vm.operator->())->GetFunction(name);
    EXPECT_TRUE(f.has_value()) << name;
    return f.value()(std::forward<A>(args)...);
  }
  /// "Kind: message" of the error, or "no error".
  template <class... A>
  static std::string failure(const tvm::ffi::Module& vm, const std::string& name, A&&... args) {
    try {
      call(vm, name, std::forward<A>(args)...);
    } catch (const tvm::ffi::Error& e) {
      return e.kind() + ": " + e.message();
    }
    return "no error";
  }
  static tvm::ffi::Tensor floats(std::vector<float> values) {
    auto t = empty({static_cast<std::int64_t>(values.size())}, {kDLFloat, 32, 1}, {kDLCPU, 0});
    std::copy(values.begin(), values.end(), static_cast<float*>(t.data_ptr()));
    return t;
  }
};

}  // namespace outpost::vm
