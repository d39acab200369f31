#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/session_page.h"
#include "server/session_watch.h"

namespace outpost::server {

/// All that is known when a session is over.
struct EndFacts {
  EndCause cause = EndCause::none;            ///< what the daemon decided
  SessionEnd reported = SessionEnd::unknown;  ///< what the worker said
  std::string reported_text;
  std::optional<int> wait_status;  ///< as from waitpid; empty: the worker died with its parent
  bool in_answer = false;          ///< an answer was being sent, so no frame may follow
  std::optional<double> timeout_seconds;
  std::chrono::milliseconds idle_limit{0};  ///< of the worker's socket; 0: none
};

/// What follows from it.
struct EndStory {
  std::string reason{};  ///< short, for the log: "shutdown", "timed out", "killed by signal 11 ..."
  std::string last_words{};  ///< for the client as an Exception; empty: nothing is sent
  bool is_failure = false;   ///< worth a warning
};

/// Tells how a session ended.
EndStory tell_end(const EndFacts& facts);

/// The words for a time limit, exactly as stock clients know them.
std::string timeout_text(double seconds);

/// A number of seconds as Python prints a float: 2.0, 0.5, 1e+16.
std::string python_float(double value);

/// A whole Exception frame.
std::vector<std::byte> exception_frame(std::string_view text);

}  // namespace outpost::server
