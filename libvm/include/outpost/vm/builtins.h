#pragma once

namespace outpost::vm {

/// Registers the functions that Relax programs call by name (`vm.builtin.*`) with tvm-ffi's global
/// table. Call once, before the first session; allocates little and starts nothing.
void register_vm_builtins();

}  // namespace outpost::vm
