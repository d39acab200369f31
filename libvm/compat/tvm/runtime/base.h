/* What generated C host code includes under this name: export macro and the ABI it is written against. */
#ifndef OUTPOST_COMPAT_TVM_RUNTIME_BASE_H_
#define OUTPOST_COMPAT_TVM_RUNTIME_BASE_H_

#include <stddef.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#ifndef TVM_DLL
#define TVM_DLL __attribute__((visibility("default")))
#endif

#endif
