#include "server/worker_config.h"

#include <gtest/gtest.h>

namespace outpost::server {
namespace {

TEST(WorkerConfig, ComesBackFromItsWords) {
  WorkerConfig config;
  config.mode = WorkerMode::serial;
  config.root = "/tmp/a root=b";
  config.libraries = {"a.so", "b=c.so"};
  config.limits.memory_bytes = 1ULL << 40;
  config.limits.open_files = 77;
  config.session.spin = std::chrono::microseconds{50};
  config.session.link_timeout = std::chrono::seconds{7};
  config.session.limits.handles_max = 5;
  config.session.limits.ndim_max = 9;
  config.session.unconfined_paths = true;
  config.keep_output = false;
  const auto back = from_words(to_words(config));
  ASSERT_TRUE(back.has_value()) << back.error().text;
  EXPECT_EQ(to_words(*back), to_words(config));
  EXPECT_EQ(back->root, config.root);
  EXPECT_EQ(back->libraries, config.libraries);
  EXPECT_EQ(back->mode, WorkerMode::serial);
  EXPECT_EQ(back->session.spin, config.session.spin);
  EXPECT_FALSE(back->keep_output);
}

TEST(WorkerConfig, RefusesWordsOfAnotherVersion) {
  for (const auto* word : {"colour=1", "ndim=x", "ndim", "ndim=", ""})
    EXPECT_TRUE(from_words({word}).has_error()) << word;
}

}  // namespace
}  // namespace outpost::server
