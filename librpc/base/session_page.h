#pragma once
#include <atomic>
#include <cstdint>

namespace outpost {

/// Why a session ended, as far as the worker could still say.
enum class SessionEnd : std::uint32_t {
  unknown = 0,   ///< the worker said nothing: it was killed or crashed
  shutdown = 1,  ///< the client sent Shutdown
  closed = 2,    ///< the client closed between two frames
  cut = 3,       ///< the client closed inside a frame
  protocol = 4,  ///< bytes that cannot be trusted; `end_text` says which
  limit = 5,     ///< a limit of the session; `end_text` names it
  io = 6,        ///< the socket failed
};

/// Who may write to the client's socket. The worker moves idle -> sending -> idle around each
/// answer; the daemon moves idle -> taken to put a last Exception at a frame border.
enum class Turn : std::uint32_t { idle = 0, sending = 1, taken = 2 };

/// One page of memory that a worker and the daemon share, so that the daemon knows about a session
/// without being asked. The daemon believes nothing in it but for reports: a hostile worker can
/// write anything here.
struct SessionPage {
  std::atomic<Turn> turn{Turn::idle};
  std::atomic<SessionEnd> end{SessionEnd::unknown};
  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> in_bytes{0};
  std::atomic<std::uint64_t> out_bytes{0};
  char end_text[512] = {};  ///< not always terminated: read with a bound

  static constexpr std::size_t kBytes = 4096;  ///< size of the mapping
};
static_assert(sizeof(SessionPage) <= SessionPage::kBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace outpost
