#pragma once
#include <outpost/rpc/client.h>
#include <outpost/rpc/tracker_client.h>

#include <optional>

#include "outpost/options.h"

namespace outpost::app {

/// The session of one command line, opened when the first command wants it.
class Connection {
 public:
  explicit Connection(Target target) : target_{std::move(target)} {}
  /// Throws RpcError; UsageError when the target is not named.
  const client::Session& session();
  client::Tracker tracker() const;
  const Target& target() const { return target_; }

 private:
  Target target_;
  std::optional<client::Session> session_;
};

/// What a person must correct on the command line.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs one command; prints its outcome on standard output. Throws RpcError and UsageError.
void perform(Connection& connection, const Command& command);

/// What `run` and `time` were told, with its arguments understood.
struct RunPlan {
  RunCommand command;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
};
/// Throws UsageError, before anything is sent.
RunPlan plan_run(const RunCommand& command);
void run_function(const client::Session& session, const RunPlan& plan);

}  // namespace outpost::app
