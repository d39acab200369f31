#include "server/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace outpost::server {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  FolderTest() : path_{fs::temp_directory_path() / ("folder_test." + std::to_string(::getpid()))} {
    fs::create_directories(path_);
  }
  ~FolderTest() override { (void)remove_tree(path_); }
  void file(const fs::path& name) { std::ofstream{path_ / name} << "x"; }
  fs::path path_;
};

TEST_F(FolderTest, RemovesFilesFoldersAndLinksButNotTheirTargets) {
  file("kept");
  const auto tree = path_ / "tree";
  fs::create_directories(tree / "a" / "b" / "c");
  file("tree/a/b/c/file");
  file("tree/.hidden");
  fs::create_symlink(path_ / "kept", tree / "link");
  fs::create_directory_symlink(path_, tree / "a" / "up");
  ASSERT_TRUE(remove_tree(tree).has_value());
  EXPECT_FALSE(fs::exists(tree));
  EXPECT_TRUE(fs::exists(path_ / "kept"));
}

TEST_F(FolderTest, RemovesFoldersDeeperThanAPathMayBe) {
  const auto tree = path_ / "tree";
  fs::create_directory(tree);
  const auto before = fs::current_path();
  fs::current_path(tree);
  for (int i = 0; i < 250; ++i) {
    ASSERT_EQ(::mkdir("a folder that is nested", 0700), 0);
    ASSERT_EQ(::chdir("a folder that is nested"), 0);
  }
  fs::current_path(before);
  ASSERT_TRUE(remove_tree(tree).has_value());
  EXPECT_FALSE(fs::exists(tree));
}

TEST_F(FolderTest, RemovesFoldersWithoutRights) {
  const auto tree = path_ / "tree";
  fs::create_directories(tree / "a" / "b");
  file("tree/a/b/file");
  fs::permissions(tree / "a" / "b", fs::perms::none);
  fs::permissions(tree / "a", fs::perms::none);
  fs::permissions(tree, fs::perms::none);
  ASSERT_TRUE(remove_tree(tree).has_value());
  EXPECT_FALSE(fs::exists(tree));
}

TEST_F(FolderTest, FindsAMissingFolderRemoved) {
  EXPECT_TRUE(remove_tree(path_ / "absent").has_value());
}

TEST_F(FolderTest, DoesNotFollowALinkInPlaceOfTheFolder) {
  file("kept");
  fs::create_directory_symlink(path_, path_ / "link");
  EXPECT_TRUE(remove_tree(path_ / "link").has_error());
  EXPECT_TRUE(fs::exists(path_ / "kept"));
}

TEST_F(FolderTest, LeavesTheRootOfALivingServerAlone) {
  std::size_t stale = 7;
  const auto first = WorkRoot::create(path_, stale);
  ASSERT_TRUE(first.has_value()) << first.error().text;
  EXPECT_EQ(stale, 0u);
  const auto second = WorkRoot::create(path_, stale);
  EXPECT_EQ(stale, 0u);
  EXPECT_TRUE(fs::exists(first->path()));
  EXPECT_NE(first->path(), second->path());
}

TEST_F(FolderTest, RemovesTheRootOfADeadServer) {
  fs::create_directories(path_ / "outpost_rpc.dead" / "s1");
  file("outpost_rpc.dead/lock");
  file("outpost_rpc.notours");
  std::size_t stale = 0;
  const auto root = WorkRoot::create(path_, stale);
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(stale, 1u);
  EXPECT_FALSE(fs::exists(path_ / "outpost_rpc.dead"));
  EXPECT_TRUE(fs::exists(path_ / "outpost_rpc.notours"));
}

}  // namespace
}  // namespace outpost::server
