#include "host/call.h"

#include <fmt/format.h>
#include <tvm/ffi/c_api.h>

namespace outpost::host {
namespace ffi = tvm::ffi;

Result<> call_function(const ffi::Function& function, std::span<const TVMFFIAny> arguments,
                       ffi::Any& result) {
  TVMFFIAny raw{};
  raw.type_index = kTVMFFINone;
  const auto object = static_cast<TVMFFIObjectHandle>(
      const_cast<ffi::Object*>(static_cast<const ffi::Object*>(function.get())));
  const auto status = TVMFFIFunctionGetCellPtr(object)->safe_call(
      object, arguments.data(), static_cast<std::int32_t>(arguments.size()), &raw);
  if (status == 0) {
    // What an ABI function returns is owned by the caller, but a view (index 7 to 9) owns nothing:
    // make it own.
    if (raw.type_index >= kTVMFFIDLTensorPtr && raw.type_index <= kTVMFFIByteArrayPtr) {
      if (raw.type_index == kTVMFFIDLTensorPtr)
        return Error{Code::unsupported,
                     "the function returned a borrowed tensor, which has no owner"};
      TVMFFIAny owned{};
      if (TVMFFIAnyViewToOwnedAny(&raw, &owned) != 0)
        return Error{Code::unsupported, "the function returned a view that cannot be owned"};
      raw = owned;
    }
    result = ffi::details::AnyUnsafe::MoveTVMFFIAnyToAny(&raw);
    return {};
  }
  TVMFFIObjectHandle raised = nullptr;
  TVMFFIErrorMoveFromRaised(&raised);
  if (raised == nullptr)
    return Error{Code::internal,
                 fmt::format("the function failed with status {} and no error", status)};
  const auto* cell = TVMFFIErrorGetCellPtr(raised);
  Error error{Code::internal, std::string{cell->message.data, cell->message.size}};
  TVMFFIObjectDecRef(raised);
  return error;
}

}  // namespace outpost::host
