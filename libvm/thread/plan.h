#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace outpost::vm {

/// One processor that this process may run on.
struct Core {
  int id;
  long khz_max;  ///< 0 when the system does not say
};

/// What the environment says about threads; empty where a variable is unset or no number.
struct ThreadEnvironment {
  std::optional<int> workers = {};      ///< TVM_NUM_THREADS, else OMP_NUM_THREADS
  bool pin = false;                     ///< TVM_BIND_THREADS=1
  bool caller_runs_task = true;         ///< TVM_EXCLUDE_WORKER0 is not 0
  std::optional<int> spin_rounds = {};  ///< TVM_THREAD_POOL_SPIN_COUNT
};

/// How many tasks run at once, and where. An empty `cores` leaves a worker where the system puts
/// it.
struct ThreadPlan {
  int workers = 1;
  std::vector<std::vector<int>> cores;  ///< per worker, `workers` of them, or none at all

  bool operator==(const ThreadPlan&) const = default;
};

/// Modes of runtime.config_threadpool that have a meaning of their own.
enum class ThreadMode : int { big = 1, little = -1, one_core_each = -2, all_share = -3 };

inline constexpr int kWorkersMax = 1024;

/// The number at the start of `text`; empty when there is none, or it is not positive.
std::optional<int> leading_number(std::string_view text);

/// Before anyone asked: the environment's count, else the processors, halved where two of them
/// are usually one core.
ThreadPlan default_plan(const ThreadEnvironment& env, const std::vector<Core>& cores,
                        bool halve_cores);

/// runtime.config_threadpool(mode, threads, listed): `threads` 0 or less takes the mode's own
/// count. Never more workers than the processors or the environment allow, never less than one.
ThreadPlan configured_plan(int mode, int threads, const std::vector<int>& listed,
                           const ThreadEnvironment& env, const std::vector<Core>& cores,
                           bool halve_cores);

/// Busy-wait rounds of a worker that waits for work: none when workers outnumber the processors.
int spin_rounds(const ThreadEnvironment& env, int workers, std::size_t cores);

}  // namespace outpost::vm
