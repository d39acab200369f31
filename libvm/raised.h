#pragma once
#include <tvm/ffi/error.h>

#include <exception>
#include <optional>
#include <string>

namespace outpost::vm {

/// Takes the error that a C function left for its caller on this thread: its text without the
/// kind. Empty when it left none.
inline std::optional<std::string> take_raised_error() {
  TVMFFIObjectHandle raised = nullptr;
  TVMFFIErrorMoveFromRaised(&raised);
  if (raised == nullptr) return std::nullopt;
  namespace detail = tvm::ffi::detail;
  const auto error = detail::ObjectUnsafe::ObjectRefFromObjectPtr<tvm::ffi::Error>(
      detail::ObjectUnsafe::ObjectPtrFromOwned<tvm::ffi::Object>(
          static_cast<TVMFFIObject*>(raised)));
  return error.message();
}

/// Leaves an error for the caller of our own C function, which then returns -1.
inline int raise_error(const char* kind, const std::string& text) {
  TVMFFIErrorSetRaisedFromCStr(kind, text.c_str());
  return -1;
}

/// Runs the body of a C function: an exception becomes the error left for the caller, and -1.
template <class F>
int guarded(F&& body) noexcept {
  try {
    return body();
  } catch (const tvm::ffi::Error& e) {
    tvm::ffi::detail::SetSafeCallRaised(e);
  } catch (const std::exception& e) {
    raise_error("InternalError", e.what());
  }
  return -1;
}

}  // namespace outpost::vm
