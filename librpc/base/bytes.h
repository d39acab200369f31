#pragma once
#include <fmt/format.h>

#include <boost/endian/conversion.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace outpost {

using Bytes = std::span<const std::byte>;

/// The same bytes seen as text; valid as long as they are.
inline std::string_view as_text(Bytes b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}
inline Bytes as_bytes(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

/// Reads little-endian values front to back. Every read names what it reads, so that
/// a short buffer says which field was cut and at which byte.
class ByteReader {
 public:
  explicit ByteReader(Bytes all) : all_{all} {}
  std::size_t offset() const { return offset_; }
  std::size_t left() const { return all_.size() - offset_; }

  /// An integer or floating-point value of its own size.
  template <class T>
  Result<T> le(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    if (left() < sizeof(T)) return short_by(what, sizeof(T));
    const auto* p = reinterpret_cast<const unsigned char*>(all_.data() + offset_);
    offset_ += sizeof(T);
    return boost::endian::endian_load<T, sizeof(T), boost::endian::order::little>(p);
  }

  /// Borrows from the buffer: valid as long as the buffer is.
  Result<Bytes> take(std::uint64_t size, std::string_view what) {
    if (size > left()) return short_by(what, size);
    const Bytes out = all_.subspan(offset_, size);
    offset_ += size;
    return out;
  }

  /// A u64 length and that many bytes (`str` of the reference pages).
  Result<Bytes> sized(std::string_view what) {
    OUTPOST_TRY(const auto size, le<std::uint64_t>(what));
    return take(size, what);
  }

  /// A u64 count, believed only if that many elements of at least `min_bytes` could follow.
  Result<std::uint64_t> count(std::size_t min_bytes, std::string_view what) {
    OUTPOST_TRY(const auto n, le<std::uint64_t>(what));
    if (n > left() / min_bytes)
      return Error{Code::malformed,
                   fmt::format("{} {} needs at least {} bytes each, {} left (byte {})", what, n,
                               min_bytes, left(), offset_)};
    return n;
  }

 private:
  Error short_by(std::string_view what, std::uint64_t need) const {
    return Error{Code::malformed,
                 fmt::format("{} needs {} bytes, {} left (byte {})", what, need, left(), offset_)};
  }
  Bytes all_;
  std::size_t offset_ = 0;
};

/// Appends little-endian values to a buffer that the caller keeps, so that a hot path reuses it.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_{&out} {}

  template <class T>
  void le(T value) {
    static_assert(std::is_arithmetic_v<T>);
    unsigned char raw[sizeof(T)];
    boost::endian::endian_store<T, sizeof(T), boost::endian::order::little>(raw, value);
    append(raw, sizeof(T));
  }
  void bytes(Bytes b) { append(b.data(), b.size()); }
  void text(std::string_view s) { append(s.data(), s.size()); }
  /// u64 length, then the bytes.
  void sized(Bytes b) {
    le<std::uint64_t>(b.size());
    bytes(b);
  }
  std::size_t size() const { return out_->size(); }
  /// Overwrites a value written before, such as a length that is known only at the end.
  template <class T>
  void patch(std::size_t at, T value) {
    auto* p = reinterpret_cast<unsigned char*>(out_->data() + at);
    boost::endian::endian_store<T, sizeof(T), boost::endian::order::little>(p, value);
  }

 private:
  void append(const void* p, std::size_t n) {
    const auto at = out_->size();
    out_->resize(at + n);
    if (n != 0) std::memcpy(out_->data() + at, p, n);
  }
  std::vector<std::byte>* out_;
};

}  // namespace outpost
