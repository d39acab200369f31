#pragma once
#include <tvm/ffi/c_api.h>

#include <cstdint>

namespace outpost::vm {
// The registers of a compiled VM function, as its body reaches them: `list` is an array of Any.

/// args[offset] = view of list[index].
int any_list_set_argument(void* list, int index, TVMFFIAny* args, int offset) noexcept;
/// list[index] = None.
int any_list_reset(void* list, int index) noexcept;
/// list[index] = args[offset], moved.
int any_list_take_result(void* list, int index, TVMFFIAny* args, int offset) noexcept;

}  // namespace outpost::vm
