#include "thread/launch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "raised.h"

namespace outpost::vm {
namespace {

constexpr int kWorkers = 4;

/// Runs the body on a thread of its own, whose launches have `workers` workers.
template <class F>
void with_workers(int workers, F&& body) {
  setenv("TVM_NUM_THREADS", std::to_string(workers).c_str(), 1);
  std::thread{std::forward<F>(body)}.join();
  unsetenv("TVM_NUM_THREADS");
}

struct Seen {
  std::vector<std::atomic<int>> runs = std::vector<std::atomic<int>>(16);
  std::atomic<int> num_task{0};
};
int note(int task, TVMParallelGroupEnv* env, void* data) {
  auto& seen = *static_cast<Seen*>(data);
  seen.runs[static_cast<std::size_t>(task)].fetch_add(1);
  seen.num_task = env->num_task;
  return 0;
}

TEST(ParallelLaunch, ZeroTasksMeansOneForEachWorker) {
  with_workers(kWorkers, [] {
    for (int round = 0; round < 200; ++round) {
      Seen seen;
      ASSERT_EQ(parallel_launch(note, &seen, 0), 0);
      EXPECT_EQ(seen.num_task, kWorkers);
      for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(seen.runs[i], i < kWorkers ? 1 : 0);
    }
  });
}

TEST(ParallelLaunch, FewerTasksRunOnTheFirstWorkers) {
  with_workers(kWorkers, [] {
    Seen seen;
    ASSERT_EQ(parallel_launch(note, &seen, 2), 0);
    EXPECT_EQ(seen.num_task, 2);
    EXPECT_EQ(seen.runs[1], 1);
    EXPECT_EQ(seen.runs[2], 0);
  });
}

TEST(ParallelLaunch, OneWorkerRunsOneTaskWhateverIsAsked) {
  with_workers(1, [] {
    Seen seen;
    ASSERT_EQ(parallel_launch(note, &seen, 8), 0);
    EXPECT_EQ(seen.num_task, 1);
    EXPECT_EQ(seen.runs[0], 1);
  });
}

TEST(ParallelLaunch, ACountThatDoesNotFitIsAnError) {
  with_workers(kWorkers, [] {
    Seen seen;
    EXPECT_EQ(parallel_launch(note, &seen, kWorkers + 1), -1);
    EXPECT_EQ(take_raised_error(), "parallel launch of 5 tasks, but there are 4 workers");
    EXPECT_EQ(parallel_launch(note, &seen, -1), -1);
    EXPECT_TRUE(take_raised_error());
    EXPECT_EQ(seen.runs[0], 0);
  });
}

int fail_when_odd(int task, TVMParallelGroupEnv*, void*) {
  if (task % 2 == 0) return 0;
  if (task == 3) return 7;
  return raise_error("ValueError", "odd");
}

TEST(ParallelLaunch, JoinsTheErrorsOfItsTasks) {
  with_workers(kWorkers, [] {
    EXPECT_EQ(parallel_launch(fail_when_odd, nullptr, 0), -1);
    EXPECT_EQ(take_raised_error(), "Task 1 error: odd\nTask 3 error: returned 7");
    Seen seen;
    EXPECT_EQ(parallel_launch(note, &seen, 0), 0) << "the pool goes on after a failure";
  });
}

TEST(ParallelLaunch, OneWorkerHandsItsErrorOn) {
  with_workers(1, [] {
    const auto fail = [](int, TVMParallelGroupEnv*, void*) {
      return raise_error("ValueError", "no");
    };
    EXPECT_EQ(parallel_launch(fail, nullptr, 0), -1);
    EXPECT_EQ(take_raised_error(), "no");
  });
}

int launch_again(int, TVMParallelGroupEnv*, void* data) {
  return parallel_launch(note, data, 0);
}

TEST(ParallelLaunch, ANestedLaunchIsAnError) {
  for (const int workers : {1, kWorkers})
    with_workers(workers, [] {
      Seen seen;
      EXPECT_EQ(parallel_launch(launch_again, &seen, 0), -1);
      EXPECT_NE(take_raised_error().value_or("").find("inside a task"), std::string::npos);
      EXPECT_EQ(seen.runs[0], 0);
    });
}

struct Steps {
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
};
int meet_often(int task, TVMParallelGroupEnv* env, void* data) {
  auto& steps = *static_cast<Steps*>(data);
  for (int round = 1; round <= 100; ++round) {
    steps.arrived.fetch_add(1);
    if (parallel_barrier(task, env) != 0) return -1;
    if (steps.arrived.load() < round * env->num_task) steps.early = true;
    if (parallel_barrier(task, env) != 0) return -1;
  }
  return 0;
}

TEST(ParallelBarrier, IsReusableAndLetsNobodyThroughEarly) {
  for (const int workers : {1, 2, kWorkers})
    with_workers(workers, [] {
      Steps steps;
      ASSERT_EQ(parallel_launch(meet_often, &steps, 0), 0);
      EXPECT_FALSE(steps.early);
    });
}

int one_stays_away(int task, TVMParallelGroupEnv* env, void*) {
  return task == 0 ? 0 : parallel_barrier(task, env);
}

TEST(ParallelBarrier, ATaskThatEndedIsAnErrorForThoseWhoWait) {
  with_workers(2, [] {
    EXPECT_EQ(parallel_launch(one_stays_away, nullptr, 0), -1);
    EXPECT_EQ(take_raised_error(),
              "Task 1 error: a task ended before the barrier that others wait at");
  });
}

TEST(ThreadSettings, CanBeChangedBetweenLaunches) {
  with_workers(kWorkers, [] {
    Seen seen;
    EXPECT_EQ(thread_workers(), kWorkers);
    ASSERT_EQ(parallel_launch(note, &seen, 0), 0);
    configure_threads(-1, 2, {});
    EXPECT_EQ(thread_workers(), 2);
    ASSERT_EQ(parallel_launch(note, &seen, 0), 0);
    EXPECT_EQ(seen.num_task, 2);
    configure_threads(0, 0, {});
    EXPECT_EQ(thread_workers(), kWorkers);
  });
}

TEST(ThreadSettings, BelongToTheCallingThread) {
  with_workers(kWorkers, [] {
    configure_threads(0, 2, {});
    std::thread{[] { EXPECT_EQ(thread_workers(), kWorkers); }}.join();
  });
}

TEST(ThreadSettings, ACallerThatRunsNoTaskWaitsForAWorkerMore) {
  setenv("TVM_EXCLUDE_WORKER0", "0", 1);
  with_workers(2, [] {
    std::atomic<bool> on_caller{false};
    struct Data {
      std::thread::id caller;
      std::atomic<bool>* hit;
    } data{std::this_thread::get_id(), &on_caller};
    const auto look = [](int, TVMParallelGroupEnv*, void* p) {
      auto& d = *static_cast<Data*>(p);
      if (std::this_thread::get_id() == d.caller) *d.hit = true;
      return 0;
    };
    ASSERT_EQ(parallel_launch(look, &data, 0), 0);
    EXPECT_FALSE(on_caller);
  });
  unsetenv("TVM_EXCLUDE_WORKER0");
}

#if !defined(__SANITIZE_THREAD__)  // tsan cannot follow threads of a forked child
TEST(ParallelLaunch, AForkedChildStartsThreadsOfItsOwn) {
  with_workers(2, [] {
    Seen seen;
    ASSERT_EQ(parallel_launch(note, &seen, 0), 0);
    const pid_t child = fork();
    if (child == 0) {
      Seen again;
      const bool good = parallel_launch(note, &again, 0) == 0 && again.runs[1] == 1;
      _exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_EQ(parallel_launch(note, &seen, 0), 0);
  });
}
#endif
}  // namespace
}  // namespace outpost::vm
