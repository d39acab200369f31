#include <limits>

#include "format/tensor.h"
#include "outpost/vm/executable.h"

namespace outpost::vm {
namespace {

// Fewest bytes that an entry can take, so that a count is judged before anything is allocated.
constexpr std::size_t kFunctionBytes = 4 + 8 + 4 * 8 + 8;
constexpr std::size_t kScopeBytes = 8 + 8;
constexpr std::size_t kConstantBytes = 4 + 4;

enum class Tag : std::int32_t {
  integer = 1,
  real = 3,
  dtype = 5,
  string = 65,
  shape = 69,
  tensor = 70,
};

Result<std::string> read_text(ByteReader& in, std::string_view what) {
  OUTPOST_TRY(const auto text, in.sized(what));
  return std::string{as_text(text)};
}

Result<std::vector<std::int64_t>> read_numbers(ByteReader& in, std::string_view what) {
  OUTPOST_TRY(const auto n, in.count(sizeof(std::int64_t), what));
  std::vector<std::int64_t> out(n);
  OUTPOST_TRY(const auto raw, in.take(n * sizeof(std::int64_t), what));
  const auto* p = reinterpret_cast<const unsigned char*>(raw.data());
  for (auto& value : out) {
    value = boost::endian::endian_load<std::int64_t, 8, boost::endian::order::little>(p);
    p += sizeof value;
  }
  return out;
}

Error malformed(const ByteReader& in, std::string text) {
  return {Code::malformed, fmt::format("{} (byte {})", text, in.offset())};
}

Result<int> read_head(ByteReader& in) {
  OUTPOST_TRY(const auto magic, in.le<std::uint64_t>("magic"));
  if (magic != kMagicV1 && magic != kMagicV2)
    return malformed(in, fmt::format("magic is {:#018x}, expected {:#018x} or {:#018x}: this is no "
                                     "Relax VM executable",
                                     magic, kMagicV2, kMagicV1));
  OUTPOST_TRY(const auto length, in.le<std::uint64_t>("version length"));
  if (length != kVersion.size())
    return malformed(in, fmt::format("version text has {} bytes, expected {} ('{}')", length,
                                     kVersion.size(), kVersion));
  OUTPOST_TRY(const auto version, in.take(length, "version"));
  if (as_text(version) != kVersion)
    return malformed(in, fmt::format("version is '{}', expected '{}': build the library with a "
                                     "compiler of that version",
                                     as_text(version), kVersion));
  return magic == kMagicV1 ? 1 : 2;
}

Result<Function> read_function(ByteReader& in) {
  Function f;
  OUTPOST_TRY(const auto kind, in.le<std::int32_t>("kind"));
  if (kind < 0 || kind > 2)
    return malformed(in, fmt::format("kind is {}, expected 0 (packed), 1 (VM) or 2 (VMTIR)", kind));
  f.kind = static_cast<FunctionKind>(kind);
  OUTPOST_TRY(f.name, read_text(in, "name"));
  OUTPOST_TRY(f.start, in.le<std::int64_t>("start"));
  OUTPOST_TRY(f.end, in.le<std::int64_t>("end"));
  OUTPOST_TRY(f.num_args, in.le<std::int64_t>("num_args"));
  OUTPOST_TRY(f.registers, in.le<std::int64_t>("registers"));
  OUTPOST_TRY(const auto n, in.count(sizeof(std::uint64_t), "param_names"));
  f.param_names.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    OUTPOST_TRY(auto name, read_text(in, "param_names entry"));
    f.param_names.push_back(std::move(name));
  }
  return f;
}

Result<DLDataType> read_dtype(ByteReader& in) {
  OUTPOST_TRY(const auto code, in.le<std::uint8_t>("dtype code"));
  OUTPOST_TRY(const auto bits, in.le<std::uint8_t>("dtype bits"));
  OUTPOST_TRY(const auto lanes, in.le<std::uint16_t>("dtype lanes"));
  return DLDataType{code, bits, lanes};
}

/// Bytes that the file has for a tensor; the caller has read no byte of them yet.
Result<std::uint64_t> tensor_file_bytes(const ByteReader& in, const TensorConstant& t) {
  std::uint64_t bytes = file_element_bytes(t.dtype);
  bool empty = false;
  for (const auto dim : t.dims) {
    if (dim < 0) return malformed(in, fmt::format("tensor dimension {} is negative", dim));
    empty |= dim == 0;
    if (dim != 0 && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes))
      return malformed(in, "tensor size overflows 64 bits");
  }
  return empty ? 0 : bytes;
}

}  // namespace

Result<TensorConstant> read_tensor(ByteReader& in) {
  OUTPOST_TRY(const auto magic, in.le<std::uint64_t>("tensor magic"));
  if (magic != kTensorMagic)
    return malformed(
        in, fmt::format("tensor magic is {:#018x}, expected {:#018x}", magic, kTensorMagic));
  OUTPOST_TRY(const auto reserved, in.le<std::uint64_t>("tensor reserved word"));
  if (reserved != 0)
    return malformed(in, fmt::format("tensor reserved word is {}, expected 0", reserved));
  OUTPOST_TRY(const auto device, in.le<std::int32_t>("tensor device type"));
  OUTPOST_TRY(const auto id, in.le<std::int32_t>("tensor device id"));
  if (device != kDLCPU || id != 0)
    return malformed(
        in, fmt::format("tensor is on device ({}, {}), expected the cpu (1, 0)", device, id));
  OUTPOST_TRY(const auto ndim, in.le<std::int32_t>("tensor ndim"));
  if (ndim < 0 || ndim > kTensorNdimMax)
    return malformed(in, fmt::format("tensor ndim is {}, expected 0 to {}", ndim, kTensorNdimMax));
  TensorConstant t;
  OUTPOST_TRY(t.dtype, read_dtype(in));
  if (t.dtype.bits == 0 || t.dtype.lanes == 0)
    return malformed(in, "tensor dtype has elements without a size");
  for (std::int32_t i = 0; i < ndim; ++i) {
    OUTPOST_TRY(const auto dim, in.le<std::int64_t>("tensor dimension"));
    t.dims.push_back(dim);
  }
  OUTPOST_TRY(const auto wanted, tensor_file_bytes(in, t));
  OUTPOST_TRY(const auto bytes, in.le<std::int64_t>("tensor byte count"));
  if (bytes < 0 || static_cast<std::uint64_t>(bytes) != wanted)
    return malformed(in, fmt::format("tensor byte count is {}, its shape and dtype {} make {}",
                                     bytes, dtype_text(t.dtype), wanted));
  OUTPOST_TRY(t.data, in.take(wanted, "tensor data"));
  return t;
}

namespace {

Result<Constant> read_constant(ByteReader& in) {
  OUTPOST_TRY(const auto tag, in.le<std::int32_t>("tag"));
  switch (static_cast<Tag>(tag)) {
    case Tag::integer: {
      OUTPOST_TRY(const auto value, in.le<std::int64_t>("int"));
      return Constant{value};
    }
    case Tag::real: {
      OUTPOST_TRY(const auto value, in.le<double>("float"));
      return Constant{value};
    }
    case Tag::dtype: {
      OUTPOST_TRY(const auto value, read_dtype(in));
      return Constant{value};
    }
    case Tag::string: {
      OUTPOST_TRY(auto value, read_text(in, "string"));
      return Constant{std::move(value)};
    }
    case Tag::shape: {
      OUTPOST_TRY(auto value, read_numbers(in, "shape"));
      return Constant{ShapeConstant{std::move(value)}};
    }
    case Tag::tensor: {
      OUTPOST_TRY(auto value, read_tensor(in));
      return Constant{std::move(value)};
    }
  }
  return malformed(in,
                   fmt::format("tag is {}, expected 1 (int), 3 (float), 5 (dtype), 65 (string), "
                               "69 (shape) or 70 (tensor)",
                               tag));
}

Result<MemoryScope> read_scope(ByteReader& in) {
  MemoryScope s;
  OUTPOST_TRY(s.constant, in.le<std::int64_t>("constant index"));
  OUTPOST_TRY(s.scope, read_text(in, "scope"));
  return s;
}

/// A counted section; an error says which entry it was in.
template <class T, class Read>
Result<std::vector<T>> read_section(ByteReader& in, std::string_view name, std::size_t min_bytes,
                                    Read read) {
  std::vector<T> out;
  const auto count = in.count(min_bytes, name);
  if (count.has_error()) return count.error();
  for (std::uint64_t i = 0; i < *count; ++i) {
    auto entry = read(in);
    if (entry.has_error()) return wrap(std::move(entry).error(), fmt::format("{}[{}]", name, i));
    out.push_back(std::move(*entry));
  }
  return out;
}

Result<Executable> read_all(ByteReader in) {
  Executable e;
  OUTPOST_TRY(e.format, read_head(in));
  OUTPOST_TRY(e.functions, read_section<Function>(in, "functions", kFunctionBytes, read_function));
  if (e.format == 2) {
    OUTPOST_TRY(e.scopes, read_section<MemoryScope>(in, "memory scopes", kScopeBytes, read_scope));
  }
  OUTPOST_TRY(e.constants, read_section<Constant>(in, "constants", kConstantBytes, read_constant));
  OUTPOST_TRY(e.offsets, read_numbers(in, "instruction offsets"));
  OUTPOST_TRY(e.words, read_numbers(in, "words"));
  if (in.left() != 0) return malformed(in, fmt::format("{} bytes are left over", in.left()));
  return e;
}

}  // namespace

std::size_t file_element_bytes(DLDataType dtype) {
  return (dtype.bits + std::size_t{7}) / 8;
}

Result<Executable> read_executable(Bytes file) {
  auto e = read_all(ByteReader{file});
  if (e.has_error()) return wrap(std::move(e).error(), "executable refused");
  return e;
}

}  // namespace outpost::vm
