#include "base/host_port.h"

#include <gtest/gtest.h>

namespace outpost {
namespace {

struct Good {
  const char* text;
  const char* host;
  std::uint16_t port;
};
void PrintTo(const Good& g, std::ostream* out) {
  *out << g.text;
}

class GoodAddress : public testing::TestWithParam<Good> {};
TEST_P(GoodAddress, IsReadAsAPersonMeansIt) {
  const auto got = parse_host_port(GetParam().text, 9190);
  ASSERT_TRUE(got.has_value()) << got.error().text;
  EXPECT_EQ(*got, (HostPort{GetParam().host, GetParam().port}));
}
INSTANTIATE_TEST_SUITE_P(HostPort, GoodAddress,
                         testing::Values(Good{"lab", "lab", 9190}, Good{"lab:1", "lab", 1},
                                         Good{"10.0.0.1:65535", "10.0.0.1", 65535},
                                         Good{"[::1]:9091", "::1", 9091},
                                         Good{"[::1]", "::1", 9190}, Good{"::1:9091", "::1", 9091},
                                         Good{"::1", "::1", 9190}, Good{"::", "::", 9190},
                                         Good{"fe80::2%eth0", "fe80::2%eth0", 9190},
                                         Good{"2001:db8::5", "2001:db8::5", 9190}));

struct Bad {
  const char* text;
  const char* says;
};
void PrintTo(const Bad& b, std::ostream* out) {
  *out << b.text;
}

class BadAddress : public testing::TestWithParam<Bad> {};
TEST_P(BadAddress, IsRefusedWithTheReason) {
  const auto got = parse_host_port(GetParam().text, 9190);
  ASSERT_TRUE(got.has_error());
  EXPECT_EQ(got.error().text, GetParam().says);
}
INSTANTIATE_TEST_SUITE_P(
    HostPort, BadAddress,
    testing::Values(
        Bad{"", "'' is not host:port: the host is missing"},
        Bad{"lab:x", "'lab:x' is not host:port: port 'x' is not a number from 0 to 65535"},
        Bad{"lab:", "'lab:' is not host:port: port '' is not a number from 0 to 65535"},
        Bad{"lab:70000",
            "'lab:70000' is not host:port: port '70000' is not a number from 0 to 65535"},
        Bad{":90", "':90' is not host:port: the host is missing"},
        Bad{"[::1", "'[::1' is not host:port: ']' is missing"},
        Bad{"[lab]:1", "'[lab]:1' is not host:port: the part in brackets is not an IPv6 address"},
        Bad{"a:b:c", "'a:b:c' is not host:port: write an IPv6 address as [address]:port"}));

TEST(HostPort, PutsBracketsAroundAnIpv6Address) {
  EXPECT_EQ(format_host_port("::1", 9190), "[::1]:9190");
  EXPECT_EQ(format_host_port("10.0.0.1", 9190), "10.0.0.1:9190");
}

}  // namespace
}  // namespace outpost
