#pragma once

namespace outpost {
/// Writes file, line and condition to standard error and aborts.
[[noreturn]] void assert_failed(const char* condition, const char* file, int line);
}  // namespace outpost

/// States what must hold; stays on in every build. In a worker it ends one session, never the
/// daemon.
#define OUTPOST_ASSERT(condition) \
  ((condition) ? void(0) : ::outpost::assert_failed(#condition, __FILE__, __LINE__))
