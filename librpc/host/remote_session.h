#pragma once
#include <tvm/ffi/extra/module.h>

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"

namespace outpost::host {

/// A session with another server as a module of kind `rpc`: what `rpc.Connect` gives when it is
/// called as a function instead of being named as a session constructor. Its functions are the
/// other server's; numbers, text, bytes, types and its own objects pass, tensors come back as
/// copies on this CPU.
tvm::ffi::Module remote_session(unique_fd initialised_socket);

/// Registers `rpc.Connect` and `rpc.LocalSession` as global functions.
void register_session_functions();

}  // namespace outpost::host
