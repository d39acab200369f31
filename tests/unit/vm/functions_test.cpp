#include <gtest/gtest.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <array>
#include <string>

#include "device/tensor.h"
#include "outpost/vm/runtime.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;
constexpr DLDevice kCpu{kDLCPU, 0};
constexpr DLDataType kFloat32{kDLFloat, 32, 1};

ffi::Function global(const std::string& name) {
  register_runtime();
  return ffi::Function::GetGlobalRequired(name);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
    return "no error";
  } catch (const ffi::Error& e) {
    return e.kind() + ": " + e.message();
  }
}

TEST(DeviceFunctions, AttributesOfTheCpu) {
  const auto get = global("runtime.GetDeviceAttr");
  EXPECT_EQ(get(1, 7, 0).cast<int>(), 1);
  EXPECT_GT(get(1, 0, 14).cast<std::int64_t>(), 1 << 20);
  for (const int kind : {1, 2, 5, 13, 15, 16, 17, 99, -1})
    EXPECT_EQ(get(1, 0, kind).type_index(), ffi::TypeIndex::kTVMFFINone) << kind;
}

TEST(DeviceFunctions, AnAbsentDeviceDoesNotExistAndAllElseOfItIsAnError) {
  const auto get = global("runtime.GetDeviceAttr");
  EXPECT_EQ(get(2, 0, 0).cast<int>(), 0);
  EXPECT_EQ(get(99, 0, 0).cast<int>(), 0);
  EXPECT_EQ(error_of([&] { get(2, 0, 1); }), "RuntimeError: Device API cuda is not enabled.");
  EXPECT_EQ(error_of([] { global("__tvm_set_device")(7, 0); }),
            "RuntimeError: Device API vulkan is not enabled.");
  EXPECT_EQ(error_of([&] { get(-1, 0, 0); }), "ValueError: no device has type -1 and id 0");
}

TEST(DeviceFunctions, RuntimeEnabledKnowsTheStockNames) {
  const auto enabled = global("runtime.RuntimeEnabled");
  for (const char* name : {"cpu", "rpc"}) EXPECT_TRUE(enabled(name).cast<bool>()) << name;
  for (const char* name : {"cuda", "gpu", "opencl", "cl", "metal", "mtl", "vulkan", "rocm",
                           "rocm_x", "nvptx", "hexagon", "llvm"})
    EXPECT_FALSE(enabled(name).cast<bool>()) << name;
  EXPECT_NE(error_of([&] { enabled("foo"); }).find("Unknown optional runtime foo"),
            std::string::npos);
}

TEST(DeviceFunctions, StreamsOfTheCpuAreNothing) {
  EXPECT_EQ(global("runtime.Device_StreamCreate")(kCpu).cast<int>(), 0);
  global("runtime.Device_SetStream")(kCpu, 0);
  global("runtime.Device_StreamSync")(kCpu, 0);
  global("runtime.Device_StreamSyncFromTo")(kCpu, 0, 0);
  global("runtime.Device_StreamFree")(kCpu, 0);
  global("runtime.TVMSetStream")(1, 0, nullptr);
  global("__tvm_set_device")(1, 0);
  EXPECT_NE(global("device_api.cpu")().cast<void*>(), nullptr);
}

TEST(TensorFunctions, AllocateViewAndCopy) {
  const auto t =
      global("runtime.TVMTensorAllocWithScope")(ffi::Shape{2, 3}, kFloat32, kCpu, nullptr)
          .cast<ffi::Tensor>();
  const std::array<float, 6> in{1, 2, 3, 4, 5, 6};
  auto* raw = const_cast<float*>(in.data());
  global("runtime.TVMTensorCopyFromBytes")(t, static_cast<void*>(raw), sizeof in);
  const auto view =
      global("runtime.TVMTensorCreateView")(t, ffi::Shape{2}, kFloat32, 16).cast<ffi::Tensor>();
  std::array<float, 2> out{};
  global("runtime.TVMTensorCopyToBytes")(view, static_cast<void*>(out.data()), sizeof out);
  EXPECT_EQ(out, (std::array<float, 2>{5, 6}));
  EXPECT_TRUE(global("runtime.TVMTensorIsStorageShared")(t, view).cast<bool>());
  const auto other = empty({2}, kFloat32, kCpu);
  EXPECT_FALSE(global("runtime.TVMTensorIsStorageShared")(other, view).cast<bool>());
  global("runtime.TVMTensorCopyFromTo")(view, other);
  EXPECT_EQ(static_cast<float*>(other.data_ptr())[1], 6.0F);
}

TEST(TensorFunctions, RefuseWhatReachesOutside) {
  const auto t = empty({2}, kFloat32, kCpu);
  EXPECT_NE(error_of([&] {
              global("runtime.TVMTensorCreateView")(t, ffi::Shape{2}, kFloat32, 800);
            }).find("reaches outside"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              global("runtime.TVMTensorCreateView")(t, ffi::Shape{2}, kFloat32, -4);
            }).find("negative"),
            std::string::npos);
  float x[4];
  EXPECT_NE(error_of([&] {
              global("runtime.TVMTensorCopyToBytes")(t, static_cast<void*>(x), 16);
            }).find("16 bytes from a tensor of 8"),
            std::string::npos);
  EXPECT_NE(error_of([&] { global("runtime.TVMTensorCopyFromBytes")(t, nullptr, 8); }).find("null"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              global("runtime.TVMTensorAllocWithScope")(ffi::Shape{2}, kFloat32, kCpu, "texture");
            }).find("'texture'"),
            std::string::npos);
}
}  // namespace
}  // namespace outpost::vm
