#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace outpost::rpc {

/// Type indices of packed values (rpc-wire.md, Packed sequence).
enum TypeIndex : std::int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kFloat = 3,
  kPointer = 4,
  kDataType = 5,
  kDevice = 6,
  kTensorView = 7,
  kRawString = 8,
  kByteView = 9,
  kSmallString = 11,
  kSmallBytes = 12,
  kObjectBegin = 64,
  kString = 65,
  kBytes = 66,
  kFunction = 68,
  kTensor = 70,
  kModule = 73,
  kRemoteObject = 115,
};

/// A DLPack data type as it lies on the wire: code, bits, lanes.
struct DType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 0;
  bool operator==(const DType&) const = default;
};

/// A DLPack device: plain type number, no session mask.
struct Device {
  std::int32_t type = 0;
  std::int32_t id = 0;
  bool operator==(const Device&) const = default;
};

/// A tensor by reference: which memory, and what lies there. Always compact.
struct TensorView {
  std::uint64_t data = 0;  ///< data handle of the server
  Device device;
  DType dtype;
  Bytes dims;  ///< ndim little-endian i64, borrowed from the frame
  std::uint64_t byte_offset = 0;

  std::int32_t ndim() const { return static_cast<std::int32_t>(dims.size() / 8); }
  std::int64_t dim(std::int32_t i) const {
    return boost::endian::load_little_s64(reinterpret_cast<const unsigned char*>(dims.data()) +
                                          8 * static_cast<std::size_t>(i));
  }
};

/// What a value is, apart from how it was written.
enum class Kind : std::uint8_t {
  none,
  integer,
  boolean,
  real,
  pointer,
  dtype,
  device,
  tensor,
  string,
  bytes,
  function,  ///< a handle, client to server only
  module,    ///< a handle, client to server only
  object,    ///< a handle of any object the server keeps
};
std::string_view name(Kind kind);

/// One decoded value; text, bytes and dims are borrowed from the frame.
struct Value {
  Kind kind = Kind::none;
  std::int32_t index = kNone;  ///< type index on the wire: the outer one when boxed
  bool boxed = false;          ///< string, bytes or object with a boxed header
  std::int64_t integer = 0;    ///< integer, boolean (as sent); handles keep their bits here
  double real = 0;
  DType dtype;
  Device device;
  Bytes data;  ///< string, bytes
  TensorView tensor;

  std::uint64_t handle() const { return static_cast<std::uint64_t>(integer); }
};

/// Bounds of one packed sequence.
struct PackedLimits {
  std::int32_t values_max = 4096;
  std::int32_t ndim_max = 64;
};

/// The i32 count in front of a sequence; malformed when negative, a limit error above values_max,
/// and malformed when the bytes left cannot hold that many (each takes at least 4).
/// @param whole_bytes  bytes of the frame from here on, which may be more than `in` holds yet
Result<std::int32_t> decode_count(ByteReader& in, const PackedLimits& limits,
                                  std::uint64_t whole_bytes);

/// The next value. An error names the field, the byte and what was found.
Result<> decode_value(ByteReader& in, const PackedLimits& limits, Value& out);

/// The head of a string or bytes value whose payload is streamed: reads up to and including the
/// length.
struct PayloadHead {
  Kind kind;
  std::uint64_t bytes;
};
/// Empty when the next value is neither string nor bytes (nothing is consumed that matters then).
Result<std::optional<PayloadHead>> decode_payload_head(ByteReader& in);

/// Count and all values, replacing what `out` held; nothing may follow them.
Result<> decode_packed(Bytes body, const PackedLimits& limits, std::vector<Value>& out);

/// The fields of a tensor after its type index, as in arguments and in the copy requests.
Result<TensorView> decode_tensor(ByteReader& in, std::int32_t ndim_max);

/// Writes values; the caller writes the count first.
class PackedWriter {
 public:
  explicit PackedWriter(ByteWriter out) : out_{out} {}
  void count(std::int32_t n) { out_.le(n); }
  void none() { out_.le<std::int32_t>(kNone); }
  void integer(std::int64_t v) { word(kInt, v); }
  void boolean(bool v) { word(kBool, std::int64_t{v}); }
  void real(double v) { word(kFloat, v); }
  void pointer(std::uint64_t v) { word(kPointer, v); }
  void dtype(DType v);
  void device(Device v);
  void raw_string(std::string_view v) { sized(kRawString, as_bytes(v)); }
  void byte_view(Bytes v) { sized(kByteView, v); }
  /// Only the head of a byte view; `bytes` payload bytes must follow in the frame.
  void byte_view_head(std::uint64_t bytes);
  void boxed_string(std::string_view v);
  void boxed_bytes(Bytes v);
  /// Only the head of boxed bytes; `bytes` payload bytes must follow in the frame.
  void boxed_bytes_head(std::uint64_t bytes);
  void function(std::uint64_t handle) { word(kFunction, handle); }
  void module(std::uint64_t handle) { word(kModule, handle); }
  void object(std::uint64_t handle);
  /// `dims` holds ndim little-endian i64.
  void tensor(const TensorView& v);
  /// Whatever was decoded, in the form it had.
  void value(const Value& v);

 private:
  template <class T>
  void word(std::int32_t index, T v) {
    out_.le(index);
    out_.le(v);
  }
  void sized(std::int32_t index, Bytes v);
  void boxed(std::int32_t outer, std::uint32_t inner);
  ByteWriter out_;
};

/// The fields of a tensor without a type index.
void encode_tensor(ByteWriter& out, const TensorView& tensor);

}  // namespace outpost::rpc
