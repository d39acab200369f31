#include "wire/value.h"

namespace outpost::rpc {
namespace {

constexpr std::size_t kSmallBytesMax = 7;  // what fits a 16-byte Any beside its header

bool is_boxed_index(std::int32_t index) {
  return index == kSmallString || index == kSmallBytes || index >= kObjectBegin;
}

Result<> decode_boxed(ByteReader& in, Value& out) {
  OUTPOST_TRY(const auto inner, in.le<std::uint32_t>("boxed value's inner type index"));
  out.boxed = true;
  switch (inner) {
    case kString: {
      out.kind = Kind::string;
      OUTPOST_TRY(out.data, in.sized("boxed string"));
      return {};
    }
    case kBytes: {
      out.kind = Kind::bytes;
      OUTPOST_TRY(out.data, in.sized("boxed bytes"));
      return {};
    }
    case kRemoteObject: {
      out.kind = Kind::object;
      OUTPOST_TRY(out.integer, in.le<std::int64_t>("object handle"));
      return {};
    }
    default:
      return Error{Code::malformed,
                   fmt::format("boxed value of type {} has inner type {}; 65 (string), 66 (bytes) "
                               "and 115 (remote object) are known (byte {})",
                               out.index, inner, in.offset() - 4)};
  }
}

Result<> decode_dtype(ByteReader& in, DType& out) {
  OUTPOST_TRY(out.code, in.le<std::uint8_t>("data type code"));
  OUTPOST_TRY(out.bits, in.le<std::uint8_t>("data type bits"));
  OUTPOST_TRY(out.lanes, in.le<std::uint16_t>("data type lanes"));
  return {};
}

Result<> decode_device(ByteReader& in, Device& out) {
  OUTPOST_TRY(out.type, in.le<std::int32_t>("device type"));
  OUTPOST_TRY(out.id, in.le<std::int32_t>("device id"));
  return {};
}

void encode_dtype(ByteWriter& out, DType v) {
  out.le(v.code);
  out.le(v.bits);
  out.le(v.lanes);
}

}  // namespace

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::none:
      return "None";
    case Kind::integer:
      return "int";
    case Kind::boolean:
      return "bool";
    case Kind::real:
      return "float";
    case Kind::pointer:
      return "pointer";
    case Kind::dtype:
      return "dtype";
    case Kind::device:
      return "device";
    case Kind::tensor:
      return "tensor";
    case Kind::string:
      return "string";
    case Kind::bytes:
      return "bytes";
    case Kind::function:
      return "function";
    case Kind::module:
      return "module";
    case Kind::object:
      return "object";
  }
  return "?";
}

Result<std::int32_t> decode_count(ByteReader& in, const PackedLimits& limits,
                                  std::uint64_t whole_bytes) {
  OUTPOST_TRY(const auto count, in.le<std::int32_t>("argument count"));
  if (count < 0) return Error{Code::malformed, fmt::format("argument count {} is negative", count)};
  if (count > limits.values_max)
    return Error{Code::limit,
                 fmt::format("{} arguments exceed arguments_max {}", count, limits.values_max)};
  if (static_cast<std::uint64_t>(count) > (whole_bytes - 4) / 4)
    return Error{Code::malformed, fmt::format("{} arguments need at least {} bytes, the frame has "
                                              "{} left",
                                              count, 4 * std::int64_t{count}, whole_bytes - 4)};
  return count;
}

Result<> decode_value(ByteReader& in, const PackedLimits& limits, Value& out) {
  out = Value{};
  OUTPOST_TRY(out.index, in.le<std::int32_t>("type index"));
  switch (out.index) {
    case kNone:
      return {};
    case kInt: {
      out.kind = Kind::integer;
      OUTPOST_TRY(out.integer, in.le<std::int64_t>("int"));
      return {};
    }
    case kBool: {
      out.kind = Kind::boolean;
      OUTPOST_TRY(out.integer, in.le<std::int64_t>("bool"));
      return {};
    }
    case kFloat: {
      out.kind = Kind::real;
      OUTPOST_TRY(out.real, in.le<double>("float"));
      return {};
    }
    case kPointer:
    case kFunction:
    case kModule: {
      // Function and module are the two objects that travel without a boxed header.
      out.kind = out.index == kPointer    ? Kind::pointer
                 : out.index == kFunction ? Kind::function
                                          : Kind::module;
      OUTPOST_TRY(out.integer, in.le<std::int64_t>("handle"));
      return {};
    }
    case kDataType: {
      out.kind = Kind::dtype;
      OUTPOST_CHECK(decode_dtype(in, out.dtype));
      OUTPOST_TRY([[maybe_unused]] const auto pad, in.le<std::int32_t>("data type padding"));
      return {};
    }
    case kDevice:
      out.kind = Kind::device;
      return decode_device(in, out.device);
    case kTensorView: {
      out.kind = Kind::tensor;
      OUTPOST_TRY(out.tensor, decode_tensor(in, limits.ndim_max));
      return {};
    }
    case kRawString: {
      out.kind = Kind::string;
      OUTPOST_TRY(out.data, in.sized("string"));
      return {};
    }
    case kByteView: {
      out.kind = Kind::bytes;
      OUTPOST_TRY(out.data, in.sized("bytes"));
      return {};
    }
    default:
      break;
  }
  if (is_boxed_index(out.index)) return decode_boxed(in, out);
  return Error{Code::malformed,
               fmt::format("type index {} is unknown (byte {})", out.index, in.offset() - 4)};
}

Result<std::optional<PayloadHead>> decode_payload_head(ByteReader& in) {
  OUTPOST_TRY(const auto index, in.le<std::int32_t>("type index"));
  std::optional<Kind> kind;
  if (index == kRawString) kind = Kind::string;
  if (index == kByteView) kind = Kind::bytes;
  if (!kind && index != kFunction && index != kModule && is_boxed_index(index)) {
    OUTPOST_TRY(const auto inner, in.le<std::uint32_t>("boxed value's inner type index"));
    if (inner == kString) kind = Kind::string;
    if (inner == kBytes) kind = Kind::bytes;
  }
  if (!kind) return std::optional<PayloadHead>{};
  OUTPOST_TRY(const auto bytes, in.le<std::uint64_t>("payload length"));
  return std::optional{PayloadHead{*kind, bytes}};
}

Result<> decode_packed(Bytes body, const PackedLimits& limits, std::vector<Value>& out) {
  out.clear();
  ByteReader in{body};
  OUTPOST_TRY(const auto count, decode_count(in, limits, body.size()));
  out.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i)
    if (auto r = decode_value(in, limits, out[i]); r.has_error())
      return wrap(std::move(r).error(), fmt::format("argument {} of {}", i, count));
  if (in.left() != 0)
    return Error{Code::malformed,
                 fmt::format("{} bytes left over behind {} arguments", in.left(), count)};
  return {};
}

Result<TensorView> decode_tensor(ByteReader& in, std::int32_t ndim_max) {
  TensorView out;
  OUTPOST_TRY(out.data, in.le<std::uint64_t>("tensor's data handle"));
  OUTPOST_CHECK(decode_device(in, out.device));
  OUTPOST_TRY(const auto ndim, in.le<std::int32_t>("tensor's ndim"));
  if (ndim < 0) return Error{Code::malformed, fmt::format("tensor's ndim {} is negative", ndim)};
  if (ndim > ndim_max)
    return Error{Code::limit, fmt::format("tensor's ndim {} exceeds ndim_max {}", ndim, ndim_max)};
  OUTPOST_CHECK(decode_dtype(in, out.dtype));
  OUTPOST_TRY(out.dims, in.take(8 * static_cast<std::uint64_t>(ndim), "tensor's shape"));
  OUTPOST_TRY(out.byte_offset, in.le<std::uint64_t>("tensor's byte offset"));
  return out;
}

void PackedWriter::dtype(DType v) {
  out_.le<std::int32_t>(kDataType);
  encode_dtype(out_, v);
  out_.le<std::int32_t>(0);
}

void PackedWriter::device(Device v) {
  out_.le<std::int32_t>(kDevice);
  out_.le(v.type);
  out_.le(v.id);
}

void PackedWriter::sized(std::int32_t index, Bytes v) {
  out_.le(index);
  out_.sized(v);
}

void PackedWriter::byte_view_head(std::uint64_t bytes) {
  word(kByteView, bytes);
}

void PackedWriter::boxed(std::int32_t outer, std::uint32_t inner) {
  out_.le(outer);
  out_.le(inner);
}

void PackedWriter::boxed_string(std::string_view v) {
  boxed(v.size() <= kSmallBytesMax ? kSmallString : kString, kString);
  out_.sized(as_bytes(v));
}

void PackedWriter::boxed_bytes(Bytes v) {
  boxed_bytes_head(v.size());
  out_.bytes(v);
}

void PackedWriter::boxed_bytes_head(std::uint64_t bytes) {
  boxed(bytes <= kSmallBytesMax ? kSmallBytes : kBytes, kBytes);
  out_.le(bytes);
}

void PackedWriter::object(std::uint64_t handle) {
  boxed(kRemoteObject, kRemoteObject);
  out_.le(handle);
}

void PackedWriter::tensor(const TensorView& v) {
  out_.le<std::int32_t>(kTensorView);
  encode_tensor(out_, v);
}

void PackedWriter::value(const Value& v) {
  switch (v.kind) {
    case Kind::none:
      return none();
    case Kind::integer:
      return integer(v.integer);
    case Kind::boolean:
      return word(kBool, v.integer);
    case Kind::real:
      return real(v.real);
    case Kind::pointer:
    case Kind::function:
    case Kind::module:
      return word(v.index, v.integer);
    case Kind::dtype:
      return dtype(v.dtype);
    case Kind::device:
      return device(v.device);
    case Kind::tensor:
      return tensor(v.tensor);
    case Kind::string:
      if (!v.boxed) return sized(kRawString, v.data);
      boxed(v.index, kString);
      return out_.sized(v.data);
    case Kind::bytes:
      if (!v.boxed) return sized(kByteView, v.data);
      boxed(v.index, kBytes);
      return out_.sized(v.data);
    case Kind::object:
      boxed(v.index, kRemoteObject);
      return out_.le(v.integer);
  }
}

void encode_tensor(ByteWriter& out, const TensorView& tensor) {
  out.le(tensor.data);
  out.le(tensor.device.type);
  out.le(tensor.device.id);
  out.le(tensor.ndim());
  encode_dtype(out, tensor.dtype);
  out.bytes(tensor.dims);
  out.le(tensor.byte_offset);
}

}  // namespace outpost::rpc
