#include "thread/launch.h"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <optional>

#include "raised.h"
#include "thread/host.h"

namespace outpost::vm {
namespace {

std::atomic<unsigned> forks{0};

/// A forked child has the pool's memory but none of its threads.
void count_forks() {
  static const bool once = [] {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    return true;
  }();
  (void)once;
}

/// Threads of one launching thread. Nothing is read or started before the first launch.
class Threads {
 public:
  Threads() = default;
  ~Threads() { drop_pool(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  const ThreadPlan& plan() {
    if (!plan_) {
      const auto env = thread_environment();
      auto cores = usable_cores();
      if (env.pin) read_speeds(cores);
      plan_ = default_plan(env, cores, cores_are_halved());
    }
    return *plan_;
  }

  void configure(int mode, int threads, const std::vector<int>& listed) {
    auto cores = usable_cores();
    read_speeds(cores);
    auto next =
        configured_plan(mode, threads, listed, thread_environment(), cores, cores_are_halved());
    if (plan_ == next) return;
    drop_pool();
    plan_ = std::move(next);
  }

  ThreadPool& pool() {
    if (pool_ && pool_forks_ != forks.load(std::memory_order_relaxed)) drop_pool();
    if (!pool_) {
      count_forks();
      const auto env = thread_environment();
      const auto rounds = spin_rounds(env, plan().workers, usable_cores().size());
      pool_ = std::make_unique<ThreadPool>(plan(), env.caller_runs_task, rounds);
      pool_forks_ = forks.load(std::memory_order_relaxed);
    }
    return *pool_;
  }

 private:
  void drop_pool() {
    // After a fork there is nobody to join: the memory is all that is left of the pool.
    if (pool_ && pool_forks_ != forks.load(std::memory_order_relaxed)) (void)pool_.release();
    pool_.reset();
  }
  std::optional<ThreadPlan> plan_;
  std::unique_ptr<ThreadPool> pool_;
  unsigned pool_forks_ = 0;
};

Threads& threads() {
  thread_local Threads own;
  return own;
}

}  // namespace

int parallel_launch(ParallelTask f, void* data, int tasks) {
  return guarded([&] {
    if (inside_parallel_task())
      return raise_error("RuntimeError", "parallel launch from inside a task of another one");
    const int workers = threads().plan().workers;
    if (tasks < 0 || (tasks > workers && workers > 1))
      return raise_error("RuntimeError", "parallel launch of " + std::to_string(tasks) +
                                             " tasks, but there are " + std::to_string(workers) +
                                             " workers");
    if (workers == 1) return run_single_task(f, data);
    const auto errors = threads().pool().run(f, data, tasks == 0 ? workers : tasks);
    return errors.empty() ? 0 : raise_error("RuntimeError", errors);
  });
}

int parallel_barrier(int, TVMParallelGroupEnv* env) {
  if (static_cast<TaskBarrier*>(env->sync_handle)->wait()) return 0;
  return raise_error("RuntimeError", "a task ended before the barrier that others wait at");
}

int thread_workers() {
  return threads().plan().workers;
}

void configure_threads(int mode, int count, const std::vector<int>& listed) {
  threads().configure(mode, count, listed);
}

}  // namespace outpost::vm
