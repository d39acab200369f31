// A library as a compiler makes it: one function, context pointers, and what the build asks for.
#include <tvm/ffi/c_api.h>

#include <cstdint>

#define EXPORT __attribute__((visibility("default")))

extern "C" {
EXPORT void* __tvm_ffi__library_ctx = nullptr;
EXPORT int (*__TVMBackendParallelLaunch)(int (*)(int, void*, void*), void*, int) = nullptr;
EXPORT void* (*__TVMBackendAllocWorkspace)(int, int, std::uint64_t, int, int) = nullptr;
EXPORT int (*__TVMBackendFreeWorkspace)(int, int, void*) = nullptr;

#ifdef PROBE_UNDEFINED
int symbol_of_nobody(int);
int another_symbol_of_nobody(int);
#endif

/// (int) -> int + 1, through workspace and a parallel loop.
EXPORT int __tvm_ffi_add_one(void*, const TVMFFIAny* args, std::int32_t, TVMFFIAny* result) {
  auto* scratch = static_cast<std::int64_t*>(__TVMBackendAllocWorkspace(1, 0, 8, 0, 64));
  *scratch = args[0].v_int64;
  const auto body = [](int task, void*, void* data) {
    if (task == 0) ++*static_cast<std::int64_t*>(data);
    return 0;
  };
  if (__TVMBackendParallelLaunch(body, scratch, 0) != 0) return -1;
  result->type_index = kTVMFFIInt;
  result->v_int64 = *scratch;
#ifdef PROBE_UNDEFINED
  result->v_int64 = symbol_of_nobody(1) + another_symbol_of_nobody(2);
#endif
  return __TVMBackendFreeWorkspace(1, 0, scratch);
}

#ifdef PROBE_BIN
// Rows [0, 1, 1], children [1]: the root is of PROBE_BIN's kind and imports the library.
EXPORT extern const unsigned char __tvm_ffi__library_bin[];
const unsigned char __tvm_ffi__library_bin[] =
    "\x57\0\0\0\0\0\0\0"
    "\x03\0\0\0\0\0\0\0"
    "\0\0\0\0\0\0\0\0"
    "\x01\0\0\0\0\0\0\0"
    "\x01\0\0\0\0\0\0\0"
    "\x01\0\0\0\0\0\0\0"
    "\x01\0\0\0\0\0\0\0"
    "\x08\0\0\0\0\0\0\0" PROBE_BIN
    "\x03\0\0\0\0\0\0\0"
    "abc"
    "\x04\0\0\0\0\0\0\0"
    "_lib";
#endif
}
