#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace outpost::rpc {

/// The protocol version both sides must name in InitServer.
inline constexpr std::string_view kProtocolVersion = "0.8.0";

/// Codes of a frame (rpc-wire.md, Frames).
enum class FrameCode : std::int32_t {
  shutdown = 1,
  init_server = 2,
  call_func = 3,
  return_value = 4,
  exception = 5,
  copy_from_remote = 6,
  copy_to_remote = 7,
  copy_ack = 8,
  get_global_func = 9,
  free_handle = 10,
  dev_set_device = 11,
  dev_get_attr = 12,
  dev_alloc_data = 13,
  dev_free_data = 14,
  dev_stream_sync = 15,
  copy_among_remote = 16,
  dev_alloc_data_with_scope = 17,
  dev_create_stream = 18,
  dev_free_stream = 19,
  dev_set_stream = 20,
  dev_get_current_stream = 21,
};
/// "CallFunc", ...; "code 99" for an unknown number.
std::string name(FrameCode code);

/// u64 body length and i32 code, which begins the body.
struct FrameHead {
  std::uint64_t body_bytes;
  FrameCode code;
  static constexpr std::size_t kBytes = 12;
};

/// Reads a head; empty while fewer than 12 bytes are there. A zero-length packet is skipped: it
/// then reports `skipped_bytes` in front of the head. Malformed: a body of 1 to 3 bytes.
Result<std::optional<FrameHead>> parse_frame_head(Bytes received, std::size_t& skipped_bytes);

/// Cuts a byte stream into whole frame bodies. Knows no sockets.
/// Use: read into prepare(), commit(n), then next() until it has no value.
class FrameReader {
 public:
  explicit FrameReader(std::uint64_t frame_bytes_max) : frame_bytes_max_{frame_bytes_max} {}

  /// Room for at least one more byte; grows with what was received, not with what a length
  /// promises.
  std::span<std::byte> prepare();
  void commit(std::size_t size);

  /// The next body (code included), valid until prepare(); empty when more bytes are needed.
  /// An error is final: the stream has lost its framing, so close the connection.
  Result<std::optional<Bytes>> next();

 private:
  Bytes unread() const { return Bytes{buffer_}.subspan(begin_, end_ - begin_); }
  std::uint64_t frame_bytes_max_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // first byte not yet handed out
  std::size_t end_ = 0;    // one past the last byte committed
};

/// Opens a frame at the end of a buffer: writes a length that `close_frame` fills in, and the code.
/// @return where the frame begins
std::size_t open_frame(ByteWriter& out, FrameCode code);

/// Sets the length of the frame that began at `begin`; `more_bytes` of its body are sent
/// separately.
void close_frame(ByteWriter& out, std::size_t begin, std::uint64_t more_bytes = 0);

}  // namespace outpost::rpc
