#pragma once
#include <outpost/rpc/tracker_client.h>

#include <string>

namespace outpost::app {

/// One line a board: address, key, state, since when, who holds it; then a line for each key that
/// clients wait for and no board has. Empty when there is nothing to say beyond the stock table.
std::string board_table(const client::TrackerSummary& summary);

}  // namespace outpost::app
