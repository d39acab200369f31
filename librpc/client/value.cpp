#include <fmt/format.h>

#include <outpost/rpc/value.h>

namespace outpost::client {
namespace {

constexpr std::string_view kKinds[] = {"None",     "int",    "bool",   "float", "pointer",
                                       "dtype",    "device", "string", "bytes", "tensor",
                                       "function", "module", "object"};

template <class T>
const T& get(const Value& value, std::string_view wanted) {
  if (const auto* found = std::get_if<T>(&value.storage())) return *found;
  throw TypeError{fmt::format("the value is {}, not {}", value.kind(), wanted)};
}

}  // namespace

std::string_view Value::kind() const {
  return kKinds[storage_.index()];
}

std::int64_t Value::as_int() const {
  if (const auto* b = std::get_if<bool>(&storage_)) return *b ? 1 : 0;
  return get<std::int64_t>(*this, "int");
}
bool Value::as_bool() const {
  if (const auto* i = std::get_if<std::int64_t>(&storage_)) return *i != 0;
  return get<bool>(*this, "bool");
}
double Value::as_double() const {
  if (const auto* i = std::get_if<std::int64_t>(&storage_)) return static_cast<double>(*i);
  return get<double>(*this, "float");
}
Pointer Value::as_pointer() const {
  return get<Pointer>(*this, "pointer");
}
DataType Value::as_data_type() const {
  return get<DataType>(*this, "dtype");
}
Device Value::as_device() const {
  return get<Device>(*this, "device");
}
const std::string& Value::as_string() const {
  return get<std::string>(*this, "string");
}
const Value::Blob& Value::as_bytes() const {
  return get<Blob>(*this, "bytes");
}
const Tensor& Value::as_tensor() const {
  return get<Tensor>(*this, "tensor");
}
const Function& Value::as_function() const {
  return get<Function>(*this, "function");
}
const Module& Value::as_module() const {
  return get<Module>(*this, "module");
}
const Object& Value::as_object() const {
  return get<Object>(*this, "object");
}

Argument::Argument(const Value& v)
    : storage_{std::visit(
          []<class T>(const T& held) -> Storage {
            if constexpr (std::is_same_v<T, std::string>)
              return std::string_view{held};
            else if constexpr (std::is_same_v<T, Value::Blob>)
              return Blob{held};
            else if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, Function> ||
                               std::is_same_v<T, Module> || std::is_same_v<T, Object>)
              return &held;
            else
              return held;
          },
          v.storage())} {}

void Argument::refuse_large(std::uint64_t v) {
  throw RpcError{Code::argument, fmt::format("{} does not fit a signed number of 64 bits", v)};
}

}  // namespace outpost::client
