#include "outpost/spec.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstring>

#include "outpost/options.h"
#include "outpost/progress.h"

namespace outpost::app {
namespace {

TEST(InputSpec, KnowsEachForm) {
  EXPECT_EQ(parse_input("float32[16,16]").value(), (InputSpec{TensorSpec{{2, 32, 1}, {16, 16}}}));
  EXPECT_EQ(parse_input("int8[]").value(), (InputSpec{TensorSpec{{0, 8, 1}, {}}}));
  EXPECT_EQ(parse_input("dir/x.npy").value(), (InputSpec{FileSpec{"dir/x.npy"}}));
  EXPECT_EQ(parse_input("-5").value(), (InputSpec{std::int64_t{-5}}));
  EXPECT_EQ(parse_input("2.5").value(), (InputSpec{2.5}));
  EXPECT_EQ(parse_input("text:5").value(), (InputSpec{std::string{"5"}}));
}

TEST(InputSpec, SaysWhatWasExpected) {
  EXPECT_EQ(parse_input("x.foo").error().text,
            "'x.foo' is no input: expected file.npy, a tensor such as float32[16,16], a number or "
            "text:...");
  EXPECT_EQ(parse_input("float32[4,]x").error().text,
            "'float32[4,]x' is no tensor such as float32[16,16]");
  EXPECT_EQ(parse_input("float32[4,-1]").error().text, "'-1' in 'float32[4,-1]' is no dimension");
  EXPECT_EQ(parse_input("flot32[4]").error().code, Code::malformed);
}

TEST(OutputSpec, NamesAFileATensorOrBoth) {
  EXPECT_EQ(parse_output("y.npy").value().path, "y.npy");
  EXPECT_FALSE(parse_output("y.npy").value().filled);
  EXPECT_EQ(parse_output("y.npy=float32[4]").value().filled, (TensorSpec{{2, 32, 1}, {4}}));
  EXPECT_EQ(parse_output("=float32[4]").value().path, "");
  EXPECT_EQ(parse_output("y.txt").error().text, "output 'y.txt' is no .npy file");
}

TEST(ServerAddress, SplitsAtTheLastColon) {
  EXPECT_EQ(parse_address("10.0.0.4:9090").value().host, "10.0.0.4");
  EXPECT_EQ(parse_address("::1:9090").value().host, "::1");
  EXPECT_EQ(parse_address("[::1]:9090").value().host, "::1");
  for (const auto* bad : {"", "host", "host:", ":9090", "host:0", "host:70000", "host:90x"})
    EXPECT_TRUE(parse_address(bad).has_error()) << bad;
}

TEST(RandomElements, AreTheSameForTheSameSeedAndInRange) {
  const TensorSpec spec{{2, 32, 1}, {1000}};
  const auto bytes = random_elements(spec, 1);
  EXPECT_EQ(bytes, random_elements(spec, 1));
  EXPECT_NE(bytes, random_elements(spec, 2));
  std::vector<float> values(1000);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (const float v : values) EXPECT_TRUE(v >= 0 && v < 1);
}

TEST(RandomElements, FitEveryType) {
  for (const auto* type : {"float16", "bfloat16", "float64", "int8", "uint16", "int64", "bool",
                           "int4", "float8_e4m3fn", "float4_e2m1fn", "float32x4"}) {
    const TensorSpec spec{client::DataType::parse(type), {7, 3}};
    EXPECT_EQ(random_elements(spec, 5).size(), spec.dtype.bytes(21)) << type;
  }
}

TEST(RandomElements, OfHalfPrecisionAreBelowOne) {
  const auto bytes = random_elements({{2, 16, 1}, {1000}}, 3);
  for (std::size_t i = 1; i < bytes.size(); i += 2) EXPECT_LT(std::to_integer<int>(bytes[i]), 0x3c);
}

TEST(ProgressLine, ShowsShareSizesAndRate) {
  EXPECT_EQ(progress_line("net.so", 125'000'000, 250'000'000, std::chrono::seconds{1}),
            "net.so  [============            ]  50%  125.0 MB of 250.0 MB, 125.0 MB/s");
  EXPECT_EQ(progress_line("e", 0, 0, std::chrono::seconds{0}),
            "e  [========================] 100%  0 B of 0 B, 0 B/s");
}

TEST(CommandLine, HandsEachCommandItsOptions) {
  CLI::App app{"", "outpost"};
  Parsed parsed;
  add_commands(app, parsed, true);
  const char* line[] = {"outpost", "time", "-k",         "pi4", "net.so",      "add", "-i",
                        "x.npy",   "-i",   "float32[4]", "-o",  "=float32[4]", "-n",  "7"};
  app.parse(static_cast<int>(std::size(line)), line);
  const auto command = std::get<RunCommand>(chosen_command(app, parsed));
  EXPECT_TRUE(command.measure);
  EXPECT_EQ(command.library, "net.so");
  EXPECT_EQ(command.inputs, (std::vector<std::string>{"x.npy", "float32[4]"}));
  EXPECT_EQ(command.outputs, (std::vector<std::string>{"=float32[4]"}));
  EXPECT_EQ(command.number, 7);
  EXPECT_EQ(parsed.target.key, "pi4");
}

}  // namespace
}  // namespace outpost::app
