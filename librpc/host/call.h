#pragma once
#include <tvm/ffi/any.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <exception>
#include <span>

#include "base/result.h"

namespace outpost::host {

/// The one place where exceptions of tvm-ffi become errors. The text is the bare message, as the
/// wire wants it.
template <class F>
Result<> guarded(F&& f) {
  try {
    f();
    return {};
  } catch (const tvm::ffi::Error& e) {
    return Error{Code::internal, std::string{e.message()}};
  } catch (const std::bad_alloc&) {
    return Error{Code::limit, "out of memory"};
  } catch (const std::exception& e) {
    return Error{Code::internal, e.what()};
  }
}

/// Calls a function through the C ABI, so that an error costs no C++ exception on this side.
Result<> call_function(const tvm::ffi::Function& function, std::span<const TVMFFIAny> arguments,
                       tvm::ffi::Any& result);

}  // namespace outpost::host
