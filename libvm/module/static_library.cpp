#include <tvm/ffi/function.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "module/loaders.h"
#include "module/mapped_file.h"
#include "register.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

/// An object file on its way into a library: it can be written out, not called.
class StaticLibraryObj final : public ffi::ModuleObj {
 public:
  StaticLibraryObj(std::string object, std::vector<std::string> functions)
      : object_{std::move(object)}, functions_{std::move(functions)} {}

  const char* kind() const final { return "static_library"; }
  int GetPropertyMask() const final {
    return ffi::Module::kBinarySerializable | ffi::Module::kCompilationExportable;
  }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String&) final { return std::nullopt; }
  bool ImplementsFunction(const ffi::String& name) final {
    return std::find(functions_.begin(), functions_.end(), as_view(name)) != functions_.end();
  }
  ffi::Bytes SaveToBytes() const final {
    std::vector<std::byte> bytes;
    ByteWriter out{bytes};
    out.sized(as_bytes(object_));
    out.le<std::uint64_t>(functions_.size());
    for (const auto& name : functions_) out.sized(as_bytes(name));
    return ffi::Bytes{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void WriteToFile(const ffi::String& path, const ffi::String&) const final {
    std::ofstream out{std::string{as_view(path)}, std::ios::binary};
    out.write(object_.data(), static_cast<std::streamsize>(object_.size()));
    if (!out.flush())
      TVM_FFI_THROW(RuntimeError) << "cannot write '" << printable(as_view(path)) << "'";
  }

 private:
  std::string object_;
  std::vector<std::string> functions_;
};

}  // namespace

Result<StaticLibraryFacts> read_static_library(Bytes bytes) {
  ByteReader in{bytes};
  StaticLibraryFacts out;
  OUTPOST_TRY(out.object, in.sized("object file"));
  OUTPOST_TRY(const auto n, in.count(sizeof(std::uint64_t), "function count"));
  out.functions.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    OUTPOST_TRY(const auto name, in.sized("function name"));
    out.functions.push_back(as_text(name));
  }
  return out;
}

ffi::Module load_static_library(const ffi::Bytes& bytes) {
  const auto facts = read_static_library(as_bytes({bytes.data(), bytes.size()}));
  if (facts.has_error())
    TVM_FFI_THROW(ValueError) << "cannot read module of kind 'static_library': "
                              << facts.error().text;
  return ffi::Module{ffi::make_object<StaticLibraryObj>(
      std::string{as_text(facts->object)},
      std::vector<std::string>{facts->functions.begin(), facts->functions.end()})};
}

ffi::Module open_static_library(const ffi::String& path, const ffi::Array<ffi::String>& functions) {
  const auto file = MappedFile::open(std::string{as_view(path)});
  if (file.has_error())
    TVM_FFI_THROW(RuntimeError) << "cannot read '" << printable(as_view(path))
                                << "': " << file.error().text;
  std::vector<std::string> names;
  for (const auto& name : functions) names.emplace_back(as_view(name));
  return ffi::Module{
      ffi::make_object<StaticLibraryObj>(std::string{as_text(file->bytes())}, std::move(names))};
}

}  // namespace outpost::vm
