#pragma once
#include <boost/system/result.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace outpost {

/// What the program does about a failure; the text is for people and never parsed.
enum class Code : std::uint8_t {
  malformed,    ///< bytes that break the format
  limit,        ///< a configured limit was met
  unsupported,  ///< well formed, but not offered here
  not_found,    ///< a name, file or handle that does not exist
  denied,       ///< exists, but not for this caller
  busy,         ///< try again later
  timeout,      ///< a deadline passed
  io,           ///< the operating system refused
  internal,     ///< a fault of ours
};
std::string_view name(Code c);

/// The one way to fail below `main`: a code for the program, a text for people.
struct Error {
  Code code;
  std::string text;
};

template <class T = void>
using Result = boost::system::result<T, Error>;

/// Puts the caller's purpose in front: "cannot load 'net.so': " + inner text.
inline Error wrap(Error inner, std::string_view purpose) {
  inner.text.insert(0, std::string{purpose} + ": ");
  return inner;
}

[[noreturn]] inline void throw_exception_from_error(const Error& e, const boost::source_location&) {
  throw std::logic_error{"unchecked Result: " + e.text};
}

}  // namespace outpost

#define OUTPOST_CAT_(a, b) a##b
#define OUTPOST_CAT(a, b) OUTPOST_CAT_(a, b)
#define OUTPOST_TRY_IMPL(ret, tmp, decl, expr)     \
  auto tmp = (expr);                               \
  if (tmp.has_error()) ret std::move(tmp).error(); \
  decl = *std::move(tmp)
/// OUTPOST_TRY(auto n, reader.le<u64>("body length")); hands the error to the caller.
#define OUTPOST_TRY(decl, expr) \
  OUTPOST_TRY_IMPL(return, OUTPOST_CAT(outpost_try_, __LINE__), decl, expr)
/// The same inside a coroutine.
#define OUTPOST_CO_TRY(decl, expr) \
  OUTPOST_TRY_IMPL(co_return, OUTPOST_CAT(outpost_try_, __LINE__), decl, expr)
/// For a Result<> whose value is nothing.
#define OUTPOST_CHECK(expr)                                                   \
  do {                                                                        \
    auto outpost_check_ = (expr);                                             \
    if (outpost_check_.has_error()) return std::move(outpost_check_).error(); \
  } while (false)
