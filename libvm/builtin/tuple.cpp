// Values and tuples: vm-builtins.md, sections 2 and 3.
#include <fmt/format.h>

#include "builtin/tables.h"
#include "exec/values.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::ArrayObj;

void null_value(const Args& args, Any*) {
  args.need(0);
}

void copy(const Args& args, Any* out) {
  args.need(1);
  reinterpret_cast<TVMFFIAny&>(*out) = owned(args[0]);
}

void make_tuple(const Args& args, Any* out) {
  bool views = false;
  for (int i = 0; i < args.size(); ++i) views |= args[i].type_index == kTVMFFIDLTensorPtr;
  const auto* first = reinterpret_cast<const tvm::ffi::AnyView*>(args.data());
  tvm::ffi::Array<Any> tuple(first, first + args.size());
  if (views) {
    for (int i = 0; i < args.size(); ++i)
      if (args[i].type_index == kTVMFFIDLTensorPtr) tuple.Set(i, keep(args[i]));
  }
  put(out, std::move(tuple));
}

const Any& item(const Args& args) {
  const auto& tuple = args.array(0);
  const auto i = args.integer(1);
  if (i < 0 || i >= tuple.size)
    args.fail("IndexError",
              fmt::format("index {} out of bounds, the tuple has {} items", i, tuple.size));
  return static_cast<const Any*>(tuple.data)[i];
}

void tuple_getitem(const Args& args, Any* out) {
  args.need(2);
  put(out, item(args));
}

void tuple_reset_item(const Args& args, Any*) {
  args.need(2);
  const_cast<Any&>(item(args)).reset();  // in place: this is how compiled code frees tuple inputs
}

constexpr Builtin kTable[] = {
    builtin<"vm.builtin.null_value()", null_value>(),
    builtin<"vm.builtin.copy(value)", copy>(),
    builtin<"vm.builtin.make_tuple(values...)", make_tuple>(),
    builtin<"vm.builtin.tuple_getitem(tuple, index)", tuple_getitem>(),
    builtin<"vm.builtin.tuple_reset_item(tuple, index)", tuple_reset_item>(),
};

}  // namespace

std::span<const Builtin> tuple_builtins() {
  return kTable;
}
}  // namespace outpost::vm
