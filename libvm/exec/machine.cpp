#include "exec/machine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "device/tensor.h"
#include "exec/closure.h"
#include "exec/values.h"

namespace outpost::vm {
namespace {

/// The machines that exist: a `ctx` may come from anywhere.
struct Living {
  std::mutex mutex;
  std::vector<const void*> machines;
  std::atomic<const void*> latest{nullptr};
};
Living& living() {
  static Living l;
  return l;
}

/// A VM or VMTIR function as a closure calls it: the machine, then the arguments.
struct ClosureBody {
  std::shared_ptr<const Program> program;
  const void* owner;  ///< the only machine that may run it; null: any of the program
  std::uint32_t index;
  void operator()(const tvm::ffi::AnyView* args, std::int32_t n, tvm::ffi::Any* out) const {
    if (n < 1) raise("InternalError", "a closure is called with the VM as its first argument");
    const auto* in = reinterpret_cast<const TVMFFIAny*>(args);
    auto& machine = Machine::from(in[0]);
    if (&machine.program() != program.get() || (owner != nullptr && owner != &machine))
      raise("InternalError", fmt::format("the closure of '{}' belongs to another VM",
                                         program->functions()[index].name));
    machine.invoke(index, in + 1, n - 1, out);
  }
};

}  // namespace

// Braces around an Array would make a list of one.
Machine::Machine(std::shared_ptr<const Program> program, tvm::ffi::Array<tvm::ffi::Any> imports)
    : program_{std::move(program)}, imports_(std::move(imports)) {
  const std::lock_guard lock{living().mutex};
  living().machines.push_back(this);
}

Machine::~Machine() {
  const std::lock_guard lock{living().mutex};
  std::erase(living().machines, this);
  living().latest = nullptr;
}

Machine& Machine::from(const TVMFFIAny& ctx) {
  if (ctx.type_index != kTVMFFIOpaquePtr)
    raise("TypeError", "the VM must be an opaque pointer, not " + type_key(ctx));
  if (living().latest.load(std::memory_order_relaxed) != ctx.v_ptr) {
    const std::lock_guard lock{living().mutex};
    const auto& all = living().machines;
    if (std::find(all.begin(), all.end(), ctx.v_ptr) == all.end())
      raise("ValueError", "the pointer given as the VM is none that exists");
    living().latest = ctx.v_ptr;
  }
  auto& machine = *static_cast<Machine*>(ctx.v_ptr);
  machine.require_initialized();
  return machine;
}

void Machine::require_initialized() const {
  if (!initialized())
    raise("RuntimeError", "the VM has no devices yet; call vm_initialization first");
}

void Machine::initialize(const std::vector<Device>& devices) {
  if (initialized()) raise("RuntimeError", "vm_initialization was called before");
  if (devices.empty()) raise("ValueError", "vm_initialization needs at least one device");
  try {
    for (const auto& d : devices) pools_.emplace_back(MemoryPool::get(d.device, d.allocator));
    devices_ = devices;
    place_constants();
    find_functions();
    link();
  } catch (...) {
    devices_.clear();
    pools_.clear();
    constants_.clear();
    functions_.clear();
    throw;
  }
}

void Machine::place_constants() {
  const auto target = devices_.front().device;
  constants_.reserve(program_->constants().size());
  for (std::size_t i = 0; i < program_->constants().size(); ++i) {
    const auto& value = program_->constants()[i];
    const auto* t = tensor_of(raw(value));
    if (t == nullptr ||
        (target.device_type == t->device.device_type && target.device_id == t->device.device_id)) {
      constants_.push_back(value);
      continue;
    }
    auto copy = empty({t->shape, static_cast<std::size_t>(t->ndim)}, t->dtype, target,
                      program_->scope_of(i));
    copy_tensor(*t, *copy.GetDLTensorPtr());
    constants_.emplace_back(std::move(copy));
  }
  auto& api = device_api(target.device_type);
  api.synchronize(target, nullptr);
}

std::optional<tvm::ffi::Function> Machine::find_packed(const std::string& name) const {
  for (const auto& import : imports_) {
    auto found = import.cast<tvm::ffi::Module>()->GetFunction(name, true);
    if (found.has_value()) return found.value();
  }
  return tvm::ffi::Function::GetGlobal(name);
}

void Machine::find_functions() {
  const auto& table = program_->functions();
  std::vector<std::string> missing;
  compiled_.assign(table.size(), tvm::ffi::Function{nullptr});
  functions_.reserve(table.size());
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    const auto& f = table[i];
    const bool bytecode = f.kind == FunctionKind::vm;
    const auto found =
        bytecode ? std::nullopt
                 : find_packed(f.kind == FunctionKind::vmtir ? "__vmtir__" + f.name : f.name);
    if (!bytecode && !found) missing.push_back("'" + f.name + "'");
    if (f.kind == FunctionKind::packed) {
      functions_.emplace_back(found ? tvm::ffi::Any{*found} : tvm::ffi::Any{});
      continue;
    }
    if (found) compiled_[i] = *found;
    functions_.emplace_back(Closure{f.name, tvm::ffi::Function::FromPacked(ClosureBody{
                                                program_, bytecode ? nullptr : this, i})});
  }
  if (!missing.empty())
    raise("InternalError", fmt::format("the executable needs {}, found neither in the kernel "
                                       "library nor in the registry of this process",
                                       fmt::join(missing, ", ")));
}

void Machine::link() {
  const auto& e = program_->executable();
  const auto& code = e.code();
  arguments_.assign(e.operands().size(), kNone);
  args_max_.assign(program_->functions().size(), 0);
  steps_.resize(code.size());
  for (std::size_t pc = 0; pc < code.size(); ++pc) {
    const auto& in = code[pc];
    auto& step = steps_[pc];
    step.op = in.op;
    step.reg = in.reg;
    step.target = in.target;
    if (in.op != Opcode::call) continue;
    step.function = in.function;
    step.size = static_cast<std::int32_t>(in.operand_count);
    step.direct = program_->functions()[in.function].kind != FunctionKind::packed;
    if (!step.direct) {
      step.callee = raw(functions_[in.function]).v_obj;
      step.call = TVMFFIFunctionGetCellPtr(step.callee)->safe_call;
    }
    step.args = arguments_.data() + in.operands;
    step.patches = static_cast<std::uint32_t>(patches_.size());
    for (std::uint32_t k = 0; k < in.operand_count; ++k) {
      const auto& o = e.operands()[in.operands + k];
      auto& slot = arguments_[in.operands + k];
      const auto index = static_cast<std::size_t>(o.value);
      switch (o.kind) {
        case Operand::Kind::reg:
          patches_.push_back({k, static_cast<std::uint32_t>(o.value)});
          break;
        case Operand::Kind::immediate:
          slot.type_index = kTVMFFIInt;
          slot.v_int64 = o.value;
          break;
        case Operand::Kind::constant:
          slot = raw(constants_[index]);
          break;
        case Operand::Kind::function:
          slot = raw(functions_[index]);
          break;
        case Operand::Kind::none:
          break;
        case Operand::Kind::vm:
          slot = opaque(this);
          break;
      }
    }
    step.patch_count = static_cast<std::uint32_t>(patches_.size()) - step.patches;
  }
  for (std::size_t i = 0; i < program_->functions().size(); ++i) {
    const auto& f = program_->functions()[i];
    if (f.kind != FunctionKind::vm) continue;
    for (auto pc = f.start; pc < f.end; ++pc)
      args_max_[i] = std::max(args_max_[i], code[static_cast<std::size_t>(pc)].operand_count);
  }
}

void Machine::wrong_count(std::uint32_t function, std::int32_t n) const {
  const auto& f = program_->functions()[function];
  raise("InternalError",
        fmt::format(
            "Invoking function {} expects {} arguments{}, but {} arguments were provided.", f.name,
            f.num_args,
            f.param_names.empty() ? "" : fmt::format(" ({})", fmt::join(f.param_names, ", ")), n));
}

}  // namespace outpost::vm
