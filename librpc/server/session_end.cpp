#include "server/session_end.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "base/utf8.h"
#include "wire/frame.h"
#include "wire/value.h"

namespace outpost::server {
namespace {

std::string with_text(std::string_view words, const std::string& text) {
  return text.empty() ? std::string{words} : fmt::format("{}: {}", words, printable(text, 512));
}

/// How the process of a worker ended that said nothing itself.
std::string death(const EndFacts& facts) {
  if (!facts.wait_status) return "its parent process was killed";
  const int status = *facts.wait_status;
  if (WIFEXITED(status)) return fmt::format("exited with code {}", WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  const char* name = ::sigabbrev_np(number);
  auto text = fmt::format("killed by signal {} (SIG{}, {})", number, name != nullptr ? name : "?",
                          ::strsignal(number));
  if (number == SIGKILL) text += ", perhaps for lack of memory";
  if (number == SIGXFSZ) text += ", the limit of a file's size";
  if (number == SIGXCPU) text += ", the limit of processor time";
  return text;
}

EndStory failure(std::string reason, std::string_view words) {
  return {reason, fmt::format("{}: {}; the session is lost", words, reason), true};
}

EndStory tell_reported(const EndFacts& facts) {
  switch (facts.reported) {
    case SessionEnd::shutdown:
      return {.reason = "shutdown"};
    case SessionEnd::closed:
      return {.reason = "closed by the client"};
    case SessionEnd::cut:
      return {.reason = "closed by the client inside a frame"};
    case SessionEnd::protocol:  // the worker has told its client
      return {.reason = with_text("protocol error", facts.reported_text), .is_failure = true};
    case SessionEnd::limit:
      return {.reason = with_text("limit", facts.reported_text), .is_failure = true};
    case SessionEnd::io:
      // the socket's own limit looks like a failed read to the worker
      if (facts.idle_limit.count() > 0)
        return failure(fmt::format("idle for {} s, or the connection failed",
                                   static_cast<double>(facts.idle_limit.count()) / 1000),
                       "the limit of one wait (option --timeout) has passed");
      return failure(with_text("connection failed", facts.reported_text),
                     "the session's worker lost its socket");
    case SessionEnd::unknown:
      break;
  }
  return failure(death(facts), "the session's worker process ended during the session");
}

}  // namespace

EndStory tell_end(const EndFacts& facts) {
  EndStory story;
  switch (facts.cause) {
    case EndCause::none:
      story = tell_reported(facts);
      break;
    case EndCause::timed_out:
      story = {"timed out", timeout_text(facts.timeout_seconds.value_or(0)), true};
      break;
    case EndCause::client_gone:
      story = {.reason = "client vanished"};
      break;
    case EndCause::stopping:
      story = {"server stopping", "the server is stopping; the session is lost", true};
      break;
  }
  if (facts.in_answer) story.last_words.clear();
  return story;
}

std::string timeout_text(double seconds) {
  return fmt::format(
      "RPCSessionTimeoutError: Your {}s session has expired, try to increase the "
      "\"session_timeout\" value.",
      python_float(seconds));
}

std::string python_float(double value) {
  auto text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::vector<std::byte> exception_frame(std::string_view text) {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  const auto begin = rpc::open_frame(out, rpc::FrameCode::exception);
  rpc::PackedWriter values{out};
  values.count(1);
  values.raw_string(text);
  rpc::close_frame(out, begin);
  return raw;
}

}  // namespace outpost::server
