#pragma once
#include <cstdint>
#include <type_traits>

namespace outpost::server {

// What daemon, zygote and workers say to each other: structs of fixed size over SOCK_SEQPACKET
// pairs, all on one machine and from one build. No text that a client chose travels here.

/// Daemon to zygote: fork that many workers, numbered from `first_worker`.
struct ForkRequest {
  std::uint64_t first_worker = 0;
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
};

/// Daemon to a spare worker, with the client's socket: begin.
struct StartRequest {
  std::uint64_t session = 0;
};

/// Zygote to daemon.
struct ZygoteEvent {
  enum class Kind : std::uint32_t {
    ready = 1,   ///< libraries are loaded
    spare = 2,   ///< a worker waits; descriptors: pidfd, control, page, output
    ended = 3,   ///< a worker and all its descendants are gone, its folder too
    failed = 4,  ///< the zygote cannot work; `text` says why
  };
  Kind kind = Kind::ready;
  std::int32_t pid = 0;
  std::uint64_t worker = 0;
  std::int32_t wait_status = 0;  ///< of ended, as from waitpid
  std::uint32_t killed = 0;      ///< descendants that had to be killed
  std::uint64_t cpu_us = 0;      ///< of the worker and what it waited for
  std::uint64_t memory_kb_max = 0;
  char text[512] = {};
};
static_assert(std::is_trivially_copyable_v<ZygoteEvent>);

/// Order of the descriptors that come with `spare`.
enum SpareFd : std::size_t { kSparePidFd, kSpareControl, kSparePage, kSpareOutput };

/// The descriptor under which the zygote finds its end of the channel.
inline constexpr int kChannelFd = 3;

}  // namespace outpost::server
