#include "module/loaders.h"

#include "register.h"

namespace outpost::vm {

void register_module_loaders() {
  add_typed("ffi.Module.load_from_bytes.const_loader", load_const_loader);
  add_typed("ffi.Module.load_from_bytes.static_library", load_static_library);
  add_typed("runtime.ModuleLoadStaticLibrary", open_static_library);
  add_typed("runtime.LoadMetaDataFromJSON", load_metadata);
}

}  // namespace outpost::vm
