#pragma once
#include <sys/types.h>

#include <vector>

namespace outpost::server {

/// Direct children of this process, zombies included, also those that were handed to it because
/// their own parent died (it must be a subreaper for that).
std::vector<pid_t> children_of_self();

}  // namespace outpost::server
