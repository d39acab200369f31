#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace outpost::server {

/// Starts a program without a shell, `fd` as its descriptor `as_fd` and no other of ours, standard
/// input from /dev/null and only the environment that compiled code and compilers need.
/// Io: the program cannot be run.
Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& words, int fd,
                    int as_fd);

}  // namespace outpost::server
