#include "outpost/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace outpost::app {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kHeadBytesMax = 1 << 20;
constexpr std::size_t kDimensionsMax = 64;
constexpr std::size_t kAlignment = 64;

struct TypeName {
  std::string_view descr;
  client::DataType type;
};
// Opaque elements of 2 bytes are what ml_dtypes makes of bfloat16.
constexpr std::array kTypes{
    TypeName{"<f4", {2, 32, 1}}, TypeName{"<f8", {2, 64, 1}}, TypeName{"<f2", {2, 16, 1}},
    TypeName{"|i1", {0, 8, 1}},  TypeName{"<i2", {0, 16, 1}}, TypeName{"<i4", {0, 32, 1}},
    TypeName{"<i8", {0, 64, 1}}, TypeName{"|u1", {1, 8, 1}},  TypeName{"<u2", {1, 16, 1}},
    TypeName{"<u4", {1, 32, 1}}, TypeName{"<u8", {1, 64, 1}}, TypeName{"|b1", {6, 8, 1}},
    TypeName{"<V2", {4, 16, 1}}, TypeName{"|V2", {4, 16, 1}}};

/// The dictionary in a head: Python literals of a few fixed kinds.
class Dictionary {
 public:
  explicit Dictionary(std::string_view text) : text_{text} {}

  Result<NpyHead> read() {
    OUTPOST_CHECK(want('{'));
    while (!take('}')) {
      OUTPOST_TRY(const auto key, string());
      OUTPOST_CHECK(want(':'));
      OUTPOST_CHECK(member(key));
      if (take('}')) break;
      OUTPOST_CHECK(want(','));
    }
    skip_blanks();
    if (at_ != text_.size()) return bad("the end of the head");
    if (!descr_ || !fortran_ || !shape_)
      return Error{Code::malformed, "the head lacks descr, fortran_order or shape"};
    return finish();
  }

 private:
  Error bad(std::string_view wanted) const {
    return {Code::malformed, fmt::format("expected {} at byte {} of the head", wanted, at_)};
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Result<> want(char c) {
    if (!take(c)) return bad(fmt::format("'{}'", c));
    return {};
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  Result<std::string_view> string() {
    const bool single = take('\'');
    if (!single && !take('"')) return bad("a string");
    const auto end = text_.find(single ? '\'' : '"', at_);
    if (end == std::string_view::npos) return bad("the end of a string");
    const auto out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }
  Result<std::int64_t> number() {
    skip_blanks();
    std::int64_t out = 0;
    const auto* begin = text_.data() + at_;
    const auto [end, ec] = std::from_chars(begin, text_.data() + text_.size(), out);
    if (ec != std::errc{} || out < 0) return bad("a dimension");
    at_ += static_cast<std::size_t>(end - begin);
    (void)take('L');  // written by Python 2
    return out;
  }
  Result<> member(std::string_view key) {
    if (key == "descr") {
      OUTPOST_TRY(descr_, string());
    } else if (key == "fortran_order") {
      fortran_ = take_word("True");
      if (!*fortran_ && !take_word("False")) return bad("True or False");
    } else if (key == "shape") {
      return read_shape();
    } else {
      return bad("descr, fortran_order or shape");
    }
    return {};
  }
  Result<> read_shape() {
    shape_.emplace();
    OUTPOST_CHECK(want('('));
    while (!take(')')) {
      if (shape_->size() == kDimensionsMax)
        return Error{Code::limit, fmt::format("more than {} dimensions", kDimensionsMax)};
      OUTPOST_TRY(const auto dim, number());
      shape_->push_back(dim);
      if (take(')')) break;
      OUTPOST_CHECK(want(','));
    }
    return {};
  }
  Result<NpyHead> finish() {
    NpyHead out;
    const auto* type = std::ranges::find(kTypes, *descr_, &TypeName::descr);
    if (type == kTypes.end())
      return Error{Code::unsupported, fmt::format("elements of type '{}'", *descr_)};
    out.dtype = type->type;
    out.shape = *std::move(shape_);
    const auto long_dims = std::ranges::count_if(out.shape, [](auto dim) { return dim > 1; });
    if (*fortran_ && long_dims > 1)
      return Error{Code::unsupported, "Fortran order: save it with numpy.ascontiguousarray"};
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<std::string_view> descr_;
  std::optional<bool> fortran_;
  std::optional<std::vector<std::int64_t>> shape_;
};

/// Bytes of all elements; empty when the number overflows.
std::optional<std::uint64_t> size_of(const NpyHead& head) {
  std::uint64_t out = head.dtype.bits / 8;
  if (std::ranges::find(head.shape, 0) != head.shape.end()) return 0;
  for (const auto dim : head.shape)
    if (__builtin_mul_overflow(out, static_cast<std::uint64_t>(dim), &out)) return std::nullopt;
  return out;
}

std::string descr_of(client::DataType dtype) {
  for (const auto& t : kTypes)
    if (t.type == dtype) return std::string{t.descr};
  return fmt::format("|V{}", dtype.bits / 8);
}

}  // namespace

Result<NpyHead> parse_npy(Bytes file) {
  ByteReader in{file};
  OUTPOST_TRY(const auto magic, in.take(kMagic.size(), "magic"));
  if (as_text(magic) != kMagic) return Error{Code::malformed, "the magic is not that of .npy"};
  OUTPOST_TRY(const auto version, in.le<std::uint8_t>("version"));
  OUTPOST_TRY([[maybe_unused]] const auto minor, in.le<std::uint8_t>("minor version"));
  if (version < 1 || version > 3)
    return Error{Code::unsupported, fmt::format("version {} of .npy", version)};
  std::uint64_t size = 0;
  if (version == 1) {
    OUTPOST_TRY(size, in.le<std::uint16_t>("head length"));
  } else {
    OUTPOST_TRY(size, in.le<std::uint32_t>("head length"));
  }
  if (size > kHeadBytesMax)
    return Error{Code::limit, fmt::format("head of {} bytes exceeds {}", size, kHeadBytesMax)};
  OUTPOST_TRY(const auto text, in.take(size, "head"));
  OUTPOST_TRY(auto head, Dictionary{as_text(text)}.read());
  head.data_offset = in.offset();
  const auto bytes = size_of(head);
  if (!bytes) return Error{Code::malformed, "the shape has more elements than can be counted"};
  if (*bytes != in.left())
    return Error{Code::malformed, fmt::format("{} bytes of elements follow the head, its shape "
                                              "needs {}",
                                              in.left(), *bytes)};
  return head;
}

std::string npy_head(client::DataType dtype, const std::vector<std::int64_t>& shape) {
  auto dims = shape;
  if (dtype.bits % 8 != 0) {
    dims = {static_cast<std::int64_t>(dtype.bytes(client::element_count(shape)))};
    dtype = {1, 8, 1};
  } else if (dtype.lanes > 1) {
    dims.push_back(dtype.lanes);
    dtype.lanes = 1;
  }
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (", descr_of(dtype));
  for (const auto dim : dims) text += fmt::format("{}, ", dim);
  if (dims.size() > 1) text.resize(text.size() - 2);
  if (dims.size() == 1) text.resize(text.size() - 1);
  text += "), }";
  constexpr std::size_t kBegin = 10;  // magic, version, u16 length
  const auto whole = (kBegin + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(whole - kBegin - 1, ' ');
  text += '\n';
  const auto size = static_cast<std::uint16_t>(text.size());
  std::string out{kMagic};
  out += {'\x01', '\x00', static_cast<char>(size & 0xff), static_cast<char>(size >> 8)};
  return out + text;
}

}  // namespace outpost::app
