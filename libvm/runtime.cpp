#include "outpost/vm/runtime.h"

#include "builtin/functions.h"
#include "device/functions.h"
#include "module/context_symbols.h"
#include "module/loaders.h"
#include "outpost/vm/builtins.h"
#include "thread/functions.h"
#include "time/evaluator.h"

namespace outpost::vm {
void register_runtime() {
  static const bool once = [] {
    register_context_symbols();
    register_module_loaders();
    register_device_functions();
    register_vm_builtins();
    register_thread_functions();
    register_library_builtins();
    register_time_functions();
    return true;
  }();
  (void)once;
}
}  // namespace outpost::vm
