#include "net/tracker_link.h"

#include <sys/random.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "base/assert.h"

namespace outpost::rpc {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

std::uint64_t unguessable() {
  std::uint64_t number = 0;
  OUTPOST_ASSERT(::getrandom(&number, sizeof number, 0) == sizeof number);
  return number;
}

std::string plain_address(asio::ip::address address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address.to_string();
}

/// One connection; what completes after it was dropped finds itself dropped and does nothing.
struct Connection {
  explicit Connection(asio::io_context& io) : resolver{io}, socket{io} {}
  tcp::resolver resolver;
  tcp::socket socket;
  bool dropped = false;
  std::array<std::byte, 4096> input;
  std::string output;   // being written
  std::string waiting;  // behind it
};

}  // namespace

struct TrackerLink::Impl {
  EventLoop& loop;
  Log& log;
  HostPort tracker;
  Registration core;
  TimerId timer;
  std::shared_ptr<Connection> connection;  // shared with its pending operations

  void step() {
    for (auto actions = core.take_actions(); !actions.empty(); actions = core.take_actions())
      for (auto& action : actions) perform(action);
    for (const auto& fact : core.take_facts()) report(fact);
    loop.cancel(timer);
    const auto due = core.deadline();
    if (due == Registration::Time::max()) return;
    timer = loop.after(std::max(due - Clock::now(), Clock::duration::zero()), [this] {
      core.tick(Clock::now());
      step();
    });
  }

  void perform(Registration::Action& action) {
    switch (action.kind) {
      case Registration::Action::Kind::connect:
        return connect();
      case Registration::Action::Kind::send:
        return send(std::move(action.bytes));
      case Registration::Action::Kind::close:
        return drop();
    }
  }

  void connect() {
    drop();
    connection = std::make_shared<Connection>(loop.context());
    connection->resolver.async_resolve(
        tracker.host, std::to_string(tracker.port),
        [this, c = connection](ErrorCode ec, const tcp::resolver::results_type& found) {
          if (c->dropped) return;
          if (ec) return lost(fmt::format("cannot resolve '{}': {}", tracker.host, ec.message()));
          asio::async_connect(c->socket, found, [this, c](ErrorCode failed, const tcp::endpoint&) {
            if (!c->dropped) on_connected(failed);
          });
        });
  }

  void on_connected(ErrorCode ec) {
    if (ec) return lost(ec.message());
    ErrorCode ignored;
    connection->socket.set_option(tcp::no_delay{true}, ignored);
    connection->socket.set_option(asio::socket_base::keep_alive{true}, ignored);
    const auto local = connection->socket.local_endpoint(ignored);
    read(connection);
    core.connected(Clock::now(), plain_address(local.address()));
    step();
  }

  void read(const std::shared_ptr<Connection>& c) {
    c->socket.async_read_some(asio::buffer(c->input), [this, c](ErrorCode ec, std::size_t size) {
      if (c->dropped) return;
      if (ec) return lost(ec == asio::error::eof ? "closed by the tracker" : ec.message());
      core.received(Clock::now(), Bytes{c->input}.first(size));
      step();
      if (!c->dropped) read(c);
    });
  }

  void send(std::string bytes) {
    if (!connection) return;
    connection->waiting += bytes;
    if (connection->output.empty()) write(connection);
  }

  void write(const std::shared_ptr<Connection>& c) {
    c->output = std::exchange(c->waiting, {});
    asio::async_write(c->socket, asio::buffer(c->output), [this, c](ErrorCode ec, std::size_t) {
      if (c->dropped) return;
      if (ec) return lost(ec.message());
      c->output.clear();
      if (!c->waiting.empty()) write(c);
    });
  }

  void drop() {
    if (!connection) return;
    connection->dropped = true;
    connection->resolver.cancel();
    ErrorCode ignored;
    connection->socket.close(ignored);
    connection.reset();
  }

  void lost(std::string why) {
    drop();
    core.lost(Clock::now(), std::move(why));
    step();
  }

  void report(const Registration::Fact& fact) {
    const auto at = format_host_port(tracker.host, tracker.port);
    using Kind = Registration::Fact::Kind;
    switch (fact.kind) {
      case Kind::registered:
        return log.info("registered tracker={} address={} offered={}", at, fact.text,
                        core.offered());
      case Kind::failed:
        if (fact.count == 1)
          return log.warn("tracker cannot be reached tracker={} reason='{}' retry_ms={}", at,
                          fact.text, fact.retry_in.count());
        return log.info("tracker cannot be reached tracker={} reason='{}' tries={} retry_ms={}", at,
                        fact.text, fact.count, fact.retry_in.count());
      case Kind::lost:
        return log.warn("tracker lost tracker={} reason='{}' retry_ms={}", at, fact.text,
                        fact.retry_in.count());
      case Kind::unused_key:
        return log.warn(
            "a client took this server from the tracker but never came: can clients reach it? "
            "address={} tracker={} new_keys={}",
            fact.text, at, core.offered());
    }
  }
};

TrackerLink::TrackerLink(EventLoop& loop, Log& log, HostPort tracker, RegistrationOptions options,
                         std::size_t free_slots)
    : impl_{new Impl{loop,
                     log,
                     std::move(tracker),
                     Registration{std::move(options), free_slots, unguessable},
                     TimerId{},
                     {}}} {}

TrackerLink::~TrackerLink() {
  impl_->loop.cancel(impl_->timer);
  impl_->drop();
}

void TrackerLink::start() {
  impl_->core.start(Clock::now());
  impl_->step();
}

void TrackerLink::set_free_slots(std::size_t count) {
  impl_->core.set_free_slots(Clock::now(), count);
  impl_->step();
}

bool TrackerLink::take(std::string_view match_key) {
  return impl_->core.take(match_key);
}

void TrackerLink::stop() {
  impl_->core.stop();
  impl_->step();
}

}  // namespace outpost::rpc
