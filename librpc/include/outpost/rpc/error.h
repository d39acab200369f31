#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <outpost/rpc/export.h>

namespace outpost::client {

/// What a program does about a failure; the text is for people and never parsed.
enum class Code : std::uint8_t {
  malformed,        ///< the peer sent bytes that break the protocol
  limit,            ///< a limit was met
  unsupported,      ///< the peer does not offer this
  not_found,        ///< a host, key, function or file that does not exist
  denied,           ///< exists, but not for this caller
  busy,             ///< try again later
  timeout,          ///< a time limit of this client passed
  io,               ///< the operating system or the network failed
  internal,         ///< a fault of this library
  argument,         ///< the caller gave something that cannot be right
  type,             ///< a value of another kind than asked for
  remote,           ///< the server raised an error; the session goes on
  session_timeout,  ///< the session's own time is over
  closed,           ///< the session was closed before
};
/// "not_found", ...
OUTPOST_CLIENT_API std::string_view name(Code code);

/// Every failure of this library. Catch a subclass where the program reacts to it.
class OUTPOST_CLIENT_API RpcError : public std::runtime_error {
 public:
  RpcError(Code code, const std::string& text) : std::runtime_error{text}, code_{code} {}
  ~RpcError() override;
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

/// The server raised an error; what() is its text. The session goes on.
class OUTPOST_CLIENT_API RemoteError : public RpcError {
 public:
  explicit RemoteError(const std::string& text) : RpcError{Code::remote, text} {}
  ~RemoteError() override;
};

/// The time given to the session is over; the session is closed.
class OUTPOST_CLIENT_API SessionTimeoutError : public RpcError {
 public:
  explicit SessionTimeoutError(const std::string& text) : RpcError{Code::session_timeout, text} {}
  ~SessionTimeoutError() override;
};

/// The connection failed, was lost, or was closed before; the session cannot be used any more.
class OUTPOST_CLIENT_API ConnectionError : public RpcError {
 public:
  using RpcError::RpcError;
  ~ConnectionError() override;
};

/// A value of another kind than asked for.
class OUTPOST_CLIENT_API TypeError : public RpcError {
 public:
  explicit TypeError(const std::string& text) : RpcError{Code::type, text} {}
  ~TypeError() override;
};

}  // namespace outpost::client
