#pragma once
#include "base/result.h"
#include "base/session_page.h"
#include "base/unique_fd.h"

namespace outpost::server {

/// The memory behind a SessionPage: sealed, so that a worker cannot shrink it under the daemon.
Result<unique_fd> make_session_page();

/// A mapping of it, given back at the end.
class MappedPage {
 public:
  MappedPage() = default;
  static Result<MappedPage> map(int fd);
  MappedPage(MappedPage&& other) noexcept : page_{std::exchange(other.page_, nullptr)} {}
  MappedPage& operator=(MappedPage&& other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~MappedPage();

  SessionPage& operator*() const { return *page_; }
  SessionPage* operator->() const { return page_; }
  explicit operator bool() const { return page_ != nullptr; }

 private:
  explicit MappedPage(SessionPage* page) : page_{page} {}
  SessionPage* page_ = nullptr;
};

}  // namespace outpost::server
