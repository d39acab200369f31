#pragma once
#include <tvm/ffi/function.h>

#include <optional>
#include <string_view>

#include "host/folder.h"
#include "host/link.h"
#include "host/objects.h"

namespace outpost::host {

/// The functions that belong to one session (`tvm.rpc.server.*`): they know its folder. Everything
/// else a client asks for is a global function of the process.
class SessionFunctions {
 public:
  /// @param copy_bytes_max  what GetCRTMaxPacketSize answers
  SessionFunctions(Folder folder, LinkOptions link, std::uint64_t copy_bytes_max)
      : folder_{std::move(folder)}, link_{std::move(link)}, copy_bytes_max_{copy_bytes_max} {}

  struct Found {
    tvm::ffi::Function function;
    Streamed streamed = Streamed::no;
  };
  /// The session's function of that name, else the global one, else nothing.
  std::optional<Found> find(std::string_view name);

  const Folder& folder() const { return folder_; }
  const LinkOptions& link_options() const { return link_; }

 private:
  Folder folder_;
  LinkOptions link_;
  std::uint64_t copy_bytes_max_;
};

}  // namespace outpost::host
