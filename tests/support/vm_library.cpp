// The runtime as a shared library, so that a Python process without the peer's runtime can replay
// recorded calls on our VM: load it with global symbols, then call outpost_register().
#include "outpost/vm/runtime.h"

extern "C" [[gnu::visibility("default")]] void outpost_register() {
  outpost::vm::register_runtime();
}
