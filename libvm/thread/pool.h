#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "thread/plan.h"

/// What a task is given beside its number and data; laid out as generated code expects it.
struct TVMParallelGroupEnv {
  void* sync_handle;
  std::int32_t num_task;
};

namespace outpost::vm {

using ParallelTask = int (*)(int task, TVMParallelGroupEnv* env, void* data);

/// Where the tasks of one launch wait for each other. A task that ended can never arrive, so the
/// others learn that instead of waiting for ever.
class TaskBarrier {
 public:
  explicit TaskBarrier(int tasks) : tasks_{tasks} {}
  /// False when a task ended without coming here.
  bool wait();
  void task_ended();

 private:
  const int tasks_;
  std::atomic<int> arrived_{0};
  std::atomic<int> ended_{0};
  std::atomic<std::uint32_t> generation_{0};
};

/// Worker threads of one launching thread. Made at its first launch with more than one worker;
/// joins them when it goes. The calling thread runs task 0 unless told otherwise.
class ThreadPool {
 public:
  /// @param spin_rounds  how long a thread that waits looks again before it sleeps
  /// @throws tvm::ffi::Error when a thread cannot be started
  ThreadPool(const ThreadPlan& plan, bool caller_runs_task, int spin_rounds);
  ~ThreadPool();

  int workers() const { return workers_; }

  /// Runs tasks 0..tasks-1, 1 <= tasks <= workers(), each on its own thread, and returns when all
  /// have ended. The errors of those that failed, one line each; empty when none did.
  std::string run(ParallelTask f, void* data, int tasks);

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> launch{0};  ///< changes when there is work, or the end
    int task = 0;
    std::string error;
    std::thread thread;
  };
  struct Launch {
    ParallelTask f;
    void* data;
    TVMParallelGroupEnv env;
    TaskBarrier barrier;
  };
  void serve(Slot& slot, const std::vector<int>& cores);
  void stop();
  static std::string run_task(Launch& launch, int task);

  const int workers_;
  const int spin_rounds_;
  const bool caller_runs_task_;
  std::vector<std::unique_ptr<Slot>> slots_;  ///< one per thread of ours
  Launch* current_ = nullptr;                 ///< null tells the workers to end
  alignas(64) std::atomic<int> pending_{0};
};

/// Runs task 0 of 1 on the calling thread and hands its result and error on as they are.
int run_single_task(ParallelTask f, void* data);
/// Whether this thread is inside a task, where a launch is refused.
bool inside_parallel_task();

}  // namespace outpost::vm
