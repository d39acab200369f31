// Random numbers: vm-builtins.md, section 6.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "builtin/random_bits.h"
#include "builtin/tables.h"
#include "device/tensor.h"
#include "raised.h"
#include "thread/launch.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;

/// The calling thread's engine; made at first use, so that a forked process has its own.
std::mt19937& own_engine() {
  thread_local std::mt19937 engine{std::random_device{}()};
  return engine;
}

std::mt19937 seeded_engine(std::int64_t seed, std::int64_t seed2) {
  const auto mixed = mix(static_cast<std::uint64_t>(seed) ^ mix(static_cast<std::uint64_t>(seed2)));
  return std::mt19937{static_cast<std::uint32_t>(mixed ^ (mixed >> 32))};
}

struct Elements {
  float* data;
  std::size_t count;
};
Elements float_output(const Args& args, int i) {
  const auto& out = args.tensor(i);
  if (out.dtype.code != kDLFloat || out.dtype.bits != 32 || out.dtype.lanes != 1)
    args.fail("InternalError",
              fmt::format("the output must be float32, but is {}",
                          static_cast<std::string>(tvm::ffi::DLDataTypeToString(out.dtype))));
  auto* data = static_cast<float*>(cpu_data(out, "the output"));
  return {data, static_cast<std::size_t>(checked_bytes(out) / sizeof(float))};
}

/// Arguments are [seed, seed2,] a, b, output; both seeds 0 is as none.
template <class MakeDistribution>
void fill_floats(const Args& args, MakeDistribution make_distribution) {
  if (args.size() != 3 && args.size() != 5) args.wrong_count(3, 5);
  const int at = args.size() - 3;
  auto distribution = make_distribution(args.real(at), args.real(at + 1));
  const auto out = float_output(args, at + 2);
  const bool seeded = at == 2 && (args.integer(0) != 0 || args.integer(1) != 0);
  auto with_seed = seeded ? seeded_engine(args.integer(0), args.integer(1)) : std::mt19937{};
  auto& engine = seeded ? with_seed : own_engine();
  std::generate_n(out.data, out.count, [&] { return distribution(engine); });
}

void uniform(const Args& args, Any*) {
  fill_floats(args, [&](double low, double high) {
    if (!(high > low))
      args.fail("InternalError", fmt::format("high {} must be above low {}", high, low));
    return std::uniform_real_distribution<float>{static_cast<float>(low), static_cast<float>(high)};
  });
}

void normal(const Args& args, Any*) {
  fill_floats(args, [&](double mean, double deviation) {
    if (!(deviation > 0))
      args.fail("InternalError", fmt::format("deviation {} must be above 0", deviation));
    return std::normal_distribution<float>{static_cast<float>(mean), static_cast<float>(deviation)};
  });
}

template <class T>
void fill_ints(const Args& args, void* data, std::size_t count) {
  using Limits = std::numeric_limits<T>;
  const auto low = std::max<std::int64_t>(args.integer(0), Limits::min());
  const auto high = std::min<std::int64_t>(args.integer(1), std::int64_t{Limits::max()} + 1);
  if (high <= low)
    args.fail("InternalError", fmt::format("no number of the output's type is in [{}, {})",
                                           args.integer(0), args.integer(1)));
  auto& engine = own_engine();
  std::generate_n(static_cast<T*>(data), count, [&] {
    return static_cast<T>(low + static_cast<std::int64_t>(engine()) % (high - low));
  });
}

void randint(const Args& args, Any*) {
  args.need(3);
  const auto& out = args.tensor(2);
  const auto bytes = checked_bytes(out);
  auto* data = cpu_data(out, "the output");
  const int bits = out.dtype.lanes == 1 ? out.dtype.bits : 0;
  if (out.dtype.code == kDLInt && bits == 8) return fill_ints<std::int8_t>(args, data, bytes);
  if (out.dtype.code == kDLInt && bits == 16) return fill_ints<std::int16_t>(args, data, bytes / 2);
  if (out.dtype.code == kDLInt && bits == 32) return fill_ints<std::int32_t>(args, data, bytes / 4);
  if (out.dtype.code == kDLUInt && bits == 8) return fill_ints<std::uint8_t>(args, data, bytes);
  if (out.dtype.code == kDLUInt && bits == 16)
    return fill_ints<std::uint16_t>(args, data, bytes / 2);
  if (out.dtype.code == kDLUInt && bits == 32)
    return fill_ints<std::uint32_t>(args, data, bytes / 4);
  args.fail("InternalError",
            fmt::format("the output must be int8..int32 or uint8..uint32, but is {}",
                        static_cast<std::string>(tvm::ffi::DLDataTypeToString(out.dtype))));
}

/// One random_fill: `count` elements of `bits` bits, chosen by width whatever their type.
struct Fill {
  std::uint64_t seed;
  int bits;
  std::size_t count;

  template <auto Make>
  void write(void* out, std::size_t from, std::size_t to) const {
    auto* data = static_cast<decltype(Make(seed))*>(out);
    for (auto i = from; i < to; ++i) data[i - from] = Make(mix(seed + i));
  }
  /// Elements [from, to), written at `out`.
  void range(void* out, std::size_t from, std::size_t to) const {
    if (bits == 8) write<fill_byte>(out, from, to);
    if (bits == 16) write<fill_half>(out, from, to);
    if (bits == 32) write<fill_float>(out, from, to);
    if (bits == 64) write<fill_double>(out, from, to);
  }
};

Fill fill_of(const Args& args, const DLTensor& out) {
  const int bits = out.dtype.bits;
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
    args.fail("InternalError",
              fmt::format("Doesn't support dtype code {} dtype bits {}", out.dtype.code, bits));
  auto& engine = own_engine();
  const auto seed = (std::uint64_t{engine()} << 32) | engine();
  const auto count = checked_bytes(out) / static_cast<std::uint64_t>(bits / 8);
  return {seed, bits, static_cast<std::size_t>(count)};
}

/// Memory of another device is filled through a buffer on the host.
void fill_device(const Fill& fill, const DLTensor& out) {
  constexpr std::size_t kElements = 1 << 16;
  auto& api = device_api(out.device.device_type);
  const auto width = static_cast<std::size_t>(fill.bits / 8);
  std::vector<std::byte> buffer(std::min(kElements, fill.count) * width);
  for (std::size_t from = 0; from < fill.count; from += kElements) {
    const auto to = std::min(fill.count, from + kElements);
    fill.range(buffer.data(), from, to);
    api.copy({buffer.data(), 0, {kDLCPU, 0}},
             {out.data, static_cast<std::size_t>(out.byte_offset) + from * width, out.device},
             (to - from) * width, nullptr);
    api.synchronize(out.device, nullptr);
  }
}

void random_fill(const Args& args, Any*) {
  args.need(1);
  const auto& out = args.tensor(0);
  const auto fill = fill_of(args, out);
  if (out.device.device_type != kDLCPU) return fill_device(fill, out);
  fill.range(cpu_data(out, "the output"), 0, fill.count);
}

struct SharedFill {
  Fill fill;
  std::byte* out;
};
int fill_part(int task, TVMParallelGroupEnv* env, void* data) {
  const auto& shared = *static_cast<const SharedFill*>(data);
  const auto parts = static_cast<std::size_t>(env->num_task);
  const auto step = shared.fill.count / parts + 1;
  const auto from = std::min(shared.fill.count, step * static_cast<std::size_t>(task));
  const auto to = std::min(shared.fill.count, from + step);
  shared.fill.range(shared.out + from * static_cast<std::size_t>(shared.fill.bits / 8), from, to);
  return 0;
}

void random_fill_for_measure(const Args& args, Any* result) {
  args.need(1);
  constexpr std::size_t kWorthThreads = 1 << 18;  // elements; below, waking a thread costs more
  const auto& out = args.tensor(0);
  const auto fill = fill_of(args, out);
  if (out.device.device_type != kDLCPU || fill.count < kWorthThreads || inside_parallel_task())
    return random_fill(args, result);
  SharedFill shared{fill, static_cast<std::byte*>(cpu_data(out, "the output"))};
  if (parallel_launch(fill_part, &shared, 0) != 0)
    args.fail("RuntimeError", take_raised_error().value_or("a worker failed"));
}

constexpr Builtin kTable[] = {
    builtin<"tvm.contrib.random.uniform([seed, seed2,] low, high, output)", uniform>(),
    builtin<"tvm.contrib.random.normal([seed, seed2,] mean, deviation, output)", normal>(),
    builtin<"tvm.contrib.random.randint(low, high, output)", randint>(),
    builtin<"tvm.contrib.random.random_fill(output)", random_fill>(),
    builtin<"tvm.contrib.random.random_fill_for_measure(output)", random_fill_for_measure>(),
};

}  // namespace

std::span<const Builtin> random_builtins() {
  return kTable;
}

}  // namespace outpost::vm
