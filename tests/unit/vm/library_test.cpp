#include "module/library.h"

#include <gtest/gtest.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "module/elf_file.h"
#include "module/library_bin.h"
#include "outpost/vm/runtime.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;

std::vector<std::byte> read_file(const char* path) {
  std::ifstream in{path, std::ios::binary};
  std::vector<char> chars{std::istreambuf_iterator<char>{in}, {}};
  std::vector<std::byte> out(chars.size());
  std::transform(chars.begin(), chars.end(), out.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return out;
}

std::string load_error(const std::string& path, const std::string& shown = {}) {
  register_runtime();
  try {
    load_library(path, shown);
    return "no error";
  } catch (const ffi::Error& e) {
    return e.message();
  }
}

/// A file with these bytes that goes with the object.
struct TemporaryFile {
  explicit TemporaryFile(Bytes bytes, const char* name) : path{testing::TempDir() + name} {
    std::ofstream{path, std::ios::binary}.write(reinterpret_cast<const char*>(bytes.data()),
                                                static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
  std::string path;
};

TEST(LoadLibrary, GivesTheContextPointersToTheLibrary) {
  register_runtime();
  const auto module = load_library(PROBE_PLAIN);
  const auto f = module->GetFunction("add_one");
  ASSERT_TRUE(f.has_value());
  EXPECT_EQ((*f)(41).cast<int>(), 42);
  EXPECT_FALSE(module->GetFunction("missing").has_value());
}

TEST(LoadLibrary, NamesEverySymbolThatIsMissing) {
  EXPECT_EQ(load_error(PROBE_UNDEFINED, "net.so"),
            "Failed to load dynamic shared library 'net.so': it needs the symbols "
            "'another_symbol_of_nobody', 'symbol_of_nobody', which this process and the library's "
            "own needs lack");
}

TEST(LoadLibrary, NamesAKindWithoutALoaderAndTheKindsThereAre) {
  const auto text = load_error(PROBE_KIND);
  EXPECT_NE(text.find("kind 'fpga.v10', for which this runtime has no loader; it has '_lib'"),
            std::string::npos)
      << text;
}

TEST(LoadLibrary, CallsTheLoaderOfAKind) {
  register_runtime();
  std::string seen;
  ffi::Function::SetGlobal("ffi.Module.load_from_bytes.fpga.v11",
                           ffi::Function::FromTyped([&seen](const ffi::Bytes& bytes) {
                             seen.assign(bytes.data(), bytes.size());
                             return load_library(PROBE_PLAIN);
                           }),
                           true);
  const auto root = load_library(PROBE_KNOWN_KIND);
  EXPECT_EQ(seen, "abc");
  EXPECT_EQ(root->imports().size(), 1U);
  ffi::Function::RemoveGlobal("ffi.Module.load_from_bytes.fpga.v11");
}

TEST(LoadLibrary, NamesTheWrongArchitectureFoundAndExpected) {
  auto bytes = read_file(PROBE_PLAIN);
  const bool arm = own_architecture().machine == 183;
  bytes[18] = static_cast<std::byte>(arm ? 62 : 183);
  const TemporaryFile file{bytes, "other_machine.so"};
  EXPECT_EQ(load_error(file.path, "net.so"),
            std::string{"Failed to load dynamic shared library 'net.so': wrong architecture: the "
                        "file is for "} +
                (arm ? "x86-64" : "AArch64") + " (64-bit), this machine is " +
                describe(own_architecture()));
}

TEST(LoadLibrary, RefusesWhatIsNoLibrary) {
  EXPECT_NE(load_error("/nowhere/x.so").find("cannot open the file"), std::string::npos);
  EXPECT_NE(load_error("/").find("not a regular file"), std::string::npos);
  const TemporaryFile text{as_bytes("not a library"), "text.so"};
  EXPECT_NE(load_error(text.path).find("no ELF header"), std::string::npos);
  const TemporaryFile nothing{{}, "empty.so"};
  EXPECT_NE(load_error(nothing.path).find("the file is empty"), std::string::npos);
}

TEST(LoadLibrary, SaysWhereAFileWasCutShort) {
  const auto bytes = read_file(PROBE_PLAIN);
  const TemporaryFile half{Bytes{bytes}.first(bytes.size() / 4), "half.so"};
  EXPECT_NE(load_error(half.path).find("file cut short"), std::string::npos)
      << load_error(half.path);
}

TEST(InspectLibrary, ListsWhatTheLibraryNeeds) {
  const auto bytes = read_file(PROBE_UNDEFINED);
  const auto facts = inspect_library(bytes);
  ASSERT_TRUE(facts) << facts.error().text;
  const auto& names = facts->undefined;
  EXPECT_NE(std::find(names.begin(), names.end(), "symbol_of_nobody"), names.end());
  EXPECT_FALSE(facts->library_bin);
}

TEST(InspectLibrary, SurvivesEveryCutAndEveryFlippedByteOfTheTables) {
  const auto bytes = read_file(PROBE_KIND);
  for (std::size_t n = 0; n < bytes.size(); n += n < 4096 ? 1 : 61)
    (void)inspect_library(Bytes{bytes}.first(n));
  auto broken = bytes;
  for (std::size_t i = 0; i < std::min<std::size_t>(broken.size(), 6000); ++i) {
    const auto kept = broken[i];
    for (const int value : {0, 1, 127, 255}) {
      broken[i] = static_cast<std::byte>(value);
      (void)inspect_library(broken);
    }
    broken[i] = kept;
  }
}

std::vector<std::byte> bin_of(const char* library) {
  const auto bytes = read_file(library);
  const auto facts = inspect_library(bytes);
  if (!facts || !facts->library_bin) return {};
  return {facts->library_bin->begin(), facts->library_bin->end()};
}

TEST(LibraryBin, ReadsKindsBytesAndImports) {
  const auto bin = bin_of(PROBE_KIND);
  const auto modules = read_library_bin(bin);
  ASSERT_TRUE(modules) << modules.error().text;
  ASSERT_EQ(modules->size(), 2U);
  EXPECT_EQ(modules->at(0).kind, "fpga.v10");
  EXPECT_EQ(as_text(modules->at(0).bytes), "abc");
  EXPECT_EQ(modules->at(0).imports, std::vector<std::uint64_t>{1});
  EXPECT_EQ(modules->at(1).kind, "_lib");
}

TEST(LibraryBin, EveryPrefixIsAnError) {
  const auto bin = bin_of(PROBE_KIND);
  for (std::size_t n = 0; n < 8 + 0x57; ++n) EXPECT_FALSE(read_library_bin(Bytes{bin}.first(n)));
}

std::string bin_error(std::size_t at, int value) {
  auto bin = bin_of(PROBE_KIND);
  bin[at] = static_cast<std::byte>(value);
  const auto modules = read_library_bin(bin);
  return modules ? "no error" : modules.error().text;
}

TEST(LibraryBin, RefusesImportsThatLibtvmFfiWouldTrust) {
  EXPECT_EQ(bin_error(16, 1), "import rows cover [1, 1) of 1 children");
  EXPECT_EQ(bin_error(24, 9), "import row 0 is [0, 9) of 1 children");
  EXPECT_EQ(bin_error(48, 5), "module 0 imports module 5 of 2");
  EXPECT_EQ(bin_error(48, 0), "embedded modules import each other in a circle");
}
}  // namespace
}  // namespace outpost::vm
