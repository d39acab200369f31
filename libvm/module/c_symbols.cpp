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
OUTPOST_WEAK_EXPORT std::uint16_t __truncdfhf2(double value) {
  return outpost::vm::double_to_half(value);
}

}  // extern "C"
