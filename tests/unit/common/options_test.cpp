#include "common/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>

namespace outpost::app {
namespace {

struct Outcome {
  std::optional<int> exit_code;
  std::string error;
  DaemonOptions daemon;
  int port = 9190;
};

Outcome parse(std::vector<const char*> words) {
  Outcome out;
  CLI::App app{"a daemon", "tracker"};
  add_daemon_options(app, out.daemon);
  app.add_option("--port", out.port)->check(CLI::Range(0, 65535));
  words.insert(words.begin(), "tracker");
  testing::internal::CaptureStderr();
  out.exit_code = parse_options(app, static_cast<int>(words.size()), words.data());
  out.error = testing::internal::GetCapturedStderr();
  return out;
}

TEST(Options, TakesALogLevelByName) {
  const auto got = parse({"--log-level", "warn", "--log-format=json"});
  EXPECT_FALSE(got.exit_code) << got.error;
  EXPECT_EQ(got.daemon.log.level, LogLevel::warn);
  EXPECT_EQ(got.daemon.log.format, LogFormat::json);
}

TEST(Options, SuggestsTheNearestNameForAMisspeltOption) {
  const auto got = parse({"--prot=9000"});
  EXPECT_EQ(got.exit_code, kExitUsage);
  EXPECT_EQ(got.error, "tracker: unknown option '--prot', did you mean '--port'?\n");
}

TEST(Options, NamesAnUnknownOptionThatIsNearToNothing) {
  EXPECT_EQ(parse({"--zzzzzzzzz"}).error, "tracker: unknown option '--zzzzzzzzz'\n");
}

TEST(Options, NamesAnArgumentThatNobodyWants) {
  EXPECT_EQ(parse({"lab"}).error, "tracker: unexpected argument 'lab'\n");
}

TEST(Options, ExplainsABadValueInOneLine) {
  const auto got = parse({"--port", "70000"});
  EXPECT_EQ(got.exit_code, kExitUsage);
  EXPECT_EQ(std::count(got.error.begin(), got.error.end(), '\n'), 1);
  EXPECT_NE(got.error.find("70000"), std::string::npos) << got.error;
}

class ConfigFile {
 public:
  explicit ConfigFile(const char* text)
      : path_{testing::TempDir() + "options_test." + std::to_string(::getpid()) + ".toml"} {
    std::ofstream{path_} << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

TEST(Options, ReadsAConfigFile) {
  const ConfigFile file{"port = 9000\nsilent = true\n"};
  const auto got = parse({"--config", file.path()});
  EXPECT_FALSE(got.exit_code) << got.error;
  EXPECT_EQ(got.port, 9000);
  EXPECT_TRUE(got.daemon.silent);
}

TEST(Options, SuggestsTheNearestNameForAMisspeltConfigKey) {
  const ConfigFile file{"prot = 9000\n"};
  const auto got = parse({"--config", file.path()});
  EXPECT_EQ(got.exit_code, kExitUsage);
  EXPECT_EQ(got.error, "tracker: unknown key 'prot' in the config file, did you mean 'port'?\n");
}

TEST(Options, ReadsTheEnvironmentBelowTheCommandLine) {
  ::setenv("OUTPOST_PORT", "9001", 1);
  EXPECT_EQ(parse({}).port, 9001);
  EXPECT_EQ(parse({"--port", "9002"}).port, 9002);
  ::unsetenv("OUTPOST_PORT");
}

}  // namespace
}  // namespace outpost::app
