#include "exec/executable_module.h"

#include <fmt/format.h>
#include <tvm/ffi/cast.h>

#include <cstdio>
#include <memory>

#include "exec/values.h"
#include "exec/vm_module.h"
#include "register.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

ffi::Module load_bytes(const ffi::Bytes& bytes) {
  const std::string_view text{bytes.data(), bytes.size()};
  return ffi::Module{ffi::make_object<ExecutableModuleObj>(Program::load(as_bytes(text)))};
}

ffi::Module load_file(const ffi::String& path) {
  return ffi::Module{
      ffi::make_object<ExecutableModuleObj>(Program::load_file({path.data(), path.size()}))};
}

}  // namespace

ffi::Module ExecutableModuleObj::make_vm() const {
  return ffi::Module{ffi::make_object<VmModuleObj>(program_, imports())};
}

ffi::Optional<ffi::Function> ExecutableModuleObj::GetFunction(const ffi::String& name) {
  const auto self = ffi::GetRef<ffi::Module>(this);
  const auto text = [this, self](std::string (*print)(const VerifiedExecutable&)) {
    return ffi::Function::FromTyped(
        [self, this, print]() { return ffi::String{print(program_->executable())}; });
  };
  if (name == "stats") return text(stats);
  if (name == "as_text") return text(disassemble);
  if (name == "as_python") return text(as_python);
  if (name == "has_function")
    return ffi::Function::FromTyped([self, this](const ffi::String& f) {
      return program_->executable().find({f.data(), f.size()}) >= 0;
    });
  // The older name asks for a VM with `profile`, which all of ours have.
  if (name == "vm_load_executable" || name == "vm_profiler_load_executable")
    return ffi::Function::FromTyped([self, this]() { return make_vm(); });
  return std::nullopt;
}

ffi::Bytes ExecutableModuleObj::SaveToBytes() const {
  const auto bytes = program_->bytes();
  return ffi::Bytes{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void ExecutableModuleObj::WriteToFile(const ffi::String& path, const ffi::String&) const {
  const auto bytes = program_->bytes();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "wb"),
                                                             std::fclose};
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() ||
      std::fflush(file.get()) != 0)
    raise("ValueError", fmt::format("cannot write the executable to '{}'", path.c_str()));
}

void register_executable_loaders() {
  add_typed("ffi.Module.load_from_bytes.relax.VMExecutable", load_bytes);
  add_typed("ffi.Module.load_from_file.relax.VMExecutable",
            [](const ffi::String& path, const ffi::String&) { return load_file(path); });
  add_typed("relax.ExecutableLoadFromFile", load_file);
}

}  // namespace outpost::vm
