#pragma once
#include <vector>

#include "thread/pool.h"

namespace outpost::vm {

/// TVMBackendParallelLaunch: runs `f` as tasks 0..tasks-1 (0: as many as there are workers; with
/// one worker always a single task), each on its own thread. 0, or -1 with a raised RuntimeError
/// that joins the tasks' errors; also for a count that is negative or above the workers, and from
/// inside a task.
int parallel_launch(ParallelTask f, void* data, int tasks);
/// TVMBackendParallelBarrier: waits until all tasks of the launch are here; -1 when one has ended.
int parallel_barrier(int task, TVMParallelGroupEnv* env);

/// Workers of the calling thread's launches.
int thread_workers();
/// runtime.config_threadpool for the calling thread.
void configure_threads(int mode, int threads, const std::vector<int>& listed);

}  // namespace outpost::vm
