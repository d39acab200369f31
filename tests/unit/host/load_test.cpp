#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <fstream>

#include "host/archive.h"
#include "support/session_pair.h"

namespace outpost {
namespace {
namespace fs = std::filesystem;
using Packed = rpc::PackedWriter;

struct Member {
  std::string name;
  std::string text;
  unsigned type = AE_IFREG;
  std::string link{};
};

std::string make_tar(const std::string& folder, const std::vector<Member>& members) {
  auto path = folder + "/in.tar";
  auto* writer = archive_write_new();
  archive_write_set_format_ustar(writer);
  archive_write_add_filter_gzip(writer);
  EXPECT_EQ(archive_write_open_filename(writer, path.c_str()), ARCHIVE_OK);
  for (const auto& m : members) {
    auto* entry = archive_entry_new();
    archive_entry_set_pathname(entry, m.name.c_str());
    archive_entry_set_filetype(entry, m.type);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, static_cast<la_int64_t>(m.text.size()));
    if (m.type == AE_IFLNK)
      archive_entry_set_symlink(entry, m.link.c_str());
    else if (!m.link.empty())
      archive_entry_set_hardlink(entry, m.link.c_str());
    archive_write_header(writer, entry);
    archive_write_data(writer, m.text.data(), m.text.size());
    archive_entry_free(entry);
  }
  archive_write_free(writer);
  return path;
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "load-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    fs::create_directory(path_ + "/out");
  }
  void TearDown() override { fs::remove_all(path_); }
  std::string path_;
};
using UnpackTar = Folder;

TEST_F(UnpackTar, TakesPlainFilesAndSkipsTheFolderItself) {
  const auto tar = make_tar(path_, {{"./", "", AE_IFDIR}, {"./a.o", "aa"}, {"b.c", "b"}});
  const auto files = host::unpack_tar(tar, path_ + "/out");
  ASSERT_TRUE(files) << files.error().text;
  EXPECT_EQ(files->size(), 2U);
  EXPECT_EQ(fs::file_size(path_ + "/out/a.o"), 2U);
}

TEST_F(UnpackTar, RefusesMembersThatLeaveTheFolderOrAreNoFiles) {
  const std::vector<Member> bad[] = {{{"../x", "1"}},
                                     {{"/tmp/x", "1"}},
                                     {{"a/b", "1"}},
                                     {{"l", "", AE_IFLNK, "/etc/passwd"}},
                                     {{"h", "", AE_IFREG, "/etc/passwd"}},
                                     {{"p", "", AE_IFIFO}},
                                     {{"d", "", AE_IFDIR}}};
  for (const auto& members : bad) {
    const auto files = host::unpack_tar(make_tar(path_, members), path_ + "/out");
    ASSERT_TRUE(files.has_error()) << members[0].name;
    EXPECT_EQ(files.error().code, Code::denied);
    EXPECT_TRUE(files.error().text.starts_with("Tar error:")) << files.error().text;
  }
  EXPECT_FALSE(fs::exists(path_ + "/x"));
}

TEST_F(UnpackTar, StopsAtItsLimits) {
  const auto tar = make_tar(path_, {{"a", std::string(1000, 'a')}, {"b", "b"}});
  EXPECT_EQ(host::unpack_tar(tar, path_ + "/out", {.bytes_max = 100}).error().code, Code::limit);
  EXPECT_EQ(host::unpack_tar(tar, path_ + "/out", {.members_max = 1}).error().code, Code::limit);
}

TEST_F(UnpackTar, SaysThatJunkIsNoArchive) {
  std::ofstream{path_ + "/in.tar"} << "this is not a tar archive";
  EXPECT_TRUE(
      host::unpack_tar(path_ + "/in.tar", path_ + "/out").error().text.starts_with("Tar error:"));
}

/// C source of a library whose function `answer` returns `value`.
std::string source(int value) {
  return "#include \"tvm/runtime/c_backend_api.h\"\n"
         "#ifdef __cplusplus\nextern \"C\"\n#endif\n"
         "TVM_DLL int __tvm_ffi_answer(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* "
         "ret) {\n"
         "  ret->type_index = 1; ret->v_int64 = " +
         std::to_string(value) + "; return 0; }\n";
}

class LoadModule : public Folder {
 protected:
  test::SessionPair::Answer load(test::SessionPair& s, std::string_view name) {
    return s.call(s.global("tvm.rpc.server.load_module"), 1,
                  [&](Packed& p) { p.raw_string(name); });
  }
  std::int64_t answer_of(test::SessionPair& s, std::uint64_t module) {
    const auto f = s.call(s.global("tvm.rpc.server.ModuleGetFunction"), 3, [&](Packed& p) {
      p.module(module);
      p.raw_string("answer");
      p.boolean(true);
    });
    EXPECT_EQ(f.code, rpc::FrameCode::return_value) << f.text();
    return s.call(f.values[1].handle(), 0, [](Packed&) {}).values[1].integer;
  }
};

TEST_F(LoadModule, LinksAnArchiveOfCFilesAndKeepsOldCodeWhenTheFileIsReplaced) {
  test::SessionPair s;
  s.init();
  std::uint64_t modules[2];
  for (const int value : {1, 2}) {
    fs::copy_file(make_tar(path_, {{"lib0.c", source(value)}}), s.folder() + "/m.tar",
                  fs::copy_options::overwrite_existing);
    const auto a = load(s, "m.tar");
    ASSERT_EQ(a.code, rpc::FrameCode::return_value) << a.text();
    modules[value - 1] = a.values[1].handle();
  }
  EXPECT_EQ(answer_of(s, modules[0]), 1);
  EXPECT_EQ(answer_of(s, modules[1]), 2);
  EXPECT_EQ(answer_of(s, load(s, "m.tar.so").values[1].handle()), 2);
}

TEST_F(LoadModule, PassesTheCompilersMessagesOn) {
  test::SessionPair s;
  s.init();
  fs::copy_file(make_tar(path_, {{"lib0.c", "#error broken on purpose\n"}}), s.folder() + "/m.tar");
  const auto a = load(s, "m.tar");
  EXPECT_TRUE(a.text().starts_with("Compilation error:\n")) << a.text();
  EXPECT_NE(a.text().find("broken on purpose"), std::string::npos) << a.text();
}

TEST_F(LoadModule, NamesWhatIsMissingOrUnknown) {
  test::SessionPair s;
  s.init();
  EXPECT_EQ(load(s, "no.so").text(), "cannot find file " + s.folder() + "/no.so");
  std::ofstream{s.folder() + "/x.bin"} << "x";
  EXPECT_EQ(load(s, "x.bin").text(), "Loader for `.bin` files is not registered");
  EXPECT_EQ(load(s, "/etc/passwd.so").code, rpc::FrameCode::exception);
}

}  // namespace
}  // namespace outpost
