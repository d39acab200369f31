/* What generated C host code includes under this name: export macro and the ABI it wants. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#ifndef TVM_DLL
#define TVM_DLL __attribute__((visibility("default")))
#endif
