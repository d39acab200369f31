#include "outpost/vm/runtime.h"

#include "device/functions.h"
#include "outpost/vm/builtins.h"

namespace outpost::vm {
void register_runtime() {
  static const bool once = [] {
    register_device_functions();
    register_vm_builtins();
    return true;
  }();
  (void)once;
}
}  // namespace outpost::vm
