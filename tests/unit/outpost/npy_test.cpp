#include "outpost/npy.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "support/sweep.h"

namespace outpost::app {
namespace {

/// A version 1 file with this dictionary and `data_bytes` of elements.
std::string file(std::string_view dictionary, std::size_t data_bytes) {
  std::string out{"\x93NUMPY\x01\x00", 8};
  out += static_cast<char>(dictionary.size() & 0xff);
  out += static_cast<char>(dictionary.size() >> 8);
  return out + std::string{dictionary} + std::string(data_bytes, 'x');
}

std::string error_of(const std::string& raw) {
  const auto head = parse_npy(as_bytes(raw));
  return head.has_error() ? head.error().text : "";
}

TEST(Npy, ReadsWhatNumpyWrites) {
  const auto raw = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n", 24);
  const auto head = parse_npy(as_bytes(raw));
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->dtype, (client::DataType{2, 32, 1}));
  EXPECT_EQ(head->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(head->data_offset, raw.size() - 24);
}

TEST(Npy, ReadsScalarsEmptyOnesAndOneDimension) {
  EXPECT_EQ(error_of(file("{'descr': '<i8', 'fortran_order': False, 'shape': ()}", 8)), "");
  EXPECT_EQ(error_of(file("{'descr': '|b1', 'fortran_order': True, 'shape': (5,)}", 5)), "");
  EXPECT_EQ(error_of(file("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9)}", 0)), "");
}

TEST(Npy, NamesWhatItDoesNotRead) {
  EXPECT_EQ(error_of(file("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4)),
            "elements of type '>f4'");
  EXPECT_EQ(error_of(file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", 16)),
            "Fortran order: save it with numpy.ascontiguousarray");
  EXPECT_EQ(error_of(file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 4)),
            "expected a string at byte 10 of the head");
  EXPECT_EQ(error_of(file("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 8)),
            "8 bytes of elements follow the head, its shape needs 12");
  EXPECT_EQ(error_of(file("{'descr': '<f4', 'shape': (3,)}", 12)),
            "the head lacks descr, fortran_order or shape");
  EXPECT_EQ(error_of("not numpy at all"), "the magic is not that of .npy");
  EXPECT_EQ(error_of(file("{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (4611686018427387904, 4)}",
                          0)),
            "the shape has more elements than can be counted");
}

TEST(Npy, ErrsAtEveryCut) {
  const auto raw = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  test::for_each_prefix(
      as_bytes(raw), [](Bytes got, bool whole) { EXPECT_EQ(parse_npy(got).has_value(), whole); });
}

TEST(Npy, SurvivesEveryByte) {
  const auto raw = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 8);
  const auto bytes = as_bytes(raw);
  test::for_each_byte({bytes.begin(), bytes.end()}, [](Bytes got) { (void)parse_npy(got); });
}

TEST(NpyProperty, ReadsBackWhatItWrites) {
  rc::check([] {
    const auto shape =
        *rc::gen::resize(4, rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange(0, 5)));
    const auto dtype = *rc::gen::element(client::DataType{2, 32, 1}, client::DataType{0, 8, 1},
                                         client::DataType{4, 16, 1}, client::DataType{6, 8, 1});
    const auto head = npy_head(dtype, shape);
    RC_ASSERT(head.size() % 64 == 0U);
    const auto raw = head + std::string(dtype.bytes(client::element_count(shape)), 'x');
    const auto back = parse_npy(as_bytes(raw));
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->dtype == dtype);
    RC_ASSERT(back->shape == shape);
    RC_ASSERT(back->data_offset == head.size());
  });
}

TEST(Npy, WritesTypesThatNumpyLacksAsOpaqueOrPackedBytes) {
  EXPECT_NE(npy_head({10, 8, 1}, {3}).find("'|V1', 'fortran_order': False, 'shape': (3,)"),
            std::string::npos);
  EXPECT_NE(npy_head({17, 4, 1}, {3}).find("'|u1', 'fortran_order': False, 'shape': (2,)"),
            std::string::npos);
  EXPECT_NE(npy_head({2, 32, 4}, {3}).find("'<f4', 'fortran_order': False, 'shape': (3, 4)"),
            std::string::npos);
}

}  // namespace
}  // namespace outpost::app
