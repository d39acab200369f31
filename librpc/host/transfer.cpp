// Requests whose payload goes straight between the socket and where it belongs, in pieces.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/utf8.h"
#include "device/tensor.h"
#include "host/call.h"
#include "host/load_module.h"
#include "host/session.h"

namespace outpost::host {
using rpc::FrameCode;
using rpc::Kind;
namespace {
constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr std::size_t kInlineCopyBytes =
    16 * 1024;  // below this a copy costs less than a second write
constexpr std::size_t kTensorHeadBytes =
    8 + 8 + 4 + 4 + 8 + 8;  // with byte count, without the shape
}  // namespace

Session::Step Session::copy_to_remote(std::uint64_t left) {
  // The head is variable: enough for the largest shape, or all there is.
  const auto head_max = kTensorHeadBytes + 8 * static_cast<std::size_t>(options_.limits.ndim_max);
  const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(left, head_max));
  if (const auto io = channel_.need(want); io != Io::ok) return on_io(io, true);
  ByteReader in{channel_.buffered().first(want)};
  auto tensor = rpc::decode_tensor(in, options_.limits.ndim_max);
  if (tensor.has_error()) return refuse(left, wrap(std::move(tensor).error(), "CopyToRemote"));
  const auto bytes = in.le<std::uint64_t>("byte count");
  if (bytes.has_error()) return refuse(left, wrap(bytes.error(), "CopyToRemote"));
  const auto whole = left;
  left -= in.offset();
  if (*bytes != left)
    return refuse(whole,
                  {Code::malformed,
                   fmt::format("CopyToRemote names {} bytes, its frame holds {}", *bytes, left)});
  const auto span = objects_.span(*tensor, *bytes);
  channel_.consume(in.offset());
  if (span.has_error()) return refuse(left, wrap(span.error(), "CopyToRemote"));
  return receive_tensor(*span, *bytes);
}

Session::Step Session::receive_tensor(const Objects::Span& span, std::uint64_t bytes) {
  if (span.api->type() == kDLCPU) {
    auto* to = static_cast<std::byte*>(span.entry->data) + span.offset;
    const auto io = channel_.read_into(to, static_cast<std::size_t>(bytes));
    if (io != Io::ok) return on_io(io, true);
    answer_none();
    return go();
  }
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPieceBytes)));
  for (std::uint64_t at = 0; at < bytes;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - at, piece.size()));
    if (const auto io = channel_.read_into(piece.data(), n); io != Io::ok) return on_io(io, true);
    const auto done = guarded([&] {
      span.api->copy({piece.data(), 0, {kDLCPU, 0}},
                     {span.entry->data, span.offset + at, span.entry->device}, n, nullptr);
      span.api->synchronize(span.entry->device, nullptr);  // the piece is used again at once
    });
    at += n;
    if (done.has_error()) return refuse(bytes - at, done.error());
  }
  answer_none();
  return go();
}

Session::Step Session::copy_from_remote(std::uint64_t left) {
  if (left > Channel::kBufferBytes)
    return refuse(left, {Code::malformed, fmt::format("CopyFromRemote request of {} bytes", left)});
  const auto request_bytes = static_cast<std::size_t>(left);
  if (const auto io = channel_.need(request_bytes); io != Io::ok) return on_io(io, true);
  ByteReader in{channel_.buffered().first(request_bytes)};
  auto tensor = rpc::decode_tensor(in, options_.limits.ndim_max);
  if (tensor.has_error()) return refuse(left, wrap(std::move(tensor).error(), "CopyFromRemote"));
  const auto bytes = in.le<std::uint64_t>("byte count");
  if (bytes.has_error()) return refuse(left, wrap(bytes.error(), "CopyFromRemote"));
  if (in.left() != 0)
    return refuse(
        left, {Code::malformed, fmt::format("CopyFromRemote has {} bytes left over", in.left())});
  const auto span = objects_.span(*tensor, *bytes);
  channel_.consume(request_bytes);
  if (span.has_error()) {
    answer_exception(wrap(span.error(), "CopyFromRemote").text);
    return go();
  }
  return send_tensor(*span, *bytes);
}

Session::Step Session::send_tensor(const Objects::Span& span, std::uint64_t bytes) {
  ByteWriter out{channel_.answer()};
  const auto begin = rpc::open_frame(out, FrameCode::copy_ack);
  rpc::close_frame(out, begin, bytes);
  if (span.api->type() == kDLCPU) {
    const Bytes payload{static_cast<const std::byte*>(span.entry->data) + span.offset,
                        static_cast<std::size_t>(bytes)};
    if (payload.size() <= kInlineCopyBytes) {
      out.bytes(payload);
      return go();
    }
    return on_io(channel_.flush_with(payload), true);
  }
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPieceBytes)));
  std::uint64_t at = 0;
  const auto fetch = [&](std::span<std::byte> part) {
    const auto done = guarded([&] {
      span.api->copy({span.entry->data, span.offset + at, span.entry->device},
                     {part.data(), 0, {kDLCPU, 0}}, part.size(), nullptr);
      span.api->synchronize(span.entry->device, nullptr);
    });
    at += part.size();
    return !done.has_error();
  };
  return on_io(channel_.flush_with_pieces(bytes, piece, fetch), true);
}

bool Session::is_upload(Bytes handle_bytes) {
  ByteReader in{handle_bytes};
  const auto found = objects_.find(*in.le<std::uint64_t>("function handle"));
  return found && (*found)->streamed == Streamed::upload;
}

Session::Step Session::upload(std::uint64_t left) {
  page_.calls.store(page_.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const auto want =
      static_cast<std::size_t>(std::min<std::uint64_t>(left, Channel::kBufferBytes / 2));
  if (const auto io = channel_.need(want); io != Io::ok) return on_io(io, true);
  const auto here = channel_.buffered().first(want);
  ByteReader in{here};
  (void)in.le<std::uint64_t>("function handle");
  const auto count = rpc::decode_count(in, packed_limits_, left - in.offset());
  if (count.has_error()) return refuse(left, wrap(count.error(), "upload"));
  rpc::Value name;
  if (*count != 2) {
    channel_.consume(here.size());
    return refuse(left - here.size(),
                  {Code::malformed,
                   fmt::format("upload takes a file name and bytes, {} arguments given", *count)});
  }
  if (auto r = rpc::decode_value(in, packed_limits_, name); r.has_error())
    return refuse(left, wrap(std::move(r).error(), "upload: file name"));
  const auto payload = rpc::decode_payload_head(in);
  if (payload.has_error()) return refuse(left, wrap(payload.error(), "upload: bytes"));
  if (name.kind != Kind::string || !*payload) {
    channel_.consume(here.size());
    return refuse(left - here.size(), {Code::malformed, "upload takes a file name and bytes"});
  }
  const auto bytes = (*payload)->bytes;
  if (bytes != left - in.offset())
    return refuse(left, {Code::malformed, fmt::format("upload names {} bytes, its frame holds {}",
                                                      bytes, left - in.offset())});
  const std::string file_name{as_text(name.data)};
  channel_.consume(in.offset());
  return receive_file(file_name, bytes);
}

Session::Step Session::receive_file(std::string_view name, std::uint64_t bytes) {
  if (bytes > options_.limits.stream_bytes_max)
    return fatal({Code::limit, fmt::format("upload of {} bytes exceeds stream_bytes_max {}", bytes,
                                           options_.limits.stream_bytes_max)});
  const auto file = functions_.folder().create_file(name);
  if (file.has_error()) return refuse(bytes, wrap(file.error(), "cannot upload"));
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPieceBytes)));
  while (bytes != 0) {
    std::size_t got = 0;
    // Bulk reads wait for a full piece: fewer, larger writes.
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, piece.size()));
    if (const auto io = channel_.read_into(piece.data(), n); io != Io::ok) {
      (void)functions_.folder().remove(name);
      return on_io(io, true);
    }
    bytes -= n;
    while (got < n) {
      const auto done = ::write(file->get(), piece.data() + got, n - got);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) {
        const auto why =
            fmt::format("cannot upload '{}': {}", printable(name), std::strerror(errno));
        (void)functions_.folder().remove(name);
        return refuse(bytes, {Code::limit, why});
      }
      got += static_cast<std::size_t>(done);
    }
  }
  answer([](rpc::PackedWriter out) {
    out.count(2);
    out.integer(kTVMFFINone);
    out.none();
  });
  return go();
}

Result<unique_fd> Session::download_source(Streamed which) {
  OUTPOST_TRY(const auto* value, argument(0, Kind::string, "file name"));
  const auto name = as_text(value->data);
  if (which == Streamed::download) return functions_.folder().open_file(name);
  OUTPOST_TRY(const auto library,
              linked_library(functions_.folder(), name, functions_.link_options()));
  return functions_.folder().open_file(library);
}

Session::Step Session::download(Streamed which, Bytes body) {
  if (auto r = rpc::decode_packed(body, packed_limits_, values_); r.has_error()) {
    answer_exception(wrap(std::move(r).error(), "download").text);
    return go();
  }
  struct stat info {};
  auto file = download_source(which);
  if (file && ::fstat(file->get(), &info) != 0)
    file = Error{Code::io, "cannot read the file's size"};
  if (file.has_error()) {
    answer_exception(file.error().text);
    return go();
  }
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  ByteWriter out{channel_.answer()};
  const auto begin = rpc::open_frame(out, FrameCode::return_value);
  rpc::PackedWriter packed{out};
  packed.count(2);
  packed.integer(bytes <= 7 ? kTVMFFISmallBytes : kTVMFFIBytes);
  packed.byte_view_head(bytes);
  rpc::close_frame(out, begin, bytes);
  return on_io(channel_.flush_with_file(file->get(), bytes), true);
}

}  // namespace outpost::host
