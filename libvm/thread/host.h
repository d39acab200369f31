#pragma once
#include <string>
#include <vector>

#include "thread/plan.h"

namespace outpost::vm {

/// The processors that the calling thread may use, in order of their numbers; speeds left out.
std::vector<Core> usable_cores();
/// Fills in the speeds: a file per processor.
void read_speeds(std::vector<Core>& cores);
/// Whether two processors of this kind of machine are usually one core.
bool cores_are_halved();
ThreadEnvironment thread_environment();

/// Restricts the calling thread to these processors. Error text, or empty.
std::string pin_current_thread(const std::vector<int>& cores);

}  // namespace outpost::vm
