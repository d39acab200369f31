#pragma once

namespace outpost::vm {
/// runtime.config_threadpool, runtime.NumThreads, tvm.runtime.threading.*.
void register_thread_functions();
}  // namespace outpost::vm
