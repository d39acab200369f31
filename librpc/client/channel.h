#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "dial/dial.h"

namespace outpost::rpc {

/// Called with the bytes of one transfer that are through so far.
using Progress = std::function<void(std::uint64_t done)>;
/// Takes the next piece of a payload.
using Sink = std::function<Result<>(Bytes piece)>;

/// A blocking stream socket with time limits and one read buffer. Large data passes it by. Belongs
/// to one thread at a time. Errors: timeout, io; after one the stream can't be used any more.
class Channel {
 public:
  /// @param stall  longest wait between two pieces of one message; zero: no limit
  Channel(unique_fd socket, Timeout stall);

  /// Sends all of them, gathered into as few writes as the kernel takes. Changes `parts`.
  /// `progress`, when set, counts the bytes of all parts.
  Result<> send(std::span<std::span<const std::byte>> parts, const Progress& progress = {});
  /// Sends `bytes` of a regular file from its current position, without reading them into this
  /// process where the kernel can. Error io: the file became shorter.
  Result<> send_file(int file, std::uint64_t bytes, const Progress& progress);

  /// Waits for the first bytes of an answer, for which the limit of a stall does not count; timeout
  /// after `limit` (zero: no limit).
  Result<> await(Timeout limit);
  /// Reads until at least `bytes` are buffered.
  Result<> fill(std::size_t bytes);
  Bytes buffered() const { return Bytes{buffer_}.subspan(begin_, end_ - begin_); }
  void consume(std::size_t bytes);
  /// Fills `into`, first with what is buffered.
  Result<> receive(std::span<std::byte> into, const Progress& progress);
  /// Passes the next `bytes` to `sink`, in pieces. An error of the sink is returned when all bytes
  /// are taken off the stream, which therefore stays usable: `sink_failed` then says so.
  Result<> drain(std::uint64_t bytes, const Sink& sink, bool& sink_failed);

  int socket() const { return socket_.get(); }
  void close() { socket_.reset(); }

 private:
  Result<> wait_readable(Timeout limit);
  Result<std::size_t> read_some(std::span<std::byte> into);
  Result<> stalled_or_failed(const char* doing, short events);
  Result<> send_copied(int file, std::uint64_t bytes, std::uint64_t done, const Progress& progress);

  unique_fd socket_;
  Timeout stall_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace outpost::rpc
