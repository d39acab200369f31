/* The functions that generated C host code calls in its process (module-format.md);
 * libvm/module/c_symbols.cpp defines them. All but AllocWorkspace return 0 when fine. */
#pragma once

#include <tvm/runtime/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch memory of at least nbytes, aligned to 64; null when there is none. */
TVM_DLL void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes,
                                       int dtype_code_hint, int dtype_bits_hint);
TVM_DLL int TVMBackendFreeWorkspace(int device_type, int device_id, void* ptr);

/* What a task of a parallel launch is told. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;

typedef int (*FTVMParallelLambda)(int task_id, TVMParallelGroupEnv* penv, void* cdata);

/* Runs the lambda once per task on the thread pool; num_task 0 means one task per thread. */
TVM_DLL int TVMBackendParallelLaunch(FTVMParallelLambda flambda, void* cdata, int num_task);
/* Every task of a launch waits here for all others. */
TVM_DLL int TVMBackendParallelBarrier(int task_id, TVMParallelGroupEnv* penv);

/* Registers of a compiled VM function. */
TVM_DLL int TVMBackendAnyListSetPackedArg(void* anylist, int index, TVMFFIAny* args,
                                          int arg_offset);
TVM_DLL int TVMBackendAnyListResetItem(void* anylist, int index);
TVM_DLL int TVMBackendAnyListMoveFromPackedReturn(void* anylist, int index, TVMFFIAny* args,
                                                  int ret_offset);

#ifdef __cplusplus
}
#endif
