#pragma once
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include "base/handle_table.h"
#include "base/limits.h"
#include "device/device_api.h"
#include "wire/value.h"

namespace outpost::host {

/// Functions of the server whose large argument or result is streamed instead of built in memory.
enum class Streamed : std::uint8_t { no, upload, download, download_linked_module };

/// One thing a session gave out: an object with one reference, or memory that a tensor argument can
/// name.
struct Entry {
  enum class Kind : std::uint8_t { none, object, memory, stream };
  Kind kind = Kind::none;
  Streamed streamed = Streamed::no;
  bool allocated = false;      ///< by DevAlloc*: given back by DevFreeData, else by FreeHandle
  tvm::ffi::Any object{};      ///< the object; for memory the tensor that owns it
  void* data = nullptr;        ///< memory: what the device's allocator gave
  std::uint64_t offset = 0;    ///< memory: where the client's tensor begins
  std::uint64_t bytes = 0;     ///< memory: how many bytes from there on are its
  DLDevice device{kDLCPU, 0};  ///< memory and stream
};

/// The objects of one session by handle, and the way between packed values and tvm-ffi values.
class Objects {
 public:
  explicit Objects(const SessionLimits& limits) : limits_{limits}, table_{limits.handles_max} {}

  Result<Handle> add(Entry entry) { return table_.add(std::move(entry)); }
  Result<Entry*> find(std::uint64_t handle) { return table_.find(Handle{handle}); }
  Result<Entry> take(std::uint64_t handle) { return table_.take(Handle{handle}); }
  std::size_t live() const { return table_.live(); }

  /// Memory behind a tensor that the client named, with the bytes `[offset, offset + bytes)` of the
  /// entry checked.
  struct Span {
    Entry* entry;
    vm::DeviceApi* api;
    std::uint64_t offset;  ///< from `entry->data`
  };
  Result<Span> span(const rpc::TensorView& tensor, std::uint64_t bytes);

  /// Bytes of the whole tensor; an error when its shape overflows or is negative.
  Result<std::uint64_t> tensor_bytes(const rpc::TensorView& tensor) const;

  /// Turns decoded values into call arguments; `keep` owns what they point to until the call is
  /// over.
  Result<> to_arguments(std::span<const rpc::Value> values, std::vector<TVMFFIAny>& out,
                        std::vector<tvm::ffi::Any>& keep, std::vector<TVMFFIByteArray>& views);

  /// Appends the values of a Return of CallFunc (count, tag, value). A bytes result is left to the
  /// caller to send behind the frame when it is large: then `payload` borrows from `result`.
  Result<> write_result(rpc::PackedWriter& out, const tvm::ffi::Any& result, Bytes& payload);

 private:
  Result<> tensor_argument(const rpc::TensorView& view, TVMFFIAny& out,
                           std::vector<tvm::ffi::Any>& keep);
  Result<> write_tensor(rpc::PackedWriter& out, const tvm::ffi::Tensor& tensor);

  const SessionLimits& limits_;
  HandleTable<Entry> table_;
};

/// DLPack and wire forms of the same thing.
inline DLDevice to_dlpack(rpc::Device d) {
  return {static_cast<DLDeviceType>(d.type), d.id};
}
inline DLDataType to_dlpack(rpc::DType t) {
  return {t.code, t.bits, t.lanes};
}
inline rpc::Device to_wire(DLDevice d) {
  return {static_cast<std::int32_t>(d.device_type), d.device_id};
}
inline rpc::DType to_wire(DLDataType t) {
  return {t.code, t.bits, t.lanes};
}

}  // namespace outpost::host
