#pragma once
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/pool.h"
#include "exec/arena.h"
#include "exec/program.h"

namespace outpost::vm {

/// Sees every Call of bytecode, also those inside closures and nested functions. An error it throws
/// is the caller's error.
class CallObserver {
 public:
  struct Call {
    const TVMFFIAny& function;  ///< the callee as a value
    const std::string& name;
    const TVMFFIAny* args;
    std::int32_t size;
  };
  virtual ~CallObserver() = default;
  /// False: skip the call, its result is None and after() is not called.
  virtual bool before(const Call& call) = 0;
  virtual void after(const Call& call, const TVMFFIAny& result) = 0;
};

/// What a program may use, so that none runs away with the session.
struct MachineLimits {
  std::uint32_t frames_max = 20'000;  ///< calls inside calls
  std::uint32_t nested_max = 1'500;   ///< of these, such as come back in from native code
  std::uint64_t register_bytes_max = std::uint64_t{256} << 20;
  std::uint64_t jumps_max = 0;  ///< backward jumps and calls of one outer call; 0: no limit
};

/// One virtual machine: a program bound to devices. Not for two threads at a time; a second one is
/// refused. Functions throw tvm::ffi::Error; after an error the machine is usable.
class Machine {
 public:
  struct Device {
    DLDevice device;
    AllocatorKind allocator;
  };

  Machine(std::shared_ptr<const Program> program, tvm::ffi::Array<tvm::ffi::Any> imports);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The machine behind a builtin's `ctx`; an error when it is none that lives.
  static Machine& from(const TVMFFIAny& ctx);

  /// Copies constants to device 0 and finds every function. Once only.
  void initialize(const std::vector<Device>& devices);
  bool initialized() const { return !devices_.empty(); }
  void require_initialized() const;

  /// Runs table function `index` (VM or VMTIR). Arguments are borrowed for the call, views are
  /// copied. `out` holds None before.
  void invoke(std::uint32_t index, const TVMFFIAny* args, std::int32_t n, tvm::ffi::Any* out);

  const Program& program() const { return *program_; }
  const std::vector<Device>& devices() const { return devices_; }
  const MemoryPool::User& pool(std::size_t device) const { return pools_[device]; }
  const tvm::ffi::Any& function_value(std::uint32_t index) const { return functions_[index]; }
  /// A function of the imports at any level, or of the process.
  std::optional<tvm::ffi::Function> find_packed(const std::string& name) const;

  void set_observer(CallObserver* observer) { observer_ = observer; }
  CallObserver* observer() const { return observer_; }
  void set_limits(const MachineLimits& limits) { limits_ = limits; }

 private:
  struct Patch {
    std::uint32_t position;  ///< argument
    std::uint32_t reg;
  };
  /// An instruction with everything looked up that can be.
  struct Step {
    Opcode op = Opcode::ret;
    bool direct = false;         ///< call of a VM function: a frame, no native call
    std::uint32_t reg = 0;       ///< destination or operand
    std::uint32_t function = 0;  ///< table index of the callee
    std::uint32_t target = 0;    ///< step to jump to
    std::int32_t size = 0;       ///< arguments
    std::uint32_t patches = 0;   ///< first register argument
    std::uint32_t patch_count = 0;
    TVMFFISafeCallType call = nullptr;
    void* callee = nullptr;
    const TVMFFIAny* args = nullptr;  ///< constants in place, registers None
  };
  struct Frame {
    Arena::Mark mark;
    TVMFFIAny* registers;
    TVMFFIAny* args;   ///< room for the arguments of one call
    const Step* step;  ///< the call that is under way
    std::uint32_t register_count;
    std::uint32_t function;
  };
  class Entry;

  void place_constants();
  void find_functions();
  void link();
  void push(std::uint32_t function, const TVMFFIAny* args, std::int32_t n);
  void pop() noexcept;
  static void store(TVMFFIAny* registers, const Step& step, const TVMFFIAny& result);
  template <bool kObserved>
  void run_steps(std::size_t base, TVMFFIAny* out);
  template <bool kObserved>
  void call_native(const Step& step, const TVMFFIAny* args, TVMFFIAny* result);
  void call_compiled(std::uint32_t function, TVMFFIAny* out);
  /// The arguments of a call: those prepared, with the registers' values put in.
  const TVMFFIAny* arguments(const Step& step, const TVMFFIAny* registers, TVMFFIAny* room) const;
  void count_jump();
  [[noreturn]] void wrong_count(std::uint32_t function, std::int32_t n) const;

  std::shared_ptr<const Program> program_;
  tvm::ffi::Array<tvm::ffi::Any> imports_;
  std::vector<Device> devices_;
  std::vector<MemoryPool::User> pools_;
  std::vector<tvm::ffi::Any> constants_;
  std::vector<tvm::ffi::Any> functions_;
  std::vector<tvm::ffi::Function> compiled_;  ///< by table index, null for others
  std::vector<Step> steps_;
  std::vector<Patch> patches_;
  std::vector<TVMFFIAny> arguments_;     ///< of all calls, borrowing from constants and functions
  std::vector<std::uint32_t> args_max_;  ///< by table index: room that a frame needs
  std::vector<Frame> frames_;
  Arena arena_;
  MachineLimits limits_;
  std::uint64_t jumps_ = 0;
  std::uint32_t nested_ = 0;
  std::atomic<std::thread::id> user_{};
  CallObserver* observer_ = nullptr;
};

}  // namespace outpost::vm
