#include "server/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "server/fd_message.h"
#include "server/protocol.h"
#include "server/shared_page.h"
#include "wire/frame.h"
#include "wire/value.h"

namespace outpost::server {
namespace {

Error failed(std::string_view what) {
  return {Code::io, fmt::format("cannot {}: {}", what, std::strerror(errno))};
}

Result<> set_streams(const WorkerPlace& place) {
  const unique_fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  const int output = place.output ? place.output.get() : null.get();
  if (::dup2(null.get(), STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 ||
      ::dup2(output, STDERR_FILENO) < 0)
    return failed("set the standard streams");
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a pipe would be buffered as a whole
  return {};
}

void reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) ::signal(number, SIG_DFL);
  // a client that is gone, and a file at its limit, are errors of a call and no reason to die
  for (const int number : {SIGPIPE, SIGXFSZ}) ::signal(number, SIG_IGN);
}

Result<> limit(__rlimit_resource resource, std::uint64_t value, const char* name) {
  rlimit now{};
  ::getrlimit(resource, &now);
  const auto wanted = std::min<rlim_t>(value, now.rlim_max);
  const rlimit both{wanted, wanted};
  if (::setrlimit(resource, &both) != 0) return failed(fmt::format("set the limit {}", name));
  return {};
}

/// What a client sends to begin: InitServer, one look-up, and the end.
std::vector<std::byte> rehearsal() {
  std::vector<std::byte> raw;
  ByteWriter out{raw};
  auto begin = rpc::open_frame(out, rpc::FrameCode::init_server);
  out.sized(as_bytes(rpc::kProtocolVersion));
  rpc::PackedWriter{out}.count(0);
  rpc::close_frame(out, begin);
  begin = rpc::open_frame(out, rpc::FrameCode::get_global_func);
  rpc::PackedWriter values{out};
  values.count(1);
  values.raw_string("tvm.rpc.server.upload");
  rpc::close_frame(out, begin);
  begin = rpc::open_frame(out, rpc::FrameCode::shutdown);
  rpc::close_frame(out, begin);
  return raw;
}

/// Says that nothing more will be written, unless the daemon has taken over the writing.
void finish_writing(int socket, SessionPage& page) {
  auto idle = Turn::idle;
  if (page.turn.compare_exchange_strong(idle, Turn::sending)) ::shutdown(socket, SHUT_WR);
}

}  // namespace

Result<> prepare_worker(const WorkerPlace& place, pid_t parent) {
  reset_signals();
  if (::setsid() < 0 && ::getpgrp() != ::getpid()) return failed("become a session leader");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return failed("take care of descendants");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return failed("follow the parent into death");
  if (::getppid() != parent) return Error{Code::io, "the parent died before its worker was ready"};
  if (::chdir(place.folder.c_str()) != 0) return failed("enter the session's folder");
  return set_streams(place);
}

Result<> confine(const WorkerLimits& limits) {
  OUTPOST_CHECK(limit(RLIMIT_CORE, limits.core_bytes, "core-bytes"));
  const struct {
    __rlimit_resource resource;
    std::uint64_t value;
    const char* name;
  } optional[] = {{RLIMIT_NOFILE, limits.open_files, "open-files"},
                  {RLIMIT_DATA, limits.memory_bytes, "memory"},
                  {RLIMIT_AS, limits.address_space_bytes, "address-space"},
                  {RLIMIT_NPROC, limits.processes, "processes"},
                  {RLIMIT_FSIZE, limits.file_bytes, "file-bytes"}};
  for (const auto& [resource, value, name] : optional)
    if (value != 0) OUTPOST_CHECK(limit(resource, value, name));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("forbid new privileges");
  return {};
}

void rehearse(const WorkerConfig& config, const WorkerPlace& place, SessionFunction serve) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return;
  const unique_fd client{pair[0]};
  const unique_fd worker{pair[1]};
  const auto requests = rehearsal();
  if (::send(client.get(), requests.data(), requests.size(), MSG_NOSIGNAL) < 0) return;
  auto options = config.session;
  options.work_dir = place.folder;
  options.spin = {};
  SessionPage page;
  serve(worker.get(), options, page);
}

bool serve_one(const WorkerConfig& config, const WorkerPlace& place, SessionFunction serve) {
  auto page = MappedPage::map(place.page.get());
  if (page.has_error()) return false;
  auto options = config.session;
  options.work_dir = place.folder;
  StartRequest request;
  auto got = receive_struct(place.control.get(), request, 0);
  if (got.has_error() || got->bytes == 0 || !got->fds[0]) return false;
  const unique_fd socket = std::move(got->fds[0]);
  const auto end = serve(socket.get(), options, **page);
  (*page)->end.store(end);
  if (end != SessionEnd::io && end != SessionEnd::unknown) finish_writing(socket.get(), **page);
  return true;
}

}  // namespace outpost::server
