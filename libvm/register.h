#pragma once
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <string>
#include <string_view>
#include <utility>

namespace outpost::vm {

/// Adds a global function whose arguments are checked against the callable's signature; a wrong
/// count or type is a TypeError that spells it.
template <class F>
void add_typed(std::string_view name, F&& f) {
  tvm::ffi::Function::SetGlobal(
      name, tvm::ffi::Function::FromTyped(std::forward<F>(f), std::string{name}), true);
}

/// Adds a global function that looks at its arguments itself.
inline void add_packed(std::string_view name, void (*f)(tvm::ffi::PackedArgs, tvm::ffi::Any*)) {
  tvm::ffi::Function::SetGlobal(name, tvm::ffi::Function::FromPacked(f), true);
}

/// Borrowed: valid as long as the string is.
inline std::string_view as_view(const tvm::ffi::String& s) {
  return {s.data(), s.size()};
}

}  // namespace outpost::vm
