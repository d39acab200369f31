#pragma once
#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

namespace outpost::vm {

/// A function value of a Relax program. `call` takes the VM pointer before the arguments. It does
/// not keep its VM alive.
class ClosureObj : public tvm::ffi::Object {
 public:
  tvm::ffi::String name;
  tvm::ffi::Function call{nullptr};

  ClosureObj(tvm::ffi::String n, tvm::ffi::Function f) : name{std::move(n)}, call{std::move(f)} {}
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relax.vm.Closure", ClosureObj, tvm::ffi::Object);
};

class Closure : public tvm::ffi::ObjectRef {
 public:
  Closure(tvm::ffi::String name, tvm::ffi::Function call)
      : ObjectRef{tvm::ffi::make_object<ClosureObj>(std::move(name), std::move(call))} {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Closure, tvm::ffi::ObjectRef, ClosureObj);
};

/// Null when the value is no closure.
inline const ClosureObj* as_closure(const TVMFFIAny& value) {
  static const std::int32_t index = ClosureObj::RuntimeTypeIndex();
  if (value.type_index != index) return nullptr;
  return reinterpret_cast<const ClosureObj*>(value.v_obj);
}

}  // namespace outpost::vm
