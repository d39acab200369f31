#include "thread/functions.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "register.h"
#include "thread/host.h"
#include "thread/launch.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

int core_number(std::string_view text) {
  int core = -1;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, core);
  if (error != std::errc{} || stop != end || core < 0)
    TVM_FFI_THROW(InternalError) << "The CPU core information '" << text << "' is not a number.";
  return core;
}

void config_threadpool(ffi::PackedArgs args, ffi::Any*) {
  const int mode = args.size() > 0 ? args[0].cast<int>() : 0;
  const auto threads = args.size() > 1 ? args[1].cast<std::int64_t>() : 0;
  std::vector<int> listed;
  if (args.size() > 2 && args[2].type_index() != ffi::TypeIndex::kTVMFFINone)
    for (const auto& text : args[2].cast<ffi::Array<ffi::String>>())
      listed.push_back(core_number(as_view(text)));
  configure_threads(mode, static_cast<int>(std::clamp<std::int64_t>(threads, 0, kWorkersMax)),
                    listed);
}

void set_affinity(const ffi::Shape& cores) {
  std::vector<int> list;
  for (const auto core : cores)
    list.push_back(static_cast<int>(std::clamp<std::int64_t>(core, -1, INT32_MAX)));
  if (const auto error = pin_current_thread(list); !error.empty())
    TVM_FFI_THROW(ValueError) << error;
}

}  // namespace

void register_thread_functions() {
  add_packed("runtime.config_threadpool", config_threadpool);
  add_typed("runtime.NumThreads", [] { return static_cast<std::int64_t>(thread_workers()); });
  add_typed("tvm.runtime.threading.set_current_thread_affinity", set_affinity);
}

}  // namespace outpost::vm
