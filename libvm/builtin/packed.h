#pragma once
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace outpost::vm {

/// Throws tvm::ffi::Error with this kind ("ValueError") and text.
[[noreturn]] void raise(const char* kind, std::string text);

/// Hands the error to tvm-ffi's caller; for the end of a C-convention function.
int set_raised(const tvm::ffi::Error& error) noexcept;
int set_raised(const std::exception& error) noexcept;

/// "ffi.Tensor", "ffi.SmallStr", "None", "int": a type's name in messages.
std::string type_key(const TVMFFIAny& value);

/// Text of a short, long or raw string; empty optional for anything else. Borrows from `value`.
std::optional<std::string_view> text_of(const TVMFFIAny& value);

/// The tensor behind a tensor object or a DLTensor pointer; null for anything else.
inline const DLTensor* tensor_of(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(value.v_obj);
  if (value.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(value.v_ptr);
  return nullptr;
}
inline const TVMFFISeqCell* array_of(const TVMFFIAny& value) {
  if (value.type_index != kTVMFFIArray) return nullptr;
  return reinterpret_cast<const TVMFFISeqCell*>(reinterpret_cast<const char*>(value.v_obj) +
                                                sizeof(TVMFFIObject));
}
inline const TVMFFIShapeCell* shape_of(const TVMFFIAny& value) {
  if (value.type_index != kTVMFFIShape) return nullptr;
  return TVMFFIShapeGetCellPtr(value.v_obj);
}

/// The arguments of a builtin in tvm-ffi's C convention, with its signature for messages.
class Args {
 public:
  Args(const TVMFFIAny* data, std::int32_t size, const char* signature)
      : data_{data}, size_{size}, signature_{signature} {}
  int size() const { return size_; }
  const TVMFFIAny* data() const { return data_; }
  const TVMFFIAny& operator[](int i) const { return data_[i]; }
  tvm::ffi::AnyView view(int i) const { return tvm::ffi::AnyView::CopyFromTVMFFIAny(data_[i]); }

  void need(int n) const {
    if (size_ != n) wrong_count(n, n);
  }
  /// `max` < 0: no upper bound.
  void need(int min, int max) const {
    if (size_ < min || (max >= 0 && size_ > max)) wrong_count(min, max);
  }
  std::int64_t integer(int i) const {
    const auto& v = data_[i];
    if (v.type_index != kTVMFFIInt && v.type_index != kTVMFFIBool) wrong_type(i, "int");
    return v.v_int64;
  }
  double real(int i) const;
  DLDataType dtype(int i) const;
  std::string_view text(int i) const;
  const DLTensor& tensor(int i) const {
    const auto* t = tensor_of(data_[i]);
    if (t == nullptr) wrong_type(i, "ffi.Tensor");
    return *t;
  }
  /// A tensor object that the callee may keep; a view (DLTensor pointer) is copied.
  tvm::ffi::Tensor owned_tensor(int i) const;
  const TVMFFISeqCell& array(int i) const {
    const auto* a = array_of(data_[i]);
    if (a == nullptr) wrong_type(i, "ffi.Array");
    return *a;
  }
  /// A shape, or an array of ints as clients may send one.
  tvm::ffi::Shape shape(int i) const;
  tvm::ffi::Function function(int i) const;
  /// The context text in front of a message: empty for None, else it ends with a blank.
  std::string context(int i) const;

  [[noreturn]] void wrong_count(int min, int max) const;
  [[noreturn]] void wrong_type(int i, const char* expected) const;
  [[noreturn]] void fail(const char* kind, const std::string& text) const;

 private:
  const TVMFFIAny* data_;
  std::int32_t size_;
  const char* signature_;
};

/// A tensor of its own with the same contents on the same device.
tvm::ffi::Tensor clone(const DLTensor& tensor);

/// A value that outlives the call: views (DLTensor pointers) become tensors of their own.
tvm::ffi::Any keep(const TVMFFIAny& value);

/// One entry of a table of builtins; `signature` is "name(arg, arg)".
struct Builtin {
  const char* signature;
  TVMFFISafeCallType call;
};

template <std::size_t N>
struct Signature {
  char text[N];
  constexpr Signature(const char (&s)[N]) {  // NOLINT: a literal is what it stands for
    for (std::size_t i = 0; i < N; ++i) text[i] = s[i];
  }
};

template <auto Body, Signature S>
int packed_call(void*, const TVMFFIAny* args, std::int32_t n, TVMFFIAny* result) noexcept {
  try {
    Body(Args{args, n, S.text}, reinterpret_cast<tvm::ffi::Any*>(result));
    return 0;
  } catch (const tvm::ffi::Error& e) {
    return set_raised(e);
  } catch (const std::exception& e) {
    return set_raised(e);
  }
}

/// builtin<"vm.builtin.copy(value)", copy>(): a table row for `void copy(const Args&, Any*)`, whose
/// result arrives as None.
template <Signature S, auto Body>
constexpr Builtin builtin() {
  return {S.text, packed_call<Body, S>};
}

/// Adds the table to the global functions, each under its signature's name.
void register_builtins(std::span<const Builtin> table);

/// Writes a value over a result that holds none yet.
template <class T>
void put(tvm::ffi::Any* out, T&& value) {
  new (out) tvm::ffi::Any(std::forward<T>(value));
}

}  // namespace outpost::vm
