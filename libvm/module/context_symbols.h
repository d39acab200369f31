#pragma once

namespace outpost::vm {
/// Names the eight functions that libtvm_ffi stores into a library's context pointers on load
/// (module-format.md, What generated host code expects of its process).
void register_context_symbols();
}  // namespace outpost::vm
