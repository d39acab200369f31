#include "base/result.h"
namespace outpost {
std::string_view name(Code c) {
  switch (c) {
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
  }
  return "internal";
}
}  // namespace outpost
