#include "module/context_symbols.h"

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include "thread/launch.h"
#include "thread/workspace.h"

namespace outpost::vm {
namespace {

void* workspace(int type, int id, std::uint64_t bytes, int, int) {
  return allocate_workspace(type, id, bytes);
}

template <class F>
void add(const char* name, F* function) {
  TVM_FFI_CHECK_SAFE_CALL(
      TVMFFIEnvModRegisterContextSymbol(name, reinterpret_cast<void*>(function)));
}

}  // namespace

void register_context_symbols() {
  add("__TVMFFIFunctionCall", TVMFFIFunctionCall);
  add("__TVMFFIErrorSetRaisedFromCStr", TVMFFIErrorSetRaisedFromCStr);
  add("__TVMFFIEnvModLookupFromImports", TVMFFIEnvModLookupFromImports);
  add("__TVMFFIHandleInitOnce", TVMFFIHandleInitOnce);
  add("__TVMBackendAllocWorkspace", workspace);
  add("__TVMBackendFreeWorkspace", free_workspace);
  add("__TVMBackendParallelLaunch", parallel_launch);
  add("__TVMBackendParallelBarrier", parallel_barrier);
}

}  // namespace outpost::vm
