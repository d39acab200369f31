#include "device/pool.h"

#include "exec/storage.h"
#include "vm_fixture.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::Shape;
using tvm::ffi::Tensor;

constexpr DLDevice kCpu{kDLCPU, 0};
constexpr DLDataType kByte{kDLUInt, 8, 1};

class Memory : public VmTest {
 protected:
  /// A VM whose `alloc` gives a storage of that shape.
  static tvm::ffi::Module allocator(int kind) {
    B b;
    const auto dtype = b.constant(kByte);
    const auto scope = b.constant(std::string{"global"});
    b.function("alloc", 1, 2, [&](auto) {
      b.call(1, b.packed("vm.builtin.alloc_storage"),
             {B::ctx(), B::r(0), B::imm(0), B::c(dtype), B::c(scope)});
      b.ret(1);
    });
    auto vm = load(b)->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
    call(vm, "vm_initialization", 1, 0, kind);
    return vm;
  }
  static Any tensor(const Any& storage, std::int64_t offset, Shape shape, DLDataType dtype) {
    return Function::GetGlobalRequired("vm.builtin.alloc_tensor")(storage, offset, shape, dtype);
  }
};

TEST_F(Memory, PooledBlocksAreUsedAgainTheLatestFirst) {
  const auto vm = allocator(2);
  const auto pool = MemoryPool::get(kCpu, AllocatorKind::pooled);
  auto a = call(vm, "alloc", Shape{100});
  auto b = call(vm, "alloc", Shape{4000});
  const auto* data = tensor(b, 0, Shape{1}, kByte).cast<Tensor>().data_ptr();
  EXPECT_EQ(pool->statistics().used_bytes, 8192U);
  a = nullptr;
  b = nullptr;
  EXPECT_EQ(pool->statistics().used_bytes, 0U);
  EXPECT_EQ(pool->statistics().free_bytes, 8192U);
  const auto c = call(vm, "alloc", Shape{1});
  EXPECT_EQ(tensor(c, 0, Shape{1}, kByte).cast<Tensor>().data_ptr(), data);
  EXPECT_EQ(pool->statistics().device_allocations, 2U);
  Function::GetGlobalRequired("vm.builtin.memory_manager.clear")();
  EXPECT_EQ(pool->statistics().free_bytes, 0U);
  EXPECT_EQ(pool->statistics().used_bytes, 4096U);
}

TEST_F(Memory, NothingIsKeptWhenTheLastVmEnds) {
  const auto pool = MemoryPool::get(kCpu, AllocatorKind::pooled);
  Any outlives;
  {
    const auto vm = allocator(2);
    call(vm, "alloc", Shape{1 << 20});
    outlives = call(vm, "alloc", Shape{5000});
    EXPECT_GT(pool->statistics().free_bytes, 0U);
  }
  EXPECT_EQ(pool->statistics().free_bytes, 0U);
  EXPECT_EQ(pool->statistics().used_bytes, 8192U);
  outlives = nullptr;
  EXPECT_EQ(pool->statistics().used_bytes, 0U);
  EXPECT_EQ(pool->statistics().free_bytes, 0U);
}

TEST_F(Memory, TensorsMustFitTheirStorage) {
  const auto vm = allocator(1);
  const auto storage = call(vm, "alloc", Shape{16});
  const DLDataType f32{kDLFloat, 32, 1};
  const auto kind = [&](std::int64_t offset, Shape shape, DLDataType dtype) {
    try {
      tensor(storage, offset, shape, dtype);
    } catch (const tvm::ffi::Error& e) {
      return e.kind();
    }
    return std::string{"fits"};
  };
  EXPECT_EQ(kind(0, Shape{4}, f32), "fits");
  EXPECT_EQ(kind(0, Shape{5}, f32), "InternalError");
  EXPECT_EQ(kind(12, Shape{1}, f32), "fits");
  EXPECT_EQ(kind(13, Shape{1}, f32), "InternalError");
  EXPECT_EQ(kind(-8, Shape{16}, kByte), "InternalError");
  EXPECT_EQ(kind(std::int64_t{1} << 62, Shape{1}, kByte), "InternalError");
  EXPECT_EQ(kind(0, Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}, kByte), "ValueError");
  EXPECT_EQ(kind(0, Shape{-1}, kByte), "ValueError");
  EXPECT_EQ(kind(0, Shape{4}, DLDataType{kDLInt, 4, 1}), "InternalError");
  EXPECT_EQ(kind(17, Shape{0}, kByte), "InternalError");
}

TEST_F(Memory, TensorKeepsItsStorageAlive) {
  const auto vm = allocator(2);
  const auto pool = MemoryPool::get(kCpu, AllocatorKind::pooled);
  auto t = tensor(call(vm, "alloc", Shape{64}), 0, Shape{8}, {kDLFloat, 64, 1});
  EXPECT_EQ(pool->statistics().used_bytes, 4096U);
  t = nullptr;
  EXPECT_EQ(pool->statistics().used_bytes, 0U);
}

TEST_F(Memory, AskingForTooMuchNamesAskedHeldAndLimit) {
  const auto vm = allocator(2);
  call(vm, "alloc", Shape{1 << 20});  // dropped at once, so only kept for later
  MemoryPool::set_limit(2 << 20);
  EXPECT_EQ(failure(vm, "alloc", Shape{3 << 20}),
            "MemoryError: cannot allocate 3145728 bytes on cpu(0): the session holds 0 bytes, its "
            "limit is 2097152");
  EXPECT_EQ(failure(vm, "alloc", Shape{2 << 20}), "no error");  // what was kept has been given back
  MemoryPool::set_limit(0);
  EXPECT_EQ(failure(vm, "alloc", Shape{std::int64_t{1} << 58}).substr(0, 11), "MemoryError");
  EXPECT_EQ(failure(vm, "alloc", Shape{-1}).substr(0, 10), "ValueError");
}

TEST_F(Memory, ScopesAreForTheNaiveAllocatorAndTheDevice) {
  const auto pool = MemoryPool::get(kCpu, AllocatorKind::pooled);
  EXPECT_THROW(pool->take(1, 64, kByte, "texture"), tvm::ffi::Error);
  EXPECT_THROW(MemoryPool::get(kCpu, AllocatorKind::naive)->take(1, 64, kByte, "texture"),
               tvm::ffi::Error);
}

}  // namespace
}  // namespace outpost::vm
