#pragma once
#include <string_view>

namespace outpost::app {

/// Tells the service manager a state such as "READY=1" or "STOPPING=1" (sd_notify's datagram).
/// Nothing happens when NOTIFY_SOCKET is not set; a failure is not worth ending for.
void notify_manager(std::string_view state);

}  // namespace outpost::app
