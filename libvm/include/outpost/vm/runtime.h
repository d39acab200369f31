#pragma once

namespace outpost::vm {

/// Puts everything that compiled code and clients expect of the process into libtvm_ffi's tables:
/// device, tensor, thread, sort, random, parameter and timing functions, module loaders, and the
/// symbols that libraries receive on load. Call it once, at start; a second call does nothing.
/// Starts no thread and opens no device, so a process may fork after it.
void register_runtime();

}  // namespace outpost::vm
