#include "server/daemon.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "server/fd_message.h"
#include "server/protocol.h"
#include "server/session_end.h"

namespace outpost::server {
namespace {

using rpc::Clock;
using namespace std::chrono_literals;

constexpr auto kRefusalLimit = 2s;  // for a client to read its refusal
// what can wait is done after the first requests, which share their processor with the daemon
constexpr auto kSettleDelay = 1ms;
constexpr auto kQuietWait = 100ms;     // a shorter wait for a slot is not worth a line
constexpr auto kFinishLimit = 1500ms;  // for last frames to leave when the server ends
constexpr std::uint32_t kGoneEvents = EPOLLRDHUP;

std::string make_greeting(const std::string& key) {
  const auto raw = rpc::encode_hello(rpc::kMagic, "server:" + key);
  return std::string{as_text(raw)};
}

void set_idle_limit(int socket, std::chrono::milliseconds limit) {
  if (limit.count() <= 0) return;
  const timeval time{limit.count() / 1000, limit.count() % 1000 * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

std::string seconds_text(std::optional<double> seconds) {
  return seconds ? python_float(*seconds) : "none";
}

}  // namespace

/// One client from its handshake to its end. Owned by the daemon.
struct Daemon::Session {
  SessionId id{};
  std::string peer;
  rpc::HelloKey key;
  unique_fd socket;  // a copy of the worker's; nobody reads it here while the worker lives
  rpc::WatchId gone_watch = rpc::WatchId::none;
  rpc::TimerId timer;
  Clock::time_point arrived = Clock::now();
  Clock::time_point started{};
  rpc::TimerId settling;
  bool is_settled = false;
  Spare worker;  // none while it waits
  std::optional<SessionWatch> watch;
  std::unique_ptr<OutputLog> output;

  std::uint64_t number() const { return static_cast<std::uint64_t>(id); }
};

Daemon::Daemon(rpc::EventLoop& loop, Log& log, DaemonConfig config, rpc::Listening listening,
               const WorkRoot& root, std::function<void(Result<>)> on_end)
    : loop_{loop},
      log_{log},
      config_{std::move(config)},
      on_end_{std::move(on_end)},
      greeting_{make_greeting(config_.key)},
      acceptor_{loop, log, std::move(listening),
                [this](unique_fd socket, std::string peer) {
                  handshakes_.add(std::move(socket), std::move(peer));
                }},
      handshakes_{loop, log, config_.handshake,
                  [this](rpc::Arrival arrival) { arrived(std::move(arrival)); }},
      farewells_{loop},
      slots_{config_.slots},
      workers_{loop,
               log,
               config_.workers,
               config_.worker,
               root,
               {.on_spare = [this] { pump(); },
                .on_ended = [this](WorkerId w, const WorkerEnd& end) { worker_ended(w, end); },
                .on_failed =
                    [this](std::string why) {
                      on_end_(Error{Code::io, "cannot start workers: " + why});
                    }}} {
  if (!config_.tracker) return;
  rpc::RegistrationOptions registration;
  registration.key = config_.key;
  registration.port = acceptor_.port();
  registration.custom_addr = config_.custom_addr;
  tracker_ = std::make_unique<rpc::TrackerLink>(loop, log, *config_.tracker,
                                                std::move(registration), slots_.free());
}

Daemon::~Daemon() {
  for (auto& [number, session] : sessions_) {
    session->output.reset();
    loop_.unwatch(session->gone_watch);
    loop_.cancel(session->timer);
    loop_.cancel(session->settling);
  }
  loop_.cancel(grace_);
}

Result<> Daemon::start() {
  OUTPOST_CHECK(workers_.start());
  if (tracker_) tracker_->start();
  return {};
}

Daemon::Session& Daemon::find(SessionId id) {
  return *sessions_.at(static_cast<std::uint64_t>(id));
}

bool Daemon::admits(const rpc::HelloKey& key) {
  if (key.role != "client") return false;
  return tracker_ ? tracker_->take(key.match_key) : key.match_key == config_.key;
}

void Daemon::refuse(rpc::Arrival arrival, std::string_view why) {
  log_.warn("client refused peer={} key={} reason='{}'", arrival.peer,
            quoted(arrival.key.match_key), why);
  std::vector<std::byte> answer;
  ByteWriter{answer}.le(rpc::kNoMatch);
  farewells_.add(std::move(arrival.socket), std::move(answer), kRefusalLimit);
}

void Daemon::arrived(rpc::Arrival arrival) {
  if (slots_.waiting() >= config_.waiting_max) return refuse(std::move(arrival), "too many wait");
  if (!admits(arrival.key))
    return refuse(std::move(arrival), tracker_ ? "no such match key, or used already"
                                               : "another key than this server's");
  auto session = std::make_unique<Session>();
  session->id = SessionId{++last_session_};
  session->peer = std::move(arrival.peer);
  session->key = std::move(arrival.key);
  session->socket = std::move(arrival.socket);
  const auto id = session->id;
  auto& kept = *session;
  sessions_.emplace(kept.number(), std::move(session));
  slots_.enter(id);
  pump();
  if (slots_.place(id) != 0) wait(kept);
}

void Daemon::wait(Session& session) {
  session.gone_watch =
      loop_.watch(session.socket.get(), kGoneEvents,
                  [this, &session](std::uint32_t) { left_while_waiting(session); });
  session.timer = loop_.after(kQuietWait, [this, &session] {
    session.timer = {};
    log_.info("session waits session={} peer={} key={} place={} running={} slots={}",
              session.number(), session.peer, quoted(session.key.match_key),
              slots_.place(session.id), slots_.used(), slots_.count());
  });
}

void Daemon::left_while_waiting(Session& session) {
  log_.info("session left while waiting session={} peer={} key={} seconds={:.3f}", session.number(),
            session.peer, quoted(session.key.match_key),
            std::chrono::duration<double>(Clock::now() - session.arrived).count());
  slots_.leave(session.id);
  remove(session.id);
  tell_tracker();
}

void Daemon::pump() {
  while (workers_.has_spare()) {
    const auto id = slots_.next();
    if (!id) return;
    start_session(find(*id));
  }
}

void Daemon::start_session(Session& session) {
  loop_.unwatch(session.gone_watch);
  loop_.cancel(session.timer);
  session.started = Clock::now();
  set_idle_limit(session.socket.get(), config_.idle_limit);
  // the answer first: the worker must find the client past its handshake, or their bytes could mix
  const auto sent =
      ::send(session.socket.get(), greeting_.data(), greeting_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(greeting_.size()) || !hand_over(session)) {
    log_.warn("session failed to start session={} peer={} key={}", session.number(), session.peer,
              quoted(session.key.match_key));
    if (sent > 0)
      farewells_.add(std::move(session.socket), exception_frame("no worker could be started"),
                     kRefusalLimit);
    slots_.release();
    remove(session.id);
    return tell_tracker();
  }
  const auto id = session.id;
  session_of_worker_.emplace(static_cast<std::uint64_t>(session.worker.id), id);
  session.watch.emplace(config_.watch, session.started, session.key.timeout_seconds);
  session.gone_watch =
      loop_.watch(session.socket.get(), kGoneEvents, [this, &session](std::uint32_t) {
        loop_.unwatch(session.gone_watch);
        apply(session, session.watch->client_gone(Clock::now()));
      });
  arm(session);
  session.settling = loop_.after(kSettleDelay, [this, &session] { settle(session); });
}

void Daemon::settle(Session& session) {
  loop_.cancel(session.settling);
  if (session.is_settled) return;
  session.is_settled = true;
  if (config_.worker.keep_output)
    session.output = std::make_unique<OutputLog>(loop_, log_, std::move(session.worker.output),
                                                 session.id, config_.output_bytes_max);
  tell_tracker();
  log_.info("session started session={} peer={} key={} limit={} worker={} waited={:.3f}",
            session.number(), session.peer, quoted(session.key.match_key),
            seconds_text(session.key.timeout_seconds), session.worker.pid,
            std::chrono::duration<double>(session.started - session.arrived).count());
}

bool Daemon::hand_over(Session& session) {
  while (auto spare = workers_.take()) {
    const StartRequest request{session.number()};
    const int fds[] = {session.socket.get()};
    if (send_struct(spare->control.get(), request, fds, MSG_DONTWAIT).has_error())
      continue;  // it has just died; its end is told later
    spare->control.reset();
    session.worker = *std::move(spare);
    return true;
  }
  return false;
}

void Daemon::arm(Session& session) {
  loop_.cancel(session.timer);
  const auto due = session.watch->deadline();
  if (due == SessionWatch::Time::max()) return;
  session.timer =
      loop_.after(std::max(due - Clock::now(), Clock::duration::zero()), [this, &session] {
        session.timer = {};
        apply(session, session.watch->tick(Clock::now()));
      });
}

void Daemon::apply(Session& session, SessionWatch::Do what) {
  auto& watch = *session.watch;
  while (what == SessionWatch::Do::take_turn || what == SessionWatch::Do::look) {
    if (what == SessionWatch::Do::take_turn) {
      auto idle = Turn::idle;
      const bool taken = session.worker.page->turn.compare_exchange_strong(idle, Turn::taken);
      what = watch.turn(Clock::now(), taken);
    } else {
      int unread = 0;
      ::ioctl(session.socket.get(), FIONREAD, &unread);
      what = watch.unread(Clock::now(), static_cast<std::uint64_t>(unread));
    }
  }
  if (what == SessionWatch::Do::kill) kill(session);
  arm(session);
}

void Daemon::kill(Session& session) {
  ::syscall(SYS_pidfd_send_signal, session.worker.pidfd.get(), SIGKILL, nullptr, 0);
  loop_.unwatch(session.gone_watch);
  EndFacts facts;
  facts.cause = session.watch->cause();
  facts.timeout_seconds = session.key.timeout_seconds;
  facts.in_answer = !session.watch->may_write();
  const auto words = tell_end(facts).last_words;
  // now, and not when the worker is gone: a process stuck in the kernel may take its time
  if (words.empty()) {
    ::shutdown(session.socket.get(), SHUT_RDWR);
    session.socket.reset();
  } else {
    farewells_.add(std::move(session.socket), exception_frame(words), config_.drain_limit);
  }
}

void Daemon::worker_ended(WorkerId worker, const WorkerEnd& end) {
  const auto it = session_of_worker_.find(static_cast<std::uint64_t>(worker));
  if (it == session_of_worker_.end()) return;  // its session failed to start
  auto& session = find(it->second);
  session_of_worker_.erase(it);
  settle(session);
  const auto& page = *session.worker.page;
  EndFacts facts;
  facts.cause = session.watch->cause();
  facts.reported = page.end.load();
  facts.reported_text = std::string{page.end_text, ::strnlen(page.end_text, sizeof page.end_text)};
  facts.wait_status = end.wait_status;
  facts.timeout_seconds = session.key.timeout_seconds;
  facts.in_answer = page.turn.load() == Turn::sending;
  facts.idle_limit = config_.idle_limit;
  const auto story = tell_end(facts);
  if (session.output) session.output->finish();
  loop_.unwatch(session.gone_watch);
  if (session.socket) {
    if (!story.last_words.empty())
      farewells_.add(std::move(session.socket), exception_frame(story.last_words),
                     config_.drain_limit);
    else if (story.is_failure)  // the worker has said why: give the client time to read it
      farewells_.add(std::move(session.socket), {}, config_.drain_limit);
    else
      session.socket.reset();
  }
  slots_.release();
  pump();
  log_end(session, end, story);
  remove(session.id);
  tell_tracker();
  finish_if_done();
}

void Daemon::log_end(const Session& session, const WorkerEnd& end, const EndStory& story) {
  const auto& page = *session.worker.page;
  const auto text = fmt::format(
      "session ended session={} peer={} key={} limit={} seconds={:.3f} requests={} calls={} "
      "in_bytes={} out_bytes={} cpu_ms={} memory_kb_max={} killed={} reason='{}'",
      session.number(), session.peer, quoted(session.key.match_key),
      seconds_text(session.key.timeout_seconds),
      std::chrono::duration<double>(Clock::now() - session.started).count(), page.requests.load(),
      page.calls.load(), page.in_bytes.load(), page.out_bytes.load(), end.cpu_us / 1000,
      end.memory_kb_max, end.killed, story.reason);
  log_.write(story.is_failure ? LogLevel::warn : LogLevel::info, text);
}

void Daemon::remove(SessionId id) {
  const auto it = sessions_.find(static_cast<std::uint64_t>(id));
  auto& session = *it->second;
  loop_.unwatch(session.gone_watch);
  loop_.cancel(session.timer);
  loop_.cancel(session.settling);
  sessions_.erase(it);
}

void Daemon::tell_tracker() {
  if (tracker_ && !stopping_) tracker_->set_free_slots(slots_.free());
}

void Daemon::stop(std::chrono::milliseconds grace) {
  if (stopping_) return;
  stopping_ = true;
  log_.info("stopping sessions={} waiting={} grace_ms={}", slots_.used(), slots_.waiting(),
            grace.count());
  acceptor_.stop();
  handshakes_.stop();
  if (tracker_) tracker_->stop();
  std::vector<SessionId> waiting;
  for (const auto& [number, session] : sessions_)
    if (slots_.leave(session->id)) waiting.push_back(session->id);
  for (const auto id : waiting) remove(id);
  workers_.stop();
  grace_ = loop_.after(grace, [this] { end_all(); });
  finish_if_done();
}

void Daemon::stop_now() {
  stop(0ms);
  loop_.cancel(grace_);
  end_all();
}

void Daemon::end_all() {
  for (const auto& [number, session] : sessions_)
    apply(*session, session->watch->stop(Clock::now()));
}

void Daemon::finish_if_done() {
  if (!stopping_ || !sessions_.empty()) return;
  loop_.cancel(grace_);
  if (farewells_.size() == 0) return on_end_({});
  // last frames are on their way; their readers get a moment
  grace_ = loop_.after(kFinishLimit, [this] { on_end_({}); });
}

}  // namespace outpost::server
