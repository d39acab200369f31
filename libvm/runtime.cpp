#include "outpost/vm/runtime.h"

#include "device/functions.h"

namespace outpost::vm {
void register_runtime() {
  static const bool once = [] {
    register_device_functions();
    return true;
  }();
  (void)once;
}
}  // namespace outpost::vm
