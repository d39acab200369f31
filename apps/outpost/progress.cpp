#include "outpost/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace outpost::app {
namespace {

constexpr std::size_t kBarWidth = 24;
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string progress_line(const std::string& what, std::uint64_t done, std::uint64_t total,
                          std::chrono::duration<double> took) {
  const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const auto full = std::min(static_cast<std::size_t>(share * kBarWidth), kBarWidth);
  const std::string bar = std::string(full, '=') + std::string(kBarWidth - full, ' ');
  const double rate = took.count() > 0 ? static_cast<double>(done) / took.count() : 0;
  return fmt::format("{}  [{}] {:3.0f}%  {} of {}, {}/s", what, bar, 100 * share, size_text(done),
                     size_text(total), size_text(static_cast<std::uint64_t>(rate)));
}

ProgressBar::ProgressBar(std::string what) : what_{std::move(what)}, watched_{::isatty(2) == 1} {}

ProgressBar::~ProgressBar() {
  if (visible_) std::fputs("\n", stderr);
}

client::TransferOptions ProgressBar::options() {
  client::TransferOptions out;
  if (watched_) out.progress = [this](auto done, auto total) { show(done, total); };
  return out;
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  const auto now = Clock::now();
  if (done != total && now - shown_ < kInterval) return;
  shown_ = now;
  visible_ = true;
  // Clears what a longer line left behind.
  std::fputs(fmt::format("\r{}\033[K", progress_line(what_, done, total, now - begin_)).c_str(),
             stderr);
}

}  // namespace outpost::app
