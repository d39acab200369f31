#pragma once
#include "builtin/packed.h"

namespace outpost::vm {
// One table per file of builtins; register_vm_builtins() adds them all.
std::span<const Builtin> shape_builtins();
std::span<const Builtin> check_builtins();
std::span<const Builtin> tuple_builtins();
std::span<const Builtin> call_builtins();
std::span<const Builtin> memory_builtins();
std::span<const Builtin> sampling_builtins();
std::span<const Builtin> weights_builtins();
std::span<const Builtin> attention_legacy_builtins();
std::span<const Builtin> python_builtins();
// The same for register_library_builtins().
std::span<const Builtin> random_builtins();
std::span<const Builtin> sort_builtins();
std::span<const Builtin> measure_builtins();
}  // namespace outpost::vm
