#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/session_page.h"

namespace outpost::host {

/// How a read or write on the session's socket ended.
enum class Io { ok, closed, failed, taken };

/// The session's socket with a read buffer and a pending answer. Blocking; one thread. Answers
/// gather while whole requests are still buffered and leave in one write before the next blocking
/// read. Every write happens inside the page's turn, so that the daemon can put a last word at a
/// frame border.
class Channel {
 public:
  static constexpr std::size_t kBufferBytes = 64 * 1024;

  Channel(int socket, SessionPage& page, std::chrono::microseconds spin);

  /// Bytes received and not consumed.
  Bytes buffered() const { return {buffer_.get() + begin_, end_ - begin_}; }
  void consume(std::size_t bytes) { begin_ += bytes; }
  /// Waits until at least `bytes` (at most kBufferBytes) are buffered; flushes the answer before it
  /// blocks.
  Io need(std::size_t bytes);
  /// Takes exactly `bytes` of the stream to `to`: what is buffered first, the rest straight from
  /// the socket.
  Io read_into(std::byte* to, std::size_t bytes);
  /// At most `bytes_max` of what the stream brings next; `got` says how many.
  Io read_some(std::byte* to, std::size_t bytes_max, std::size_t& got);
  Io skip(std::uint64_t bytes);

  /// Where the next answer is written; whole frames only when need() or flush() is called.
  std::vector<std::byte>& answer() { return answer_; }
  Io flush();
  /// Sends the answer and then `payload`, which belongs to the answer's last frame, without copying
  /// it.
  Io flush_with(Bytes payload);
  /// The same with `bytes` of the file `fd` from its start. `failed` when the file is shorter.
  Io flush_with_file(int fd, std::uint64_t bytes);
  /// The same with pieces that `produce(buffer, bytes)` fills; false from it cuts the frame
  /// (failed).
  template <class Produce>
  Io flush_with_pieces(std::uint64_t bytes, std::span<std::byte> piece, Produce produce) {
    if (!take_turn()) return Io::taken;
    Io io = send_all(answer_, bytes != 0);
    answer_.clear();
    while (io == Io::ok && bytes != 0) {
      const auto part =
          piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, piece.size())));
      if (!produce(part)) io = Io::failed;
      bytes -= part.size();
      if (io == Io::ok) io = send_all(part, bytes != 0);
    }
    give_turn();
    return io;
  }

  /// Tells the peer that nothing more comes, then reads what it still sends, for a short while, so
  /// that the last answer is not lost to a reset.
  void finish();

 private:
  Io receive(std::byte* to, std::size_t bytes_max, std::size_t& got);
  Io send_all(Bytes bytes, bool more);
  bool take_turn();
  void give_turn();

  int socket_;
  SessionPage& page_;
  std::chrono::microseconds spin_;
  // Not zeroed: a session that sends little then touches few of its pages.
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::vector<std::byte> answer_;
};

}  // namespace outpost::host
