#include "module/any_list.h"

#include <tvm/ffi/any.h>

#include <utility>

namespace outpost::vm {
namespace ffi = tvm::ffi;

int any_list_set_argument(void* list, int index, TVMFFIAny* args, int offset) noexcept {
  reinterpret_cast<ffi::AnyView*>(args)[offset] = static_cast<ffi::Any*>(list)[index];
  return 0;
}

int any_list_reset(void* list, int index) noexcept {
  static_cast<ffi::Any*>(list)[index] = nullptr;
  return 0;
}

int any_list_take_result(void* list, int index, TVMFFIAny* args, int offset) noexcept {
  static_cast<ffi::Any*>(list)[index] = std::move(reinterpret_cast<ffi::Any*>(args)[offset]);
  return 0;
}

}  // namespace outpost::vm
