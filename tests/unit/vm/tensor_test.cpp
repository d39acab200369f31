#include "device/tensor.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <tvm/ffi/error.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace outpost::vm {
namespace {
constexpr DLDevice kCpu{kDLCPU, 0};
constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt4{kDLInt, 4, 1};

TEST(Tensor, EmptyIsAlignedAndCompact) {
  const auto t = empty({2, 3}, kFloat32, kCpu);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data_ptr()) % 64, 0U);
  EXPECT_TRUE(t.IsContiguous());
  EXPECT_EQ(checked_bytes(*t.GetDLTensorPtr()), 24U);
}

TEST(Tensor, RankZeroHasOneElementAndAZeroDimensionNone) {
  EXPECT_EQ(checked_bytes({}, kFloat32), 4U);
  EXPECT_EQ(checked_bytes({7, 0}, kFloat32), 0U);
  EXPECT_NE(empty({0}, kFloat32, kCpu).data_ptr(), nullptr);
}

TEST(Tensor, SubByteElementsArePackedOverTheWholeTensor) {
  EXPECT_EQ(checked_bytes({3}, kInt4), 2U);
}

TEST(Tensor, RefusesShapesThatOverflowOrAreNegative) {
  EXPECT_THROW(checked_bytes({std::int64_t{1} << 40, std::int64_t{1} << 40}, kFloat32),
               tvm::ffi::Error);
  EXPECT_THROW(checked_bytes({-1}, kFloat32), tvm::ffi::Error);
  EXPECT_THROW(checked_bytes({4}, DLDataType{kDLOpaqueHandle, 0, 0}), tvm::ffi::Error);
}

TEST(Tensor, RefusesUnknownScopesAndDevices) {
  EXPECT_THROW(empty({1}, kFloat32, kCpu, "texture"), tvm::ffi::Error);
  EXPECT_THROW(empty({1}, kFloat32, {kDLCUDA, 0}), tvm::ffi::Error);
  EXPECT_THROW(empty({1}, kFloat32, {static_cast<DLDeviceType>(99), 0}), tvm::ffi::Error);
}

TEST(Tensor, ViewPutsItsOffsetIntoThePointerAndKeepsTheBuffer) {
  auto buffer = Buffer::allocate(kCpu, 64);
  std::weak_ptr<Buffer> watch = buffer;
  void* start = buffer->data();
  auto view = view_of(std::move(buffer), {4}, kFloat32, 48);
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(view.data_ptr(), static_cast<char*>(start) + 48);
  EXPECT_EQ(view.byte_offset(), 0U);
  view = {};
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, ViewStaysInsideItsMemory) {
  rc::check("a view fits exactly when offset plus size does", [](std::uint8_t n, std::uint8_t at) {
    const auto buffer = Buffer::allocate(kCpu, 128);
    const bool fits = std::uint64_t{n} * 4 + at <= 128;
    try {
      view_of(buffer, {n}, kFloat32, at);
      RC_ASSERT(fits);
    } catch (const tvm::ffi::Error&) {
      RC_ASSERT(!fits);
    }
  });
  const auto owner = empty({8}, kFloat32, kCpu);
  EXPECT_THROW(view_of(owner, {8}, kFloat32, 4), tvm::ffi::Error);
  EXPECT_THROW(view_of(owner, {1}, kFloat32, ~std::uint64_t{0}), tvm::ffi::Error);
  EXPECT_EQ(view_of(owner, {2}, kFloat32, 8).data_ptr(), static_cast<char*>(owner.data_ptr()) + 8);
}

TEST(Tensor, CopiesByByteSize) {
  const auto a = empty({4}, kFloat32, kCpu);
  const auto b = empty({16}, DLDataType{kDLUInt, 8, 1}, kCpu);
  std::vector<char> in(16);
  std::iota(in.begin(), in.end(), 'a');
  write_bytes(*a.GetDLTensorPtr(), in.data(), in.size());
  copy_tensor(*a.GetDLTensorPtr(), *b.GetDLTensorPtr());
  std::vector<char> out(16);
  read_bytes(*b.GetDLTensorPtr(), out.data(), out.size());
  EXPECT_EQ(in, out);
  EXPECT_THROW(copy_tensor(*a.GetDLTensorPtr(), *empty({5}, kFloat32, kCpu).GetDLTensorPtr()),
               tvm::ffi::Error);
  EXPECT_THROW(write_bytes(*a.GetDLTensorPtr(), in.data(), 17), tvm::ffi::Error);
  EXPECT_THROW(read_bytes(*a.GetDLTensorPtr(), out.data(), 17), tvm::ffi::Error);
}
}  // namespace
}  // namespace outpost::vm
