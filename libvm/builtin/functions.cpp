#include "builtin/functions.h"

#include "builtin/params.h"
#include "builtin/tables.h"

namespace outpost::vm {

void register_library_builtins() {
  register_builtins(random_builtins());
  register_builtins(sort_builtins());
  register_builtins(measure_builtins());
  register_params();
}

}  // namespace outpost::vm
