#include "core/registration.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/host_port.h"

namespace outpost::rpc {

Registration::Registration(RegistrationOptions options, std::size_t free_slots,
                           std::function<std::uint64_t()> random)
    : options_{std::move(options)}, random_{std::move(random)}, free_slots_{free_slots} {}

void Registration::start(Time now) {
  connect(now);
}

void Registration::stop() {
  if (state_ == State::stopped) return;
  if (state_ != State::waiting) actions_.push_back({Action::Kind::close, {}});
  state_ = State::stopped;
  due_ = Time::max();
  questions_.clear();
}

void Registration::connect(Time now) {
  state_ = State::connecting;
  due_ = now + options_.connect_deadline;
  cutter_ = TrackerCutter{kTrackerAnswerBytesMax};
  questions_.clear();
  actions_.push_back({Action::Kind::connect, {}});
}

void Registration::connected(Time now, std::string local_host) {
  if (state_ != State::connecting) return;
  local_host_ = std::move(local_host);
  state_ = State::greeting;
  due_ = now + options_.answer_deadline;
  // alone: the stock tracker wants the magic as one segment with nothing behind it
  send(encode_tracker_magic());
}

void Registration::received(Time now, Bytes bytes) {
  if (state_ != State::greeting && state_ != State::registering && state_ != State::registered)
    return;
  cutter_.feed(bytes);
  const auto fail = [&](const Error& error) {
    actions_.push_back({Action::Kind::close, {}});
    retry(now, error.text);
  };
  if (state_ == State::greeting) {
    const auto greeted = cutter_.take_magic();
    if (greeted.has_error()) return fail(greeted.error());
    if (!*greeted) return;
    state_ = State::registering;
    due_ = Time::max();
    offers_.clear();  // keys of an earlier connection died with it
    ask(now, TrackerCode::update_info,
        UpdateInfoRequest::of(options_.key, options_.custom_addr, options_.port));
    offer(now);
  }
  for (;;) {
    const auto message = cutter_.next();
    if (message.has_error()) return fail(message.error());
    if (!*message) return;
    const auto done = answer(now, **message);
    if (done.has_error()) return fail(done.error());
  }
}

Result<> Registration::answer(Time now, std::string_view text) {
  if (questions_.empty()) return Error{Code::malformed, "the tracker answers what nobody asked"};
  const auto question = std::move(questions_.front());
  questions_.pop_front();
  if (question.code == TrackerCode::pending_match_keys) return judge_offers(now, text);
  OUTPOST_TRY(const auto status, decode_status(text));
  if (status != TrackerStatus::success)
    return Error{Code::denied, "the tracker refuses the registration"};
  if (question.code == TrackerCode::update_info) {
    state_ = State::registered;
    registered_since_ = now;
    due_ = now + options_.poll_interval;
    facts_.push_back({.kind = Fact::Kind::registered, .text = address()});
    return {};
  }
  for (auto& offer : offers_)
    if (offer.match_key == question.match_key) offer.known = true;
  return {};
}

Result<> Registration::judge_offers(Time now, std::string_view text) {
  OUTPOST_TRY(const auto pending, decode_match_keys(text));
  bool unused = false;
  for (auto& offer : offers_) {
    if (!offer.known) continue;  // put after the poll was asked
    const bool there = std::ranges::find(pending, offer.match_key) != pending.end();
    offer.missed = there ? 0 : offer.missed + 1;
    unused |= offer.missed >= options_.missed_polls_max;
  }
  if (!unused) return {};
  std::erase_if(offers_, [&](const Offer& o) { return o.missed >= options_.missed_polls_max; });
  facts_.push_back({.kind = Fact::Kind::unused_key, .text = address()});
  offer(now);
  return {};
}

void Registration::lost(Time now, std::string why) {
  if (state_ == State::stopped || state_ == State::waiting) return;
  retry(now, std::move(why));
}

void Registration::retry(Time now, std::string why) {
  const bool was_registered = state_ == State::registered;
  // only a connection that lasted starts the waits anew: one that is accepted and closed does not
  if (was_registered && now - registered_since_ >= options_.retry_max)
    retry_in_ = std::chrono::milliseconds{0};
  failures_ = was_registered ? 1 : failures_ + 1;
  retry_in_ = std::clamp(retry_in_ * 2, options_.retry_first, options_.retry_max);
  // up to a fifth less, so that the servers of a lab do not return to their tracker all at once
  const auto wait = retry_in_ - retry_in_ * static_cast<int>(random_() % 200) / 1000;
  state_ = State::waiting;
  due_ = now + wait;
  questions_.clear();
  facts_.push_back({.kind = was_registered ? Fact::Kind::lost : Fact::Kind::failed,
                    .text = std::move(why),
                    .count = failures_,
                    .retry_in = wait});
}

Registration::Time Registration::deadline() const {
  if (questions_.empty()) return due_;
  return std::min(due_, questions_.front().asked + options_.answer_deadline);
}

void Registration::tick(Time now) {
  if (now < deadline()) return;
  if (state_ == State::waiting) return connect(now);
  const bool late =
      !questions_.empty() && now >= questions_.front().asked + options_.answer_deadline;
  if (late || state_ == State::connecting || state_ == State::greeting) {
    const auto limit =
        state_ == State::connecting ? options_.connect_deadline : options_.answer_deadline;
    const auto* what = state_ == State::connecting ? "connection" : "answer";
    actions_.push_back({Action::Kind::close, {}});
    return retry(now, fmt::format("no {} within {} ms", what, limit.count()));
  }
  if (state_ != State::registered) return;
  due_ = now + options_.poll_interval;
  const bool polling = std::ranges::any_of(
      questions_, [](const Question& q) { return q.code == TrackerCode::pending_match_keys; });
  if (!offers_.empty() && !polling)
    ask(now, TrackerCode::pending_match_keys, PendingMatchKeysRequest{});
}

void Registration::set_free_slots(Time now, std::size_t count) {
  free_slots_ = count;
  if (state_ == State::registering || state_ == State::registered) offer(now);
}

void Registration::offer(Time now) {
  while (offers_.size() < free_slots_) {
    offers_.push_back({.match_key = new_match_key()});
    const auto& match_key = offers_.back().match_key;
    ask(now, TrackerCode::put,
        PutRequest{options_.key, options_.port, match_key, options_.custom_addr}, match_key);
  }
}

bool Registration::take(std::string_view match_key) {
  return std::erase_if(offers_, [&](const Offer& o) { return o.match_key == match_key; }) > 0;
}

void Registration::ask(Time now, TrackerCode code, const TrackerRequest& request,
                       std::string match_key) {
  questions_.push_back({code, now, std::move(match_key)});
  send(encode(request));
}

void Registration::send(std::string bytes) {
  if (!actions_.empty() && actions_.back().kind == Action::Kind::send)
    actions_.back().bytes += bytes;  // one write for what belongs together
  else
    actions_.push_back({Action::Kind::send, std::move(bytes)});
}

std::string Registration::new_match_key() {
  const auto high = random_();
  const auto low = random_();
  return fmt::format("{}:{:016x}{:016x}", options_.key, high, low);
}

std::string Registration::address() const {
  return format_host_port(options_.custom_addr.value_or(local_host_), options_.port);
}

}  // namespace outpost::rpc
