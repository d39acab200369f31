#pragma once
#include <tvm/ffi/extra/module.h>

#include <string>
#include <string_view>

#include "host/folder.h"
#include "host/link.h"

namespace outpost::host {

/// Loads a client's file as a module (server-functions.md, load_module). A library is loaded from a
/// private copy, so that a file uploaded again under the same name is new code while the old module
/// lives on. Objects and archives are linked first into `<name>.so`. Errors are tvm-ffi errors or
/// those of Folder and link.
Result<tvm::ffi::Module> load_module(const Folder& folder, std::string_view name,
                                     const LinkOptions& options);

/// The name of the library that stands for `name`: itself for `.so`, else what was linked from it.
Result<std::string> linked_library(const Folder& folder, std::string_view name,
                                   const LinkOptions& options);

}  // namespace outpost::host
