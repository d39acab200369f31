// Reader, verifier and interpreter: a verified program may be wrong, but does no harm and ends.
#include <tvm/ffi/error.h>

#include <cstdint>
#include <vector>

#include "exec/machine.h"
#include "exec/values.h"
#include "outpost/vm/builtins.h"

namespace {

constexpr std::uint64_t kMemoryMax = std::uint64_t{16} << 20;
constexpr std::int64_t kArgumentsMax = 4;

/// Builtins that a program can do no harm with; others reach files, output or the process.
bool allowed(const std::string& name) {
  return name.rfind("vm.builtin.", 0) == 0 && name.find("tensor_cache") == std::string::npos &&
         name.find("debug") == std::string::npos && name.find("_create") == std::string::npos;
}

void run(outpost::vm::Machine& machine, std::uint32_t index, std::int64_t count) {
  std::vector<TVMFFIAny> args(static_cast<std::size_t>(count), outpost::vm::kNone);
  for (std::size_t i = 0; i < args.size(); ++i) {
    args[i].type_index = kTVMFFIInt;
    args[i].v_int64 = static_cast<std::int64_t>(i);
  }
  try {
    tvm::ffi::Any result;
    machine.invoke(index, args.data(), static_cast<std::int32_t>(count), &result);
  } catch (const tvm::ffi::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace outpost;
  static const bool once = [] {
    vm::register_vm_builtins();
    vm::MemoryPool::set_limit(kMemoryMax);
    return true;
  }();
  (void)once;
  try {
    const auto program =
        vm::Program::load({reinterpret_cast<const std::byte*>(data), size}, nullptr);
    for (const auto& f : program->functions())
      if (f.kind == vm::FunctionKind::vmtir ||
          (f.kind == vm::FunctionKind::packed && !allowed(f.name)))
        return 0;
    vm::Machine machine{program, {}};
    machine.set_limits({.frames_max = 200,
                        .nested_max = 50,
                        .register_bytes_max = std::uint64_t{4} << 20,
                        .jumps_max = 10'000});
    machine.initialize({{{kDLCPU, 0}, vm::AllocatorKind::pooled}});
    for (std::size_t i = 0; i < program->functions().size(); ++i)
      if (const auto& f = program->functions()[i];
          f.kind == vm::FunctionKind::vm && f.num_args <= kArgumentsMax)
        run(machine, static_cast<std::uint32_t>(i), f.num_args);
  } catch (const tvm::ffi::Error&) {
  }
  return 0;
}
