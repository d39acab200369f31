#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/machine.h"
#include "exec/values.h"

namespace outpost::vm {

/// One call into the machine from native code: claims the machine for the thread, and gives back
/// the frames of the call however it ends.
class Machine::Entry {
 public:
  explicit Entry(Machine& m) : m_{m}, frames_{m.frames_.size()} {
    const auto me = std::this_thread::get_id();
    if (m_.user_.load(std::memory_order_relaxed) != me) {
      std::thread::id nobody{};
      if (!m_.user_.compare_exchange_strong(nobody, me, std::memory_order_acquire))
        raise("RuntimeError", "this VM is in use by another thread; make one for each thread");
      m_.jumps_ = 0;
    }
    if (++m_.nested_ > m_.limits_.nested_max) {
      leave();
      raise("RuntimeError", fmt::format("more than {} calls into the VM inside each other "
                                        "(nested_max)",
                                        m_.limits_.nested_max));
    }
  }
  ~Entry() {
    while (m_.frames_.size() > frames_) m_.pop();
    leave();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  void leave() {
    if (--m_.nested_ == 0) m_.user_.store({}, std::memory_order_release);
  }
  Machine& m_;
  std::size_t frames_;
};

void Machine::invoke(std::uint32_t index, const TVMFFIAny* args, std::int32_t n,
                     tvm::ffi::Any* out) {
  require_initialized();
  const Entry entry{*this};
  push(index, args, n);
  auto* result = reinterpret_cast<TVMFFIAny*>(out);
  if (program_->functions()[index].kind == FunctionKind::vmtir)
    call_compiled(index, result);
  else if (observer_ != nullptr)
    run_steps<true>(frames_.size() - 1, result);
  else
    run_steps<false>(frames_.size() - 1, result);
}

void Machine::push(std::uint32_t function, const TVMFFIAny* args, std::int32_t n) {
  const auto& f = program_->functions()[function];
  if (n != f.num_args) wrong_count(function, n);
  const auto registers = static_cast<std::size_t>(f.registers);
  const auto slots = registers + args_max_[function];
  if (frames_.size() >= limits_.frames_max)
    raise("RuntimeError", fmt::format("calling '{}': more than {} calls inside each other "
                                      "(frames_max)",
                                      f.name, limits_.frames_max));
  if ((arena_.slots() + slots) * sizeof(TVMFFIAny) > limits_.register_bytes_max)
    raise("RuntimeError", fmt::format("calling '{}': the registers of all calls need more than {} "
                                      "bytes (register_bytes_max)",
                                      f.name, limits_.register_bytes_max));
  const auto mark = arena_.mark();
  auto* slot = arena_.take(slots);
  frames_.push_back(
      {mark, slot, slot + registers, nullptr, static_cast<std::uint32_t>(registers), function});
  const auto count = static_cast<std::size_t>(n);
  std::fill(slot + count, slot + registers, kNone);
  for (std::size_t i = 0; i < count; ++i) {
    slot[i] = kNone;  // so that an error on the way leaves nothing half made
    slot[i] = owned(args[i]);
  }
}

void Machine::pop() noexcept {
  const auto& f = frames_.back();
  for (std::uint32_t i = 0; i < f.register_count; ++i) release(f.registers[i]);
  arena_.rewind(f.mark);
  frames_.pop_back();
}

void Machine::call_compiled(std::uint32_t function, TVMFFIAny* out) {
  auto* registers = frames_.back().registers;
  const TVMFFIAny args[] = {opaque(this), opaque(registers), opaque(constants_.data()),
                            opaque(functions_.data())};
  TVMFFIAny dropped = kNone;
  auto* callee = const_cast<tvm::ffi::FunctionObj*>(compiled_[function].get());
  if (TVMFFIFunctionGetCellPtr(callee)->safe_call(callee, args, 4, &dropped) != 0)
    throw tvm::ffi::detail::MoveFromSafeCallRaised();
  release(dropped);
  auto& result = registers[program_->functions()[function].num_args];
  *out = std::exchange(result, kNone);
}

template <bool kObserved>
void Machine::call_native(const Step& step, const TVMFFIAny* args, TVMFFIAny* result) {
  if constexpr (kObserved) {
    const CallObserver::Call call{raw(functions_[step.function]),
                                  program_->functions()[step.function].name, args, step.size};
    if (!observer_->before(call)) return;
    if (step.direct)
      invoke(step.function, args, step.size, reinterpret_cast<tvm::ffi::Any*>(result));
    else if (step.call(step.callee, args, step.size, result) != 0)
      throw tvm::ffi::detail::MoveFromSafeCallRaised();
    if (observer_ != nullptr) observer_->after(call, *result);
  } else {
    if (step.call(step.callee, args, step.size, result) != 0)
      throw tvm::ffi::detail::MoveFromSafeCallRaised();
  }
}

const TVMFFIAny* Machine::arguments(const Step& step, const TVMFFIAny* registers,
                                    TVMFFIAny* room) const {
  if (step.patch_count == 0) return step.args;
  if (step.patch_count != static_cast<std::uint32_t>(step.size))
    std::memcpy(room, step.args, static_cast<std::size_t>(step.size) * sizeof(TVMFFIAny));
  const Patch* p = patches_.data() + step.patches;
  for (const Patch* const end = p + step.patch_count; p != end; ++p)
    room[p->position] = registers[p->reg];
  return room;
}

void Machine::count_jump() {
  if (limits_.jumps_max != 0 && ++jumps_ > limits_.jumps_max)
    raise("RuntimeError",
          fmt::format("more than {} jumps and calls (jumps_max)", limits_.jumps_max));
}

template <bool kObserved>
void Machine::run_steps(std::size_t base, TVMFFIAny* out) {
  const Step* const code = steps_.data();
  const Step* step = code + program_->functions()[frames_.back().function].start;
  TVMFFIAny* registers = frames_.back().registers;
  TVMFFIAny* room = frames_.back().args;
  for (;;) {
    switch (step->op) {
      case Opcode::call: {
        const TVMFFIAny* args = arguments(*step, registers, room);
        if (!kObserved && step->direct) {
          count_jump();
          frames_.back().step = step;
          push(step->function, args, step->size);
          registers = frames_.back().registers;
          room = frames_.back().args;
          if (compiled_[step->function] == nullptr) {
            step = code + program_->functions()[step->function].start;
            continue;
          }
          TVMFFIAny result = kNone;
          call_compiled(step->function, &result);
          pop();
          registers = frames_.back().registers;
          room = frames_.back().args;
          store(registers, *step, result);
          ++step;
          continue;
        }
        TVMFFIAny result = kNone;
        call_native<kObserved>(*step, args, &result);
        store(registers, *step, result);
        ++step;
        continue;
      }
      case Opcode::ret: {
        TVMFFIAny result = kNone;
        if (step->reg != Instruction::kNoRegister)
          result = std::exchange(registers[step->reg], kNone);
        pop();
        if (frames_.size() == base) {
          *out = result;
          return;
        }
        registers = frames_.back().registers;
        room = frames_.back().args;
        step = frames_.back().step;
        store(registers, *step, result);
        ++step;
        continue;
      }
      case Opcode::go:
        if (code + step->target <= step) count_jump();
        step = code + step->target;
        continue;
      case Opcode::branch: {
        const auto& condition = registers[step->reg];
        if (condition.type_index != kTVMFFIInt && condition.type_index != kTVMFFIBool)
          raise("TypeError", fmt::format("function '{}': a condition must be int or bool, not {}",
                                         program_->functions()[frames_.back().function].name,
                                         type_key(condition)));
        step = condition.v_int64 != 0 ? step + 1 : code + step->target;
        continue;
      }
    }
  }
}

void Machine::store(TVMFFIAny* registers, const Step& step, const TVMFFIAny& result) {
  if (step.reg == Instruction::kNoRegister) return release(result);
  release(std::exchange(registers[step.reg], result));
}

}  // namespace outpost::vm
