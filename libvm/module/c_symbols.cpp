// The plain C symbols that compiled libraries import from the process. An object library linked
// into each executable, for the linker drops what nobody in a static archive refers to.
#include <tvm/ffi/c_api.h>

#include <cstdint>

#include "builtin/half.h"
#include "module/any_list.h"
#include "thread/launch.h"
#include "thread/workspace.h"

#define OUTPOST_EXPORT __attribute__((visibility("default"), used))
#define OUTPOST_WEAK_EXPORT __attribute__((visibility("default"), used, weak))

extern "C" {

OUTPOST_EXPORT void* TVMBackendAllocWorkspace(int device_type, int device_id, std::uint64_t nbytes,
                                              int, int) {
  return outpost::vm::allocate_workspace(device_type, device_id, nbytes);
}
OUTPOST_EXPORT int TVMBackendFreeWorkspace(int device_type, int device_id, void* data) {
  return outpost::vm::free_workspace(device_type, device_id, data);
}
OUTPOST_EXPORT int TVMBackendParallelLaunch(outpost::vm::ParallelTask f, void* data, int tasks) {
  return outpost::vm::parallel_launch(f, data, tasks);
}
OUTPOST_EXPORT int TVMBackendParallelBarrier(int task, TVMParallelGroupEnv* env) {
  return outpost::vm::parallel_barrier(task, env);
}
OUTPOST_EXPORT int TVMBackendAnyListSetPackedArg(void* list, int index, TVMFFIAny* args,
                                                 int offset) {
  return outpost::vm::any_list_set_argument(list, index, args, offset);
}
OUTPOST_EXPORT int TVMBackendAnyListResetItem(void* list, int index) {
  return outpost::vm::any_list_reset(list, index);
}
OUTPOST_EXPORT int TVMBackendAnyListMoveFromPackedReturn(void* list, int index, TVMFFIAny* args,
                                                         int offset) {
  return outpost::vm::any_list_take_result(list, index, args, offset);
}

// Weak, so that a compiler runtime with the same helpers wins.
OUTPOST_WEAK_EXPORT float __gnu_h2f_ieee(std::uint16_t half) {
  return outpost::vm::half_to_float(half);
}
OUTPOST_WEAK_EXPORT std::uint16_t __gnu_f2h_ieee(float value) {
  return outpost::vm::float_to_half(value);
}
#if defined(__x86_64__)
// Compilers disagree where the half comes back: in ax before they knew the type, in xmm0 since. As
// a definition in the program wins over libgcc's, this one has to serve both.
__attribute__((used, visibility("hidden"))) std::uint16_t outpost_double_to_half(double value) {
  return outpost::vm::double_to_half(value);
}
asm(R"(
  .text
  .weak __truncdfhf2
  .type __truncdfhf2, @function
__truncdfhf2:
  .cfi_startproc
  endbr64
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call outpost_double_to_half
  movzwl %ax, %eax
  movd %eax, %xmm0
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
  .size __truncdfhf2, . - __truncdfhf2
)");
#else
OUTPOST_WEAK_EXPORT std::uint16_t __truncdfhf2(double value) {
  return outpost::vm::double_to_half(value);
}
#endif

}  // extern "C"
