#pragma once
#include "builtin/packed.h"

namespace outpost::vm {
std::span<const Builtin> state_builtins();
std::span<const Builtin> paged_builtins();
}  // namespace outpost::vm
