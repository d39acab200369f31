#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <outpost/rpc/error.h>
#include <outpost/rpc/export.h>
#include <outpost/rpc/types.h>

namespace outpost::client {

class Argument;
class Value;
class TimeEvaluator;
struct EvaluatorOptions;
namespace detail {
class Access;
class Link;
struct Reference;
struct Memory;
}  // namespace detail

/// How a transfer reports its progress: called with bytes done and bytes in total, from the thread
/// that transfers. It must not use the session.
struct TransferOptions {
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// The four classes below are references to things that live on the server. Copies share one
// reference; when the last goes, the server is told to free the thing, quietly when the session
// is gone. A default-made one is empty, and using it throws RpcError(argument).

/// An object that the client can only hold and pass back: an array, a shape, a VM, ...
class OUTPOST_CLIENT_API Object {
 public:
  Object() = default;
  explicit operator bool() const { return held_ != nullptr; }
  /// Type index of tvm-ffi: 69 shape, 71 array, 72 map, ...
  std::int32_t type_index() const;

 private:
  friend detail::Access;
  std::shared_ptr<const detail::Reference> held_;
};

/// A function of the server.
class OUTPOST_CLIENT_API Function {
 public:
  Function() = default;
  explicit operator bool() const { return held_ != nullptr; }
  /// Calls it and waits for the result. Arguments are what Argument takes.
  template <class... Args>
  Value operator()(const Args&... args) const;
  Value call(std::span<const Argument> args) const;

 private:
  friend detail::Access;
  std::shared_ptr<const detail::Reference> held_;
};

/// A module of the server.
class OUTPOST_CLIENT_API Module {
 public:
  Module() = default;
  explicit operator bool() const { return held_ != nullptr; }
  /// The function of that name, from the module or what it imports; RpcError(not_found) when there
  /// is none.
  Function get_function(std::string_view name, bool query_imports = true) const;
  /// The same, but empty when there is none.
  Function find_function(std::string_view name, bool query_imports = true) const;
  Function operator[](std::string_view name) const { return get_function(name); }
  /// Lets this module use the functions of `other`.
  void import_module(const Module& other) const;
  /// Measures a function of this module on the server; see client.h.
  TimeEvaluator time_evaluator(std::string_view name, const EvaluatorOptions& options) const;

 private:
  friend detail::Access;
  std::shared_ptr<const detail::Reference> held_;
};

/// Memory on a device of the server: compact, row-major. Views share it and keep it alive.
class OUTPOST_CLIENT_API Tensor {
 public:
  Tensor() = default;
  explicit operator bool() const { return memory_ != nullptr; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  DataType dtype() const { return dtype_; }
  Device device() const;
  std::uint64_t byte_offset() const { return byte_offset_; }
  std::uint64_t byte_size() const;

  /// Writes `data` at `byte_offset` of this tensor. RpcError(argument) when it would not fit.
  void copy_from(std::span<const std::byte> data, std::uint64_t byte_offset = 0,
                 const TransferOptions& options = {}) const;
  /// Reads data.size() bytes from `byte_offset` of this tensor.
  void copy_to(std::span<std::byte> data, std::uint64_t byte_offset = 0,
               const TransferOptions& options = {}) const;
  /// Copies on the server; both tensors belong to one session and have the same byte size.
  void copy_from(const Tensor& from, Pointer stream = {}) const;

  /// Another shape or type over the same memory, `byte_offset` bytes into this tensor.
  /// RpcError(argument) when it would reach beyond it.
  Tensor view(std::vector<std::int64_t> shape, DataType dtype, std::uint64_t byte_offset = 0) const;
  Tensor view(std::vector<std::int64_t> shape) const { return view(std::move(shape), dtype_); }

  /// All elements. TypeError when T is of another size than the tensor's type.
  template <class T>
  std::vector<T> to_vector() const;
  /// Sets all elements. TypeError when T is of another size than the tensor's type.
  template <class T>
  void assign(std::span<const T> elements) const;

 private:
  friend detail::Access;
  std::uint64_t elements_of(std::size_t element_bytes) const;
  std::shared_ptr<const detail::Memory> memory_;
  std::vector<std::int64_t> shape_;
  DataType dtype_;
  std::uint64_t byte_offset_ = 0;
};

/// One result of a call, owned.
class OUTPOST_CLIENT_API Value {
 public:
  using Blob = std::vector<std::byte>;
  using Storage = std::variant<std::monostate, std::int64_t, bool, double, Pointer, DataType,
                               Device, std::string, Blob, Tensor, Function, Module, Object>;
  Value() = default;
  explicit Value(Storage storage) : storage_{std::move(storage)} {}

  bool is_none() const { return std::holds_alternative<std::monostate>(storage_); }
  // Each throws TypeError when the value is of another kind.
  std::int64_t as_int() const;  ///< also of a bool
  bool as_bool() const;         ///< also of an int
  double as_double() const;     ///< also of an int
  Pointer as_pointer() const;
  DataType as_data_type() const;
  Device as_device() const;
  const std::string& as_string() const;
  const Blob& as_bytes() const;
  const Tensor& as_tensor() const;
  const Function& as_function() const;
  const Module& as_module() const;
  const Object& as_object() const;
  /// "int", "tensor", ...
  std::string_view kind() const;
  const Storage& storage() const { return storage_; }
  /// What it holds, moved out.
  Storage take() && { return std::move(storage_); }

 private:
  Storage storage_;
};

/// One argument of a call. Text, bytes and references are borrowed until the call ends.
class OUTPOST_CLIENT_API Argument {
 public:
  using Blob = std::span<const std::byte>;
  using Storage = std::variant<std::monostate, std::int64_t, bool, double, Pointer, DataType,
                               Device, std::string_view, Blob, const Tensor*, const Function*,
                               const Module*, const Object*>;
  // Implicit on purpose: f(1, 2.5, "text", tensor).
  Argument(std::nullptr_t) {}
  Argument(bool v) : storage_{v} {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Argument(T v) : storage_{checked(v)} {}
  template <std::floating_point T>
  Argument(T v) : storage_{static_cast<double>(v)} {}
  Argument(Pointer v) : storage_{v} {}
  Argument(DataType v) : storage_{v} {}
  Argument(Device v) : storage_{v} {}
  Argument(const char* v) : storage_{std::string_view{v}} {}
  Argument(std::string_view v) : storage_{v} {}
  Argument(const std::string& v) : storage_{std::string_view{v}} {}
  Argument(std::span<const std::byte> v) : storage_{v} {}
  Argument(const std::vector<std::byte>& v) : storage_{Blob{v}} {}
  Argument(const Tensor& v) : storage_{&v} {}
  Argument(const Function& v) : storage_{&v} {}
  Argument(const Module& v) : storage_{&v} {}
  Argument(const Object& v) : storage_{&v} {}
  Argument(const Value& v);

  const Storage& storage() const { return storage_; }

 private:
  template <class T>
  static std::int64_t checked(T v) {
    if (!std::in_range<std::int64_t>(v)) refuse_large(static_cast<std::uint64_t>(v));
    return static_cast<std::int64_t>(v);
  }
  [[noreturn]] static void refuse_large(std::uint64_t v);
  Storage storage_;
};

template <class... Args>
Value Function::operator()(const Args&... args) const {
  if constexpr (sizeof...(Args) == 0) {
    return call({});
  } else {
    const Argument list[] = {Argument{args}...};
    return call(list);
  }
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  std::vector<T> out(elements_of(sizeof(T)));
  copy_to(std::as_writable_bytes(std::span{out}));
  return out;
}

template <class T>
void Tensor::assign(std::span<const T> elements) const {
  const auto count = elements_of(sizeof(T));
  if (elements.size() != count)
    throw RpcError{Code::argument, "tensor of " + std::to_string(count) + " elements cannot take " +
                                       std::to_string(elements.size())};
  copy_from(std::as_bytes(elements));
}

}  // namespace outpost::client
