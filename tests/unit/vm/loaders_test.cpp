#include "module/loaders.h"

#include <gtest/gtest.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "builtin/params.h"
#include "format/tensor.h"
#include "outpost/vm/runtime.h"
#include "support/sweep.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;

ffi::Bytes as_ffi(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
ffi::Function global(const char* name) {
  register_runtime();
  return ffi::Function::GetGlobalRequired(name);
}
template <class F>
std::string error_of(F&& f) {
  try {
    f();
    return "no error";
  } catch (const ffi::Error& e) {
    return e.message();
  }
}

/// Constants c0 = [1], c1 = [2]; symbol "gemm" takes c1, c0.
std::vector<std::byte> const_loader_bytes(const char* wanted = "c1") {
  std::vector<std::byte> bytes;
  ByteWriter out{bytes};
  const auto names = [&](const std::vector<std::string>& list) {
    out.le<std::uint64_t>(list.size());
    for (const auto& name : list) out.sized(as_bytes(name));
  };
  names({"c0", "c1"});
  out.le<std::uint64_t>(2);
  for (const float value : {1.0F, 2.0F})
    write_tensor(out, {{kDLFloat, 32, 1}, {1}, std::as_bytes(std::span{&value, 1})});
  names({"gemm"});
  out.le<std::uint64_t>(1);
  names({wanted, "c0"});
  return bytes;
}

/// A module whose functions the test gives it.
class FakeModuleObj final : public ffi::ModuleObj {
 public:
  explicit FakeModuleObj(ffi::Map<ffi::String, ffi::Function> functions)
      : functions_{std::move(functions)} {}
  const char* kind() const final { return "fake"; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    return functions_.count(name) != 0 ? functions_.at(name) : ffi::Optional<ffi::Function>{};
  }

 private:
  ffi::Map<ffi::String, ffi::Function> functions_;
};

TEST(ConstLoader, StartsASymbolUpOnceWithItsConstantsInOrder) {
  std::string calls;
  ffi::Map<ffi::String, ffi::Function> functions;
  functions.Set("__init_gemm", ffi::Function::FromTyped([&](const ffi::Array<ffi::Tensor>& c) {
                  calls += "init";
                  for (const auto& t : c)
                    calls += " " + std::to_string(*static_cast<float*>(t.data_ptr()));
                  return 0;
                }));
  functions.Set("gemm", ffi::Function::FromTyped([&] { calls += " gemm"; }));
  const auto loader = load_const_loader(as_ffi(const_loader_bytes()));
  loader->ImportModule(ffi::Module{ffi::make_object<FakeModuleObj>(functions)});
  for (int i = 0; i < 2; ++i) (*loader->GetFunction("gemm"))();
  EXPECT_EQ(calls, "init 2.000000 1.000000 gemm gemm");
  EXPECT_FALSE(loader->GetFunction("other").has_value());
  const auto constants = (*loader->GetFunction("get_const_var_tensor"))();
  EXPECT_EQ((constants.cast<ffi::Map<ffi::String, ffi::Tensor>>().size()), 2U);
}

TEST(ConstLoader, AStartUpThatFailsOrIsMissingIsAnError) {
  ffi::Map<ffi::String, ffi::Function> functions;
  const auto loader = load_const_loader(as_ffi(const_loader_bytes()));
  EXPECT_EQ(error_of([&] { loader->GetFunction("gemm"); }),
            "no imported module has '__init_gemm', which gives 'gemm' its constants");
  functions.Set("__init_gemm",
                ffi::Function::FromTyped([](const ffi::Array<ffi::Tensor>&) { return 3; }));
  loader->ImportModule(ffi::Module{ffi::make_object<FakeModuleObj>(functions)});
  EXPECT_EQ(error_of([&] { loader->GetFunction("gemm"); }), "'__init_gemm' failed with 3");
}

TEST(ConstLoader, RefusesBrokenBytes) {
  test::for_each_prefix(const_loader_bytes(), [](Bytes got, bool whole) {
    EXPECT_EQ(read_const_loader(got).has_value(), whole);
  });
  test::for_each_byte(const_loader_bytes(), [](Bytes got) { (void)read_const_loader(got); });
  EXPECT_NE(error_of([] {
              load_const_loader(as_ffi(const_loader_bytes("c9")));
            }).find("symbol 'gemm' wants constant 'c9', which is none"),
            std::string::npos);
}

TEST(StaticLibrary, KeepsItsObjectAndNames) {
  const std::string path = testing::TempDir() + "outpost_object_" + std::to_string(getpid());
  std::ofstream{path} << "OBJECT";
  const auto opened = global("runtime.ModuleLoadStaticLibrary")(path, ffi::Array<ffi::String>{"f"})
                          .cast<ffi::Module>();
  const auto module = global("ffi.Module.load_from_bytes.static_library")(opened->SaveToBytes())
                          .cast<ffi::Module>();
  EXPECT_STREQ(module->kind(), "static_library");
  EXPECT_TRUE(module->ImplementsFunction("f"));
  EXPECT_FALSE(module->ImplementsFunction("g"));
  EXPECT_FALSE(module->GetFunction("f").has_value());
  module->WriteToFile(path, "o");
  std::ifstream in{path};
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>{in}, {}}), "OBJECT");
  std::remove(path.c_str());
  EXPECT_NE(error_of([&] { module->WriteToFile("/nowhere/x", "o"); }), "no error");
  EXPECT_NE(
      error_of([&] { global("runtime.ModuleLoadStaticLibrary")(path, ffi::Array<ffi::String>{}); }),
      "no error");
}

TEST(StaticLibrary, RefusesBrokenBytes) {
  std::vector<std::byte> bytes;
  ByteWriter out{bytes};
  out.sized(as_bytes("OBJECT"));
  out.le<std::uint64_t>(1);
  out.sized(as_bytes("f"));
  test::for_each_prefix(
      bytes, [](Bytes got, bool whole) { EXPECT_EQ(read_static_library(got).has_value(), whole); });
}

TEST(Metadata, ReadsTheJsonOfKernels) {
  const auto all = load_metadata(
      R"({"tvm_version": "0.1.0", "func_info": {"k": {"name": "k", "arg_types": ["handle", "int32"],
          "thread_axis_tags": ["blockIdx.x", "threadIdx.x"]}}})");
  const auto k = all.at("k");
  EXPECT_EQ(k.at("name").cast<ffi::String>(), "k");
  EXPECT_EQ(k.at("arg_types").cast<ffi::Array<ffi::Any>>().size(), 2U);
  EXPECT_EQ(k.at("launch_param_tags").cast<ffi::Array<ffi::String>>()[1], "threadIdx.x");
  EXPECT_EQ(error_of([] { load_metadata("{}"); }), "kernel description lacks 'func_info'");
  EXPECT_NE(error_of([] { load_metadata("{"); }).find("no JSON"), std::string::npos);
  EXPECT_NE(error_of([] { load_metadata(R"({"func_info": {"k": 3}})"); }), "no error");
}
}  // namespace
}  // namespace outpost::vm
