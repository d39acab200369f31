#include "thread/pool.h"

#include <tvm/ffi/error.h>

#include <system_error>
#include <utility>

#include "base/assert.h"
#include "raised.h"
#include "thread/host.h"

namespace outpost::vm {
namespace {

thread_local bool inside_task = false;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once `value` differs from `old`: looks `rounds` times, then sleeps.
template <class T>
T wait_for_change(const std::atomic<T>& value, T old, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (const T now = value.load(std::memory_order_acquire); now != old) return now;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

bool inside_parallel_task() {
  return inside_task;
}

int run_single_task(ParallelTask f, void* data) {
  TaskBarrier barrier{1};
  TVMParallelGroupEnv env{&barrier, 1};
  inside_task = true;
  const int code = f(0, &env, data);
  inside_task = false;
  return code;
}

bool TaskBarrier::wait() {
  const auto generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    return true;
  }
  for (;;) {
    if (generation_.load(std::memory_order_acquire) != generation) return true;
    // Whoever passed this barrier may end before we look; only then has the generation changed.
    if (ended_.load(std::memory_order_acquire) != 0)
      return generation_.load(std::memory_order_acquire) != generation;
    std::this_thread::yield();
  }
}

void TaskBarrier::task_ended() {
  ended_.fetch_add(1, std::memory_order_release);
}

ThreadPool::ThreadPool(const ThreadPlan& plan, bool caller_runs_task, int spin_rounds)
    : workers_{plan.workers}, spin_rounds_{spin_rounds}, caller_runs_task_{caller_runs_task} {
  const auto first = static_cast<std::size_t>(caller_runs_task_ ? 1 : 0);
  if (caller_runs_task_ && !plan.cores.empty()) pin_current_thread(plan.cores.front());
  for (auto i = first; i < static_cast<std::size_t>(workers_); ++i) {
    auto& slot = *slots_.emplace_back(std::make_unique<Slot>());
    auto cores = plan.cores.empty() ? std::vector<int>{} : plan.cores[i];
    try {
      slot.thread = std::thread{[this, &slot, c = std::move(cores)] { serve(slot, c); }};
    } catch (const std::system_error& e) {
      slots_.pop_back();
      stop();
      TVM_FFI_THROW(RuntimeError) << "cannot start worker thread " << i << " of " << workers_
                                  << ": " << e.what() << "; set TVM_NUM_THREADS lower";
    }
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  current_ = nullptr;
  for (auto& slot : slots_) {
    slot->launch.fetch_add(1, std::memory_order_release);
    slot->launch.notify_one();
  }
  for (auto& slot : slots_) slot->thread.join();
}

void ThreadPool::serve(Slot& slot, const std::vector<int>& cores) {
  // A core that went offline is no reason to fail a launch: the thread just runs elsewhere.
  if (!cores.empty()) pin_current_thread(cores);
  std::uint32_t seen = 0;
  for (;;) {
    seen = wait_for_change(slot.launch, seen, spin_rounds_);
    if (current_ == nullptr) return;
    slot.error = run_task(*current_, slot.task);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

std::string ThreadPool::run_task(Launch& launch, int task) {
  inside_task = true;
  const int code = launch.f(task, &launch.env, launch.data);
  inside_task = false;
  launch.barrier.task_ended();
  if (code == 0) return {};
  std::string text = "returned " + std::to_string(code);
  if (auto raised = take_raised_error()) text = *std::move(raised);
  return "Task " + std::to_string(task) + " error: " + text + "\n";
}

std::string ThreadPool::run(ParallelTask f, void* data, int tasks) {
  OUTPOST_ASSERT(tasks >= 1 && tasks <= workers_);
  Launch launch{f, data, {nullptr, tasks}, TaskBarrier{tasks}};
  launch.env.sync_handle = &launch.barrier;
  current_ = &launch;
  int task = caller_runs_task_ ? 1 : 0;
  const auto used = static_cast<std::size_t>(tasks - task);
  pending_.store(static_cast<int>(used), std::memory_order_relaxed);
  for (std::size_t i = 0; i < used; ++i) {
    slots_[i]->task = task++;
    slots_[i]->launch.fetch_add(1, std::memory_order_release);
    slots_[i]->launch.notify_one();
  }
  std::string errors;
  if (caller_runs_task_) errors = run_task(launch, 0);
  for (int left = pending_.load(std::memory_order_acquire); left != 0;)
    left = wait_for_change(pending_, left, spin_rounds_);
  for (std::size_t i = 0; i < used; ++i) errors += std::exchange(slots_[i]->error, {});
  if (!errors.empty()) errors.pop_back();
  return errors;
}

}  // namespace outpost::vm
