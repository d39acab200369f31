#pragma once
#include <outpost/rpc/value.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace outpost::app {

/// One line about a transfer: "net.so  [=====>    ]  52%  130.0 of 250.0 MB, 410.2 MB/s".
std::string progress_line(const std::string& what, std::uint64_t done, std::uint64_t total,
                          std::chrono::duration<double> took);

/// "1.5 kB", "250.0 MB"; in steps of 1000.
std::string size_text(std::uint64_t bytes);

/// Shows a transfer on standard error while it lasts, when that is a terminal; else nothing.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// For the transfer functions; lives as long as this. Empty when nobody watches.
  client::TransferOptions options();

 private:
  void show(std::uint64_t done, std::uint64_t total);
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool watched_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_{};
  bool visible_ = false;
};

}  // namespace outpost::app
