#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "outpost/vm/executable.h"
#include "support/sweep.h"

namespace outpost::vm {
namespace {

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  const std::string raw{std::istreambuf_iterator<char>{in}, {}};
  const auto b = as_bytes(raw);
  return {b.begin(), b.end()};
}

std::vector<std::byte> sample(const std::string& name) {
  return bytes_of(OUTPOST_CORPUS "/fuzz_executable/" + name + ".vmexe");
}

VerifiedExecutable verified(Bytes file) {
  auto executable = read_executable(file);
  EXPECT_FALSE(executable.has_error()) << executable.error().text;
  auto v = verify(*std::move(executable));
  EXPECT_FALSE(v.has_error()) << v.error().text;
  return *std::move(v);
}

TEST(Executable, IsWrittenBackByteForByte) {
  int files = 0;
  for (const auto& e : std::filesystem::directory_iterator{OUTPOST_CORPUS "/fuzz_executable"}) {
    if (e.path().extension() != ".vmexe") continue;
    SCOPED_TRACE(e.path());
    const auto file = bytes_of(e.path());
    EXPECT_EQ(write_executable(verified(file).get()), file);
    ++files;
  }
  EXPECT_GT(files, 8);
}

TEST(Executable, OlderVersionHoldsTheSameProgram) {
  const auto v1 = sample("constants_v1");
  const auto v2 = sample("constants_constants");
  EXPECT_EQ(verified(v1).get().format, 1);
  EXPECT_EQ(disassemble(verified(v1)), disassemble(verified(v2)));
  EXPECT_EQ(verified(sample("constants_scoped")).get().scopes.size(), 1U);
}

TEST(Executable, EveryPrefixIsRefusedWithAPlace) {
  test::for_each_prefix(sample("constants_constants"), [](Bytes prefix, bool whole) {
    const auto got = read_executable(prefix);
    ASSERT_EQ(got.has_value(), whole);
    if (whole) return;
    EXPECT_NE(got.error().text.find("(byte "), std::string::npos) << got.error().text;
  });
}

TEST(Executable, NoChangedByteGetsPastTheVerifierUnsafely) {
  auto file = sample("closures_compiled");
  std::size_t accepted = 0;
  test::for_each_byte(file, [&accepted](Bytes changed) {
    auto got = read_executable(changed);
    if (got.has_error()) return;
    const auto v = verify(*std::move(got));
    if (v.has_error()) return;
    ++accepted;
    disassemble(*v);
  });
  EXPECT_GT(accepted, 0U);  // names and immediates may change freely
}

TEST(Executable, IsDisassembledAsThePeerDoes) {
  const auto v = verified(sample("constants_constants"));
  const auto text = disassemble(v);
  for (const auto* part :
       {"@function_value:\n  call  vm.builtin.invoke_closure in: %vm, f[vm.builtin.copy], %0 dst: "
        "%1\n"
        "  ret   %1\n\n",
        "@no_result:\n  call  vm.builtin.null_value in:              dst: %void\n  ret   %void\n\n",
        "@loop:\n  call  vm.builtin.read_if_cond in: %0           dst: %2\n  If    %2, 4\n"
        "  call  vm.builtin.copy  in: %1           dst: %3\n"
        "  call  vm.builtin.copy  in: %3           dst: %0\n  goto  -4\n  ret   %0\n\n",
        "@vm.builtin.read_if_cond packed_func;\n\n", "c[1]", "i-36028797018963967"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  EXPECT_NE(
      disassemble(verified(sample("control_compiled"))).find("@pick num_inputs=2 vm_tir_func;"),
      std::string::npos);
}

TEST(Executable, IsWrittenAsBuilderCalls) {
  const auto text = as_python(verified(sample("constants_constants")));
  EXPECT_NE(text.find("with ib.function(\"no_result\", num_inputs=0):\n"
                      "    ib.emit_call(\"vm.builtin.null_value\", args=[])\n"
                      "    ib.emit_ret(ib.void_arg())\n"),
            std::string::npos)
      << text;
}

TEST(Executable, CountsConstantsOfEveryKind) {
  const auto text = stats(verified(sample("constants_constants")));
  EXPECT_NE(text.find("-2.5"), std::string::npos) << text;
  EXPECT_NE(text.find("float32[2, 3]"), std::string::npos) << text;
  EXPECT_NE(text.find("float32x4"), std::string::npos) << text;
}

TEST(Executable, FunctionsAreFoundByName) {
  const auto v = verified(sample("tuples_bytecode"));
  for (std::size_t i = 0; i < v.get().functions.size(); ++i)
    EXPECT_EQ(v.find(v.get().functions[i].name), static_cast<std::int64_t>(i));
  EXPECT_EQ(v.find("absent"), -1);
}

}  // namespace
}  // namespace outpost::vm
