#pragma once
#include <cstdint>

namespace outpost {

/// What one session may ask for. Defaults are limits that no honest client meets.
struct SessionLimits {
  static constexpr std::uint64_t kFrameBytes = 1ULL << 30;
  std::uint64_t frame_bytes_max = kFrameBytes;  ///< one request that is kept in memory as a whole
  std::uint64_t stream_bytes_max = 1ULL << 42;  ///< one upload or copy, which is streamed
  std::uint32_t handles_max = 1U << 22;         ///< live handles of one session
  std::int32_t arguments_max = 4096;            ///< values in one packed sequence
  std::int32_t ndim_max = 64;                   ///< dimensions of one tensor
  std::uint32_t hops_max = 8;                   ///< nested `rpc.Connect` constructors

  /// Largest CopyToRemote frame. Its payload is streamed, so only a frame limit that was lowered,
  /// as on a board with small buffers, binds it.
  std::uint64_t copy_bytes_max() const {
    return frame_bytes_max < kFrameBytes ? frame_bytes_max : stream_bytes_max;
  }
};

}  // namespace outpost
