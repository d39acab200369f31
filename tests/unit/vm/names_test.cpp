#include <gtest/gtest.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include "outpost/vm/runtime.h"

namespace outpost::vm {
namespace {

/// What clients and compiled code ask a server for by name (server-functions.md, The functions),
/// but for the functions of the session itself.
constexpr const char* kNames[] = {
    "ffi.SystemLib",
    "runtime.RPCTimeEvaluator",
    "rpc.testing.GetShapeSize",
    "rpc.testing.GetShapeElem",
    "runtime.GetDeviceAttr",
    "runtime.Device_StreamCreate",
    "runtime.Device_StreamFree",
    "runtime.Device_SetStream",
    "runtime.Device_StreamSync",
    "runtime.Device_StreamSyncFromTo",
    "runtime.TVMSetStream",
    "__tvm_set_device",
    "runtime.TVMTensorAllocWithScope",
    "runtime.TVMTensorCreateView",
    "runtime.TVMTensorCopyFromBytes",
    "runtime.TVMTensorCopyToBytes",
    "runtime.TVMTensorCopyFromTo",
    "runtime.TVMTensorIsStorageShared",
    "runtime.config_threadpool",
    "runtime.NumThreads",
    "tvm.runtime.threading.set_current_thread_affinity",
    "runtime.RuntimeEnabled",
    "device_api.cpu",
    "runtime.SaveParams",
    "runtime.SaveParamsToFile",
    "runtime.LoadParams",
    "runtime.LoadParamsFromFile",
    "runtime.timer.cpu",
    "tvm.contrib.random.random_fill",
    "tvm.contrib.random.random_fill_for_measure",
    "tvm.contrib.random.uniform",
    "tvm.contrib.random.normal",
    "tvm.contrib.random.randint",
    "tvm.contrib.sort.argsort",
    "tvm.contrib.sort.sort",
    "tvm.contrib.sort.topk",
    "tvm.contrib.sort.argsort_nms",
    "cache_flush_cpu_non_first_arg",
    "ffi.Module.load_from_bytes.const_loader",
    "ffi.Module.load_from_bytes.static_library",
    "ffi.Module.load_from_file.so",
    "runtime.ModuleLoadStaticLibrary",
    "runtime.LoadMetaDataFromJSON",
};

TEST(RuntimeNames, EachIsThere) {
  register_runtime();
  for (const char* name : kNames)
    EXPECT_TRUE(tvm::ffi::Function::GetGlobal(name).has_value()) << name;
}

TEST(RuntimeNames, RegisteringTwiceIsHarmless) {
  register_runtime();
  register_runtime();
}

TEST(ContextSymbols, AreTheEightOfHostCode) {
  register_runtime();
  std::string names;
  tvm::ffi::Module::VisitContextSymbols([&](const tvm::ffi::String& name, void* symbol) {
    if (symbol != nullptr) names += std::string{name.data(), name.size()} + " ";
  });
  EXPECT_EQ(names,
            "__TVMFFIFunctionCall __TVMFFIErrorSetRaisedFromCStr __TVMFFIEnvModLookupFromImports "
            "__TVMFFIHandleInitOnce __TVMBackendAllocWorkspace __TVMBackendFreeWorkspace "
            "__TVMBackendParallelLaunch __TVMBackendParallelBarrier ");
}
}  // namespace
}  // namespace outpost::vm
