// Deliberately broken executables: tests/data/bad_exec/*.txt, each with the answer it must get.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "outpost/vm/executable.h"
#include "support/field_file.h"

namespace outpost::vm {
namespace {

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator{OUTPOST_TEST_DATA "/bad_exec"})
    names.push_back(e.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string answer(Bytes file) {
  auto executable = read_executable(file);
  if (executable.has_error()) return executable.error().text;
  const auto verified = verify(*std::move(executable));
  return verified.has_error() ? verified.error().text : "accepted";
}

class BadExecutable : public testing::TestWithParam<std::string> {};

TEST_P(BadExecutable, IsRefusedWithAPlaceAndAReason) {
  const auto file = test::read_field_file(OUTPOST_TEST_DATA "/bad_exec/" + GetParam() + ".txt");
  EXPECT_EQ(answer(file.bytes), file.expect);
}

INSTANTIATE_TEST_SUITE_P(Files, BadExecutable, testing::ValuesIn(files()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace outpost::vm
