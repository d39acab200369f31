// Small functions that tuners and the peer's tests ask a server for.
#include <fmt/format.h>

#include "builtin/tables.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;

constexpr std::size_t kLineBytes = 64;

/// Writes the bytes back and drops them from every cache of the processor; does nothing where
/// user code may not.
void flush_from_cache([[maybe_unused]] const char* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < bytes; i += kLineBytes) __builtin_ia32_clflush(data + i);
  if (bytes != 0) __builtin_ia32_clflush(data + bytes - 1);
  __builtin_ia32_mfence();
#elif defined(__aarch64__)
  for (std::size_t i = 0; i < bytes; i += kLineBytes)
    asm volatile("dc civac, %0" ::"r"(data + i) : "memory");
  asm volatile("dsb ish" ::: "memory");
#endif
}

void cache_flush_cpu_non_first_arg(const Args& args, Any*) {
  for (int i = 1; i < args.size(); ++i) {
    const auto& tensor = args.tensor(i);
    if (tensor.device.device_type != kDLCPU) continue;
    flush_from_cache(static_cast<const char*>(cpu_data(tensor, "an argument")),
                     static_cast<std::size_t>(checked_bytes(tensor)));
  }
}

void shape_size(const Args& args, Any* out) {
  args.need(1);
  put(out, static_cast<std::int64_t>(args.shape(0).size()));
}

void shape_element(const Args& args, Any* out) {
  args.need(2);
  const auto shape = args.shape(0);
  const auto i = args.integer(1);
  if (i < 0 || i >= static_cast<std::int64_t>(shape.size()))
    args.fail("InternalError",
              fmt::format("index {} is outside a shape of {} dimensions", i, shape.size()));
  put(out, shape[static_cast<std::size_t>(i)]);
}

constexpr Builtin kTable[] = {
    builtin<"cache_flush_cpu_non_first_arg(first, tensors...)", cache_flush_cpu_non_first_arg>(),
    builtin<"rpc.testing.GetShapeSize(shape)", shape_size>(),
    builtin<"rpc.testing.GetShapeElem(shape, index)", shape_element>(),
};

}  // namespace

std::span<const Builtin> measure_builtins() {
  return kTable;
}

}  // namespace outpost::vm
