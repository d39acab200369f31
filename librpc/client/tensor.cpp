// Tensors: copies in blocks that the server takes, and views.
#include "client/link.h"

namespace outpost::client {
namespace {

using detail::Access;

void check_range(std::uint64_t offset, std::uint64_t size, std::uint64_t whole,
                 std::string_view what) {
  if (offset <= whole && size <= whole - offset) return;
  throw RpcError{Code::argument,
                 fmt::format("{} of {} bytes at byte {} reaches beyond the {} bytes "
                             "of the tensor",
                             what, size, offset, whole)};
}

/// The part of a tensor that one request copies: all of it as it is, else as plain bytes.
class Part {
 public:
  Part(const Tensor& tensor, std::uint64_t offset, std::uint64_t bytes)
      : view_{detail::view_of(tensor)}, size_{static_cast<std::int64_t>(bytes)} {
    if (offset == 0 && bytes == tensor.byte_size()) return;
    view_.dtype = {1, 8, 1};
    view_.dims = std::as_bytes(std::span{&size_, 1});
    view_.byte_offset += offset;
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  const rpc::TensorView& view() const { return view_; }

 private:
  rpc::TensorView view_;
  std::int64_t size_;
};

/// Bytes of one copy that the server takes: its limit holds for the body of the request.
std::uint64_t block_bytes(detail::Link& link, const Tensor& tensor, std::uint64_t bytes) {
  const auto limit = link.copy_bytes_max();
  const std::uint64_t ndim = std::max<std::size_t>(tensor.shape().size(), 1);
  const std::uint64_t head = 44 + 8 * ndim;
  if (limit == 0 || bytes + head <= limit) return bytes;
  if (limit <= head)
    throw RpcError{Code::malformed,
                   fmt::format("the server limits copies to {} bytes, their head alone takes {}",
                               limit, head)};
  return limit - head;
}

/// Calls `copy(part, begin, size, progress)` for each block.
template <class Copy>
void in_blocks(const Tensor& tensor, std::uint64_t offset, std::uint64_t bytes,
               const TransferOptions& options, Copy copy) {
  auto& link = *Access::memory_of(tensor).link;
  if (bytes == 0) return;
  const auto block = block_bytes(link, tensor, bytes);
  detail::Guard guard;
  const auto report = guard.keep(options.progress);
  for (std::uint64_t begin = 0; begin < bytes; begin += block) {
    const auto size = std::min(block, bytes - begin);
    rpc::Progress progress;
    if (report) progress = [&](std::uint64_t done) { report(begin + done, bytes); };
    const Part part{tensor, offset + begin, size};
    copy(link, part.view(), begin, size, progress);
    guard.rethrow();
  }
  // Memory of a device may be filled by a stream that is still at work.
  constexpr std::int32_t kCpu = 1;
  if (const auto device = tensor.device(); device.type != kCpu)
    link.system(rpc::FrameCode::dev_stream_sync,
                std::vector{rpc::arg::device({device.type, device.id}), rpc::arg::pointer(0)});
}

}  // namespace

Device Tensor::device() const {
  return Access::memory_of(*this).device;
}

std::uint64_t Tensor::byte_size() const {
  return dtype_.bytes(element_count(shape_));
}

std::uint64_t Tensor::elements_of(std::size_t element_bytes) const {
  if (std::uint64_t{dtype_.bits} * dtype_.lanes != 8 * element_bytes)
    throw TypeError{
        fmt::format("a tensor of {} has no elements of {} bytes", dtype_.name(), element_bytes)};
  return element_count(shape_);
}

void Tensor::copy_from(std::span<const std::byte> data, std::uint64_t byte_offset,
                       const TransferOptions& options) const {
  check_range(byte_offset, data.size(), byte_size(), "a copy");
  in_blocks(*this, byte_offset, data.size(), options,
            [&](detail::Link& link, const rpc::TensorView& part, std::uint64_t begin,
                std::uint64_t size, const rpc::Progress& progress) {
              link.copy_to(part, data.subspan(begin, size), progress);
            });
}

void Tensor::copy_to(std::span<std::byte> data, std::uint64_t byte_offset,
                     const TransferOptions& options) const {
  check_range(byte_offset, data.size(), byte_size(), "a copy");
  in_blocks(*this, byte_offset, data.size(), options,
            [&](detail::Link& link, const rpc::TensorView& part, std::uint64_t begin,
                std::uint64_t size, const rpc::Progress& progress) {
              link.copy_from(part, data.subspan(begin, size), progress);
            });
}

void Tensor::copy_from(const Tensor& from, Pointer stream) const {
  const auto& to_memory = Access::memory_of(*this);
  if (to_memory.link != Access::memory_of(from).link)
    throw RpcError{Code::argument,
                   "a copy between two sessions: read the one tensor into memory "
                   "and write the other from there"};
  if (byte_size() != from.byte_size())
    throw RpcError{Code::argument, fmt::format("a copy of {} bytes into a tensor of {}",
                                               from.byte_size(), byte_size())};
  if (byte_size() == 0) return;
  to_memory.link->system(
      rpc::FrameCode::copy_among_remote,
      std::vector{rpc::arg::tensor(detail::view_of(from)), rpc::arg::tensor(detail::view_of(*this)),
                  rpc::arg::pointer(stream.value)});
}

Tensor Tensor::view(std::vector<std::int64_t> shape, DataType dtype,
                    std::uint64_t byte_offset) const {
  (void)Access::memory_of(*this);
  check_range(byte_offset, dtype.bytes(element_count(shape)), byte_size(), "a view");
  Tensor out = *this;
  out.shape_ = std::move(shape);
  out.dtype_ = dtype;
  out.byte_offset_ += byte_offset;
  return out;
}

}  // namespace outpost::client
