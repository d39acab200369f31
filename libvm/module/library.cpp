#include "module/library.h"

#include <dlfcn.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/utf8.h"
#include "module/elf_file.h"
#include "module/library_bin.h"
#include "module/mapped_file.h"
#include "register.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

constexpr std::string_view kLoaderPrefix = "ffi.Module.load_from_bytes.";

struct CloseLibrary {
  void operator()(void* handle) const { dlclose(handle); }
};
using LibraryHandle = std::unique_ptr<void, CloseLibrary>;

LibraryHandle open_library(const char* path, int flags) {
  return LibraryHandle{dlopen(path, flags | RTLD_LOCAL)};
}

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "'" : ", '") + part + "'";
  return out;
}

std::vector<std::string> loader_kinds() {
  std::vector<std::string> kinds{"_lib"};
  for (const auto& name : ffi::Function::ListGlobalNames())
    if (as_view(name).starts_with(kLoaderPrefix))
      kinds.emplace_back(as_view(name).substr(kLoaderPrefix.size()));
  std::sort(kinds.begin() + 1, kinds.end());
  return kinds;
}

Result<> check_loaders(Bytes library_bin) {
  OUTPOST_TRY(const auto modules, read_library_bin(library_bin));
  for (const auto& module : modules) {
    if (module.kind == "_lib" ||
        ffi::Function::GetGlobal(std::string{kLoaderPrefix} + std::string{module.kind}))
      continue;
    return Error{Code::unsupported, "it holds a module of kind '" + printable(module.kind) +
                                        "', for which this runtime has no loader; it has " +
                                        join(loader_kinds())};
  }
  return {};
}

/// The undefined symbols that neither this process nor the library's own needs have.
std::vector<std::string> missing_symbols(const LibraryFacts& facts) {
  std::vector<LibraryHandle> needed;
  for (const auto name : facts.needed)
    if (auto handle = open_library(std::string{name}.c_str(), RTLD_LAZY))
      needed.push_back(std::move(handle));
  std::vector<std::string> out;
  for (const auto view : facts.undefined) {
    const std::string name{view};
    const auto has = [&](const LibraryHandle& h) {
      return dlsym(h.get(), name.c_str()) != nullptr;
    };
    if (dlsym(RTLD_DEFAULT, name.c_str()) == nullptr &&
        std::none_of(needed.begin(), needed.end(), has))
      out.push_back(printable(name));
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Whether the library may leave pointers to its code in tables of the process, as compiled
/// kernels never do: it must then stay loaded.
bool registers_things(const LibraryFacts& facts) {
  constexpr std::array kHarmless{
      std::string_view{"TVMFFIErrorSetRaisedFromCStr"},
      std::string_view{"TVMFFIErrorSetRaisedFromCStrParts"},
      std::string_view{"TVMFFIFunctionCall"},
      std::string_view{"TVMFFIEnvModLookupFromImports"},
      std::string_view{"TVMFFIHandleInitOnce"},
      std::string_view{"TVMFFIEnvGetStream"},
  };
  return std::any_of(facts.undefined.begin(), facts.undefined.end(), [&](std::string_view name) {
    return name.starts_with("TVMFFI") &&
           std::find(kHarmless.begin(), kHarmless.end(), name) == kHarmless.end();
  });
}

Error open_error(const LibraryFacts& facts) {
  const char* text = dlerror();
  std::string said = text == nullptr ? "unknown error" : text;
  if (said.find("undefined symbol") == std::string::npos) return Error{Code::io, std::move(said)};
  const auto missing = missing_symbols(facts);
  if (missing.empty()) return Error{Code::io, std::move(said)};
  return Error{Code::unsupported, "it needs the symbols " + join(missing) +
                                      ", which this process and the library's own needs lack"};
}

/// Opens the library with every symbol resolved now: libtvm_ffi alone would find a missing one at
/// the first call, and end the process.
Result<LibraryHandle> open_checked(const std::string& path) {
  OUTPOST_TRY(const auto file, MappedFile::open(path));
  OUTPOST_TRY(const auto facts, inspect_library(file.bytes()));
  if (facts.library_bin) OUTPOST_CHECK(check_loaders(*facts.library_bin));
  auto handle =
      open_library(path.c_str(), RTLD_NOW | (registers_things(facts) ? RTLD_NODELETE : 0));
  if (!handle) return open_error(facts);
  return handle;
}

}  // namespace

ffi::Module load_library(const std::string& file, std::string_view shown) {
  // Without a slash the dynamic loader would search its own folders.
  const auto path = file.find('/') == std::string::npos ? "./" + file : file;
  static const auto load = ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.so");
  auto handle = open_checked(path);
  if (handle.has_error())
    TVM_FFI_THROW(RuntimeError) << "Failed to load dynamic shared library '"
                                << (shown.empty() ? file : std::string{shown})
                                << "': " << handle.error().text;
  return load(path, "so").cast<ffi::Module>();
}

}  // namespace outpost::vm
