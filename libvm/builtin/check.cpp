// Type checks that compiled functions make at their entry: vm-builtins.md, section 1.
#include <fmt/format.h>
#include <tvm/ffi/dtype.h>

#include <cstring>

#include "builtin/tables.h"
#include "device/tensor.h"
#include "exec/closure.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;

/// The context must be text or None, also when it is not needed.
void check_context(const Args& args, int i) {
  if (args[i].type_index != kTVMFFINone) args.text(i);
}

bool same(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

void check_tensor_info(const Args& args, Any*) {
  args.need(3, 4);
  const int last = args.size() - 1;
  const auto ndim = args.integer(1);
  const bool has_dtype = last == 3 && args[2].type_index != kTVMFFINone;
  const auto* t = tensor_of(args[0]);
  check_context(args, last);
  if (t == nullptr)
    raise("TypeError",
          fmt::format("{}expect a Tensor but get {}", args.context(last), type_key(args[0])));
  if (ndim != -1 && ndim != t->ndim)
    raise("ValueError", fmt::format("{}expect Tensor with ndim {} but get {}", args.context(last),
                                    ndim, t->ndim));
  if (has_dtype) {
    const auto dtype = args.dtype(2);
    if (!same(dtype, t->dtype))
      raise("ValueError",
            fmt::format("{}expect Tensor with dtype {} but get {}", args.context(last),
                        std::string{tvm::ffi::DLDataTypeToString(dtype)},
                        std::string{tvm::ffi::DLDataTypeToString(t->dtype)}));
  }
}

void check_shape_info(const Args& args, Any*) {
  args.need(3);
  const auto ndim = args.integer(1);
  const auto* s = vm::shape_of(args[0]);
  check_context(args, 2);
  if (s == nullptr)
    raise("TypeError",
          fmt::format("{}expect a Shape but get {}", args.context(2), type_key(args[0])));
  if (ndim != -1 && ndim != static_cast<std::int64_t>(s->size))
    raise("ValueError",
          fmt::format("{}expect Shape with ndim {} but get {}", args.context(2), ndim, s->size));
}

void check_prim_value_info(const Args& args, Any*) {
  args.need(3);
  const auto& x = args[0];
  const auto dtype = args.dtype(1);
  check_context(args, 2);
  if (x.type_index == kTVMFFINone || x.type_index >= kTVMFFIStaticObjectBegin)
    raise("TypeError",
          fmt::format("{}, expected dtype {}, but received {}", args.text(2),
                      std::string{tvm::ffi::DLDataTypeToString(dtype)},
                      x.type_index == kTVMFFINone ? "None" : "an object of type " + type_key(x)));
  const bool integral = x.type_index == kTVMFFIInt || x.type_index == kTVMFFIBool;
  const auto require = [&](bool fits, const char* name) {
    if (!fits)
      raise("TypeError", fmt::format("{}Cannot convert from type `{}` to `{}`", args.context(2),
                                     type_key(x), name));
  };
  switch (dtype.code) {
    case kDLInt:
    case kDLUInt:
      return require(integral, "int");
    case kDLBool:
      return require(integral, "bool");
    case kDLOpaqueHandle:
      return require(x.type_index == kTVMFFIOpaquePtr, "void*");
    default:
      return require(integral || x.type_index == kTVMFFIFloat, "float");
  }
}

void check_tuple_info(const Args& args, Any*) {
  args.need(3);
  const auto n = args.integer(1);
  const auto* a = array_of(args[0]);
  check_context(args, 2);
  if (a == nullptr)
    raise("TypeError",
          fmt::format("{}expect a Tuple but get {}", args.context(2), type_key(args[0])));
  if (a->size != n)
    raise("ValueError",
          fmt::format("{}expect a Tuple with {} elements,  but get a Tuple with {} elements.",
                      args.context(2), n, a->size));
}

void check_func_info(const Args& args, Any*) {
  args.need(2);
  check_context(args, 1);
  const auto& x = args[0];
  if (x.type_index != kTVMFFIFunction && as_closure(x) == nullptr)
    raise("TypeError", fmt::format("{}expect a Function but get {}", args.context(1), type_key(x)));
}

void check_string_info(const Args& args, Any*) {
  args.need(2);
  check_context(args, 1);
  if (!text_of(args[0]))
    raise("TypeError",
          fmt::format("{}expect a string but get {}", args.context(1), type_key(args[0])));
}

void read_if_cond(const Args& args, Any* out) {
  args.need(1);
  const auto& x = args[0];
  if (x.type_index == kTVMFFIBool || x.type_index == kTVMFFIInt) return put(out, x.v_int64 != 0);
  const auto& t = args.tensor(0);
  const auto code = t.dtype.code;
  const auto bits = t.dtype.bits;
  const bool integral = code == kDLInt || code == kDLUInt || code == kDLBool;
  const bool whole = bits == 1 || bits == 8 || bits == 16 || bits == 32 || bits == 64;
  if (!integral || !whole || t.dtype.lanes != 1)
    args.fail("InternalError", "a condition must be int, uint or bool, not " +
                                   std::string{tvm::ffi::DLDataTypeToString(t.dtype)});
  const std::size_t bytes = bits == 1 ? 1 : bits / 8U;
  std::uint64_t value = 0;
  if (t.device.device_type == kDLCPU && t.ndim == 0)
    std::memcpy(&value, static_cast<const char*>(t.data) + t.byte_offset, bytes);
  else
    read_bytes(t, &value, bytes);
  put(out, value != 0);
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.check_tensor_info(value, ndim[, dtype], context)", check_tensor_info>(),
    builtin<"vm.builtin.check_shape_info(value, ndim, context)", check_shape_info>(),
    builtin<"vm.builtin.check_prim_value_info(value, dtype, context)", check_prim_value_info>(),
    builtin<"vm.builtin.check_tuple_info(value, n, context)", check_tuple_info>(),
    builtin<"vm.builtin.check_func_info(value, context)", check_func_info>(),
    builtin<"vm.builtin.check_string_info(value, context)", check_string_info>(),
    builtin<"vm.builtin.read_if_cond(condition)", read_if_cond>(),
};

}  // namespace

std::span<const Builtin> check_builtins() {
  return kTable;
}
}  // namespace outpost::vm
