#pragma once
#include <memory>

#include "exec/machine.h"

namespace outpost::vm {
/// A client's function as an observer: called (function, name, before, result, arguments...) before
/// and after every call; 1 or true from the call before skips the call.
std::unique_ptr<CallObserver> make_instrument(tvm::ffi::Function f);
}  // namespace outpost::vm
