#include "thread/host.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

namespace outpost::vm {
namespace {

long khz_max(int core) {
  std::ifstream in{"/sys/devices/system/cpu/cpu" + std::to_string(core) +
                   "/cpufreq/cpuinfo_max_freq"};
  long khz = 0;
  in >> khz;
  return in ? khz : 0;
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

}  // namespace

std::vector<Core> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {{0, 0}};
  std::vector<Core> out;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) out.push_back({i, 0});
  return out;
}

void read_speeds(std::vector<Core>& cores) {
  for (auto& core : cores) core.khz_max = khz_max(core.id);
}

bool cores_are_halved() {
#if defined(__x86_64__) || defined(__i386__)
  return true;
#else
  return false;
#endif
}

ThreadEnvironment thread_environment() {
  ThreadEnvironment env;
  env.workers = leading_number(environment("TVM_NUM_THREADS"));
  if (!env.workers) env.workers = leading_number(environment("OMP_NUM_THREADS"));
  env.pin = leading_number(environment("TVM_BIND_THREADS")) == 1;
  env.caller_runs_task = environment("TVM_EXCLUDE_WORKER0") != "0";
  const auto spin = environment("TVM_THREAD_POOL_SPIN_COUNT");
  env.spin_rounds = spin == "0" ? 0 : leading_number(spin);
  return env;
}

std::string pin_current_thread(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) return "no processor has number " + std::to_string(core);
    CPU_SET(core, &set);
  }
  const int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  if (error == 0) return {};
  std::string list;
  for (const int core : cores) list += (list.empty() ? "" : ", ") + std::to_string(core);
  return "cannot run on processors [" + list + "]: " + std::strerror(error);
}

}  // namespace outpost::vm
