#include "wire/frame.h"

#include <algorithm>

#include "base/assert.h"

namespace outpost::rpc {
namespace {
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kCodeBytes = 4;
constexpr std::size_t kRoomBytes = 64 * 1024;
}  // namespace

std::string name(FrameCode code) {
  constexpr std::string_view kNames[] = {"Shutdown",
                                         "InitServer",
                                         "CallFunc",
                                         "Return",
                                         "Exception",
                                         "CopyFromRemote",
                                         "CopyToRemote",
                                         "CopyAck",
                                         "GetGlobalFunc",
                                         "FreeHandle",
                                         "DevSetDevice",
                                         "DevGetAttr",
                                         "DevAllocData",
                                         "DevFreeData",
                                         "DevStreamSync",
                                         "CopyAmongRemote",
                                         "DevAllocDataWithScope",
                                         "DevCreateStream",
                                         "DevFreeStream",
                                         "DevSetStream",
                                         "DevGetCurrentStream"};
  const auto i = static_cast<std::int64_t>(code) - 1;
  if (i < 0 || i >= std::ssize(kNames)) return fmt::format("code {}", i + 1);
  return std::string{kNames[i]};
}

Result<std::optional<FrameHead>> parse_frame_head(Bytes received, std::size_t& skipped_bytes) {
  ByteReader in{received};
  skipped_bytes = 0;
  while (in.left() >= kLengthBytes) {
    OUTPOST_TRY(const auto body_bytes, in.le<std::uint64_t>("frame length"));
    if (body_bytes == 0) {
      skipped_bytes = in.offset();
      continue;
    }
    if (body_bytes < kCodeBytes)
      return Error{Code::malformed,
                   fmt::format("frame of {} bytes is too short for its code", body_bytes)};
    if (in.left() < kCodeBytes) break;
    OUTPOST_TRY(const auto code, in.le<std::int32_t>("frame code"));
    return std::optional{FrameHead{body_bytes, FrameCode{code}}};
  }
  return std::optional<FrameHead>{};
}

std::span<std::byte> FrameReader::prepare() {
  if (begin_ > 0) {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() == end_) buffer_.resize(std::max(2 * end_, kRoomBytes));
  return std::span{buffer_}.subspan(end_);
}

void FrameReader::commit(std::size_t size) {
  OUTPOST_ASSERT(size <= buffer_.size() - end_);
  end_ += size;
}

Result<std::optional<Bytes>> FrameReader::next() {
  std::size_t skipped = 0;
  OUTPOST_TRY(const auto head, parse_frame_head(unread(), skipped));
  begin_ += skipped;
  if (!head) return std::optional<Bytes>{};
  if (head->body_bytes > frame_bytes_max_)
    return Error{Code::limit, fmt::format("{} frame of {} bytes exceeds frame_bytes_max {}",
                                          name(head->code), head->body_bytes, frame_bytes_max_)};
  if (unread().size() - kLengthBytes < head->body_bytes) return std::optional<Bytes>{};
  const auto body = unread().subspan(kLengthBytes, head->body_bytes);
  begin_ += kLengthBytes + body.size();
  return std::optional{body};
}

std::size_t open_frame(ByteWriter& out, FrameCode code) {
  const auto begin = out.size();
  out.le<std::uint64_t>(0);
  out.le(static_cast<std::int32_t>(code));
  return begin;
}

void close_frame(ByteWriter& out, std::size_t begin, std::uint64_t more_bytes) {
  out.patch<std::uint64_t>(begin, out.size() - begin - kLengthBytes + more_bytes);
}

}  // namespace outpost::rpc
