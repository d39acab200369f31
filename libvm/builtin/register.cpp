#include "builtin/tables.h"
#include "exec/executable_module.h"
#include "llm/tables.h"
#include "outpost/vm/builtins.h"

namespace outpost::vm {

void register_vm_builtins() {
  register_builtins(shape_builtins());
  register_builtins(check_builtins());
  register_builtins(tuple_builtins());
  register_builtins(call_builtins());
  register_builtins(memory_builtins());
  register_builtins(sampling_builtins());
  register_builtins(weights_builtins());
  register_builtins(attention_legacy_builtins());
  register_builtins(python_builtins());
  register_builtins(state_builtins());
  register_builtins(paged_builtins());
  register_executable_loaders();
}

}  // namespace outpost::vm
