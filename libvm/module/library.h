#pragma once
#include <tvm/ffi/extra/module.h>

#include <string>
#include <string_view>

namespace outpost::vm {

/// Loads a shared library as a module. The file is looked at before any of its code runs, so that
/// the error names what is wrong: another machine, a file cut short, symbols that this process
/// lacks, a module kind without a loader (and the kinds there are). Libraries that register
/// things stay loaded for the life of the process.
/// @param path   a file that nobody changes or replaces while it is loaded
/// @param shown  what messages call it; empty is the path
/// @throws tvm::ffi::Error (RuntimeError)
tvm::ffi::Module load_library(const std::string& path, std::string_view shown = {});

}  // namespace outpost::vm
