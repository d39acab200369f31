#include "builtin/packed.h"

#include <fmt/format.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/string.h>

#include <cstring>

#include "device/tensor.h"

namespace outpost::vm {

void raise(const char* kind, std::string text) {
  throw tvm::ffi::Error(kind, std::move(text), std::string{});
}

int set_raised(const tvm::ffi::Error& error) noexcept {
  tvm::ffi::detail::SetSafeCallRaised(error);
  return -1;
}

int set_raised(const std::exception& error) noexcept {
  const char* kind =
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "MemoryError" : "InternalError";
  TVMFFIErrorSetRaisedFromCStr(kind, error.what());
  return -1;
}

std::string type_key(const TVMFFIAny& value) {
  return tvm::ffi::TypeIndexToTypeKey(value.type_index);
}

std::optional<std::string_view> text_of(const TVMFFIAny& value) {
  switch (value.type_index) {
    case kTVMFFISmallStr:
      return std::string_view{value.v_bytes, value.small_str_len};
    case kTVMFFIRawStr:
      return std::string_view{value.v_c_str};
    case kTVMFFIStr: {
      const auto* bytes = TVMFFIBytesGetByteArrayPtr(value.v_obj);
      return std::string_view{bytes->data, bytes->size};
    }
    default:
      return std::nullopt;
  }
}

tvm::ffi::Tensor clone(const DLTensor& tensor) {
  const tvm::ffi::ShapeView shape{tensor.shape, static_cast<std::size_t>(tensor.ndim)};
  auto copy = empty(shape, tensor.dtype, tensor.device);
  copy_tensor(tensor, *copy.GetDLTensorPtr());
  return copy;
}

double Args::real(int i) const {
  const auto& v = data_[i];
  if (v.type_index == kTVMFFIFloat) return v.v_float64;
  if (v.type_index != kTVMFFIInt && v.type_index != kTVMFFIBool) wrong_type(i, "float");
  return static_cast<double>(v.v_int64);
}

DLDataType Args::dtype(int i) const {
  if (data_[i].type_index == kTVMFFIDataType) return data_[i].v_dtype;
  const auto text = text_of(data_[i]);
  if (!text) wrong_type(i, "DataType");
  return tvm::ffi::StringToDLDataType(std::string{*text});
}

std::string_view Args::text(int i) const {
  const auto text = text_of(data_[i]);
  if (!text) wrong_type(i, "str");
  return *text;
}

tvm::ffi::Tensor Args::owned_tensor(int i) const {
  if (const auto t = view(i).as<tvm::ffi::Tensor>()) return *t;
  if (data_[i].type_index != kTVMFFIDLTensorPtr) wrong_type(i, "ffi.Tensor");
  return clone(tensor(i));
}

tvm::ffi::Shape Args::shape(int i) const {
  const auto shape = view(i).try_cast<tvm::ffi::Shape>();
  if (!shape) wrong_type(i, "ffi.Shape");
  return *shape;
}

tvm::ffi::Function Args::function(int i) const {
  const auto f = view(i).as<tvm::ffi::Function>();
  if (!f) wrong_type(i, "ffi.Function");
  return *f;
}

std::string Args::context(int i) const {
  if (i < 0 || i >= size_ || data_[i].type_index == kTVMFFINone) return {};
  std::string out{text(i)};
  if (!out.empty() && out.back() != ' ') out += ' ';
  return out;
}

void Args::wrong_count(int min, int max) const {
  const auto wanted = min == max ? fmt::format("{}", min)
                      : max < 0  ? fmt::format("at least {}", min)
                                 : fmt::format("{} to {}", min, max);
  raise("TypeError", fmt::format("{} takes {} arguments, {} given", signature_, wanted, size_));
}

void Args::wrong_type(int i, const char* expected) const {
  raise("TypeError", fmt::format("{}: argument {} must be {}, not {}", signature_, i, expected,
                                 type_key(data_[i])));
}

void Args::fail(const char* kind, const std::string& text) const {
  const std::string_view all{signature_};
  raise(kind, fmt::format("{}: {}", all.substr(0, all.find('(')), text));
}

tvm::ffi::Any keep(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFIDLTensorPtr)
    return tvm::ffi::Any(clone(*static_cast<const DLTensor*>(value.v_ptr)));
  return tvm::ffi::Any(tvm::ffi::AnyView::CopyFromTVMFFIAny(value));
}

void register_builtins(std::span<const Builtin> table) {
  for (const auto& entry : table) {
    const std::string_view all{entry.signature};
    const auto name = all.substr(0, all.find('('));
    const TVMFFIByteArray key{name.data(), name.size()};
    TVMFFIObjectHandle function = nullptr;
    TVM_FFI_CHECK_SAFE_CALL(TVMFFIFunctionCreate(nullptr, entry.call, nullptr, &function));
    const int rc = TVMFFIFunctionSetGlobal(&key, function, 1);
    TVMFFIObjectDecRef(function);
    TVM_FFI_CHECK_SAFE_CALL(rc);
  }
}

}  // namespace outpost::vm
