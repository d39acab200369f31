#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/serve.h"

namespace outpost::server {

/// How sessions come to a process.
enum class WorkerMode : std::uint8_t {
  fork,    ///< each in a worker of its own, forked from the zygote
  serial,  ///< one after the other in one process (--no-fork): for debugging
  check,   ///< load the libraries, say whether that worked, end
};

/// Resource limits of a worker; 0 leaves the system's.
struct WorkerLimits {
  std::uint64_t open_files = 1024;
  std::uint64_t memory_bytes = 0;  ///< writable private memory (RLIMIT_DATA)
  std::uint64_t address_space_bytes = 0;
  std::uint64_t processes = 0;  ///< of the whole user: threads count
  std::uint64_t file_bytes = 0;
  std::uint64_t core_bytes = 0;  ///< here 0 means no core files
};

/// What the operator's options say to rpc_worker. The daemon writes it as command-line words, the
/// worker program reads them back.
struct WorkerConfig {
  WorkerMode mode = WorkerMode::fork;
  std::string root;  ///< folder in which each session gets one
  std::vector<std::string> libraries;
  WorkerLimits limits;
  host::SessionOptions session;  ///< work_dir is filled in for each session
  bool keep_output = true;       ///< false: what sessions print goes nowhere
};

std::vector<std::string> to_words(const WorkerConfig& config);
/// Malformed: an unknown word or a bad number, which only a mixed installation can bring about.
Result<WorkerConfig> from_words(const std::vector<std::string>& words);

}  // namespace outpost::server
