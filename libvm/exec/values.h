#pragma once
#include "builtin/packed.h"

namespace outpost::vm {

inline constexpr TVMFFIAny kNone{kTVMFFINone, {0}, {0}};

/// Adds a reference where the value has one.
inline void retain(const TVMFFIAny& value) {
  if (value.type_index >= kTVMFFIStaticObjectBegin)
    tvm::ffi::detail::ObjectUnsafe::IncRefObjectHandle(value.v_obj);
}
inline void release(const TVMFFIAny& value) noexcept {
  if (value.type_index >= kTVMFFIStaticObjectBegin)
    tvm::ffi::detail::ObjectUnsafe::DecRefObjectHandle(value.v_obj);
}
/// Makes a borrowed argument a value that a register can hold.
inline TVMFFIAny owned(const TVMFFIAny& value) {
  const auto i = value.type_index;
  if (i >= kTVMFFIDLTensorPtr && i <= kTVMFFIObjectRValueRef)
    return tvm::ffi::detail::AnyUnsafe::MoveAnyToTVMFFIAny(keep(value));
  retain(value);
  return value;
}
inline TVMFFIAny opaque(void* pointer) {
  TVMFFIAny value{kTVMFFIOpaquePtr, {0}, {0}};
  value.v_ptr = pointer;
  return value;
}
inline const TVMFFIAny& raw(const tvm::ffi::Any& value) {
  return reinterpret_cast<const TVMFFIAny&>(value);
}

}  // namespace outpost::vm
