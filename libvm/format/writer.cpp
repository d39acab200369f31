#include "format/tensor.h"
#include "outpost/vm/executable.h"

namespace outpost::vm {
namespace {

void write_numbers(ByteWriter& out, const std::vector<std::int64_t>& numbers) {
  out.le<std::uint64_t>(numbers.size());
  for (const auto n : numbers) out.le(n);
}

void write_dtype(ByteWriter& out, DLDataType dtype) {
  out.le(dtype.code);
  out.le(dtype.bits);
  out.le(dtype.lanes);
}

void write_function(ByteWriter& out, const Function& f) {
  out.le(static_cast<std::int32_t>(f.kind));
  out.sized(as_bytes(f.name));
  out.le(f.start);
  out.le(f.end);
  out.le(f.num_args);
  out.le(f.registers);
  out.le<std::uint64_t>(f.param_names.size());
  for (const auto& name : f.param_names) out.sized(as_bytes(name));
}

struct ConstantWriter {
  ByteWriter& out;
  void operator()(std::int64_t v) const {
    out.le<std::int32_t>(1);
    out.le(v);
  }
  void operator()(double v) const {
    out.le<std::int32_t>(3);
    out.le(v);
  }
  void operator()(DLDataType v) const {
    out.le<std::int32_t>(5);
    write_dtype(out, v);
  }
  void operator()(const std::string& v) const {
    out.le<std::int32_t>(65);
    out.sized(as_bytes(v));
  }
  void operator()(const ShapeConstant& v) const {
    out.le<std::int32_t>(69);
    write_numbers(out, v.dims);
  }
  void operator()(const TensorConstant& v) const {
    out.le<std::int32_t>(70);
    write_tensor(out, v);
  }
};

}  // namespace

void write_tensor(ByteWriter& out, const TensorConstant& v) {
  out.le(kTensorMagic);
  out.le<std::uint64_t>(0);
  out.le<std::int32_t>(kDLCPU);
  out.le<std::int32_t>(0);
  out.le(static_cast<std::int32_t>(v.dims.size()));
  write_dtype(out, v.dtype);
  for (const auto dim : v.dims) out.le(dim);
  out.le(static_cast<std::int64_t>(v.data.size()));
  out.bytes(v.data);
}

std::vector<std::byte> write_executable(const Executable& e) {
  std::vector<std::byte> bytes;
  ByteWriter out{bytes};
  out.le(e.format == 1 ? kMagicV1 : kMagicV2);
  out.sized(as_bytes(kVersion));
  out.le<std::uint64_t>(e.functions.size());
  for (const auto& f : e.functions) write_function(out, f);
  if (e.format != 1) {
    out.le<std::uint64_t>(e.scopes.size());
    for (const auto& s : e.scopes) {
      out.le(s.constant);
      out.sized(as_bytes(s.scope));
    }
  }
  out.le<std::uint64_t>(e.constants.size());
  for (const auto& c : e.constants) std::visit(ConstantWriter{out}, c);
  write_numbers(out, e.offsets);
  write_numbers(out, e.words);
  return bytes;
}

}  // namespace outpost::vm
