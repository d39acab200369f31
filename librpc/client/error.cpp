#include <outpost/rpc/error.h>

namespace outpost::client {

// Here, so that every program shares one type of each across the library's border.
RpcError::~RpcError() = default;
RemoteError::~RemoteError() = default;
SessionTimeoutError::~SessionTimeoutError() = default;
ConnectionError::~ConnectionError() = default;
TypeError::~TypeError() = default;

std::string_view name(Code code) {
  switch (code) {
    case Code::malformed:
      return "malformed";
    case Code::limit:
      return "limit";
    case Code::unsupported:
      return "unsupported";
    case Code::not_found:
      return "not_found";
    case Code::denied:
      return "denied";
    case Code::busy:
      return "busy";
    case Code::timeout:
      return "timeout";
    case Code::io:
      return "io";
    case Code::internal:
      return "internal";
    case Code::argument:
      return "argument";
    case Code::type:
      return "type";
    case Code::remote:
      return "remote";
    case Code::session_timeout:
      return "session_timeout";
    case Code::closed:
      return "closed";
  }
  return "internal";
}

}  // namespace outpost::client
