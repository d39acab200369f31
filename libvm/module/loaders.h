#pragma once
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/string.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "outpost/vm/executable.h"

namespace outpost::vm {

/// What a module of kind `const_loader` holds: constants by name, and which of them the start-up
/// function of each symbol takes (module-format.md, Device modules). Borrows from its bytes.
struct ConstLoaderFacts {
  std::vector<std::pair<std::string_view, TensorConstant>> constants;
  struct Symbol {
    std::string_view name;
    std::vector<std::size_t> constants;  ///< indices
  };
  std::vector<Symbol> symbols;
};
Result<ConstLoaderFacts> read_const_loader(Bytes bytes);

/// What a module of kind `static_library` holds: an object file and the functions in it.
struct StaticLibraryFacts {
  Bytes object;
  std::vector<std::string_view> functions;
};
Result<StaticLibraryFacts> read_static_library(Bytes bytes);

/// Modules from their embedded bytes. @throws ValueError for bytes that do not follow the format
tvm::ffi::Module load_const_loader(const tvm::ffi::Bytes& bytes);
tvm::ffi::Module load_static_library(const tvm::ffi::Bytes& bytes);
/// From an object file; `functions` are the names it is said to have.
tvm::ffi::Module open_static_library(const tvm::ffi::String& path,
                                     const tvm::ffi::Array<tvm::ffi::String>& functions);

/// The JSON form of kernels' descriptions: name -> {name, arg_types, launch_param_tags,
/// arg_extra_tags}.
tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Any>> load_metadata(
    const tvm::ffi::String& json);

/// ffi.Module.load_from_bytes.{const_loader, static_library}, runtime.ModuleLoadStaticLibrary,
/// runtime.LoadMetaDataFromJSON.
void register_module_loaders();

}  // namespace outpost::vm
