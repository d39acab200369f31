#include <gtest/gtest.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <limits>

#include "device/tensor.h"
#include "exec/closure.h"
#include "outpost/vm/builtins.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Shape;
using tvm::ffi::Tensor;

constexpr DLDevice kCpu{kDLCPU, 0};

class Builtins : public testing::Test {
 protected:
  static void SetUpTestSuite() { register_vm_builtins(); }
  template <class... A>
  static Any call(const std::string& name, A&&... args) {
    return Function::GetGlobalRequired("vm.builtin." + name)(std::forward<A>(args)...);
  }
  /// "Kind: message" of the error, or "no error".
  template <class... A>
  static std::string failure(const std::string& name, A&&... args) {
    try {
      call(name, std::forward<A>(args)...);
    } catch (const tvm::ffi::Error& e) {
      EXPECT_TRUE(e.backtrace().empty()) << "a backtrace costs more than the request";
      return e.kind() + ": " + e.message();
    }
    return "no error";
  }
  static Tensor ints(std::vector<std::int64_t> values) {
    auto t = empty({static_cast<std::int64_t>(values.size())}, {kDLInt, 64, 1}, kCpu);
    std::copy(values.begin(), values.end(), static_cast<std::int64_t*>(t.data_ptr()));
    return t;
  }
  static std::int64_t at(const Tensor& t, int i) {
    return static_cast<const std::int64_t*>(t.data_ptr())[i];
  }
  Tensor x = empty({2, 3}, {kDLFloat, 32, 1}, kCpu);
};

TEST_F(Builtins, TupleHoldsValuesAndGivesThemBack) {
  const auto tuple = call("make_tuple", 11, x, "text");
  EXPECT_EQ(call("tuple_getitem", tuple, 0).cast<int>(), 11);
  EXPECT_TRUE(call("tuple_getitem", tuple, 1).cast<Tensor>().same_as(x));
  EXPECT_EQ(failure("tuple_getitem", tuple, 3),
            "IndexError: vm.builtin.tuple_getitem: index 3 out of bounds, the tuple has 3 items");
  EXPECT_EQ(failure("tuple_getitem", tuple, -1).substr(0, 10), "IndexError");
  EXPECT_EQ(failure("tuple_getitem", x, 0),
            "TypeError: vm.builtin.tuple_getitem(tuple, index): argument 0 must be ffi.Array, not "
            "ffi.Tensor");
}

TEST_F(Builtins, TupleOwnsACopyOfABorrowedView) {
  auto t = ints({7});
  const auto tuple = call("make_tuple", const_cast<DLTensor*>(t.GetDLTensorPtr()));
  const auto kept = call("tuple_getitem", tuple, 0).cast<Tensor>();
  EXPECT_NE(kept.data_ptr(), t.data_ptr());
  EXPECT_EQ(at(kept, 0), 7);
  EXPECT_EQ(at(call("copy", const_cast<DLTensor*>(t.GetDLTensorPtr())).cast<Tensor>(), 0), 7);
}

TEST_F(Builtins, ResetItemFreesWhatTheTupleHeld) {
  auto t = ints({1});
  const auto tuple = call("make_tuple", t);
  EXPECT_EQ(t.use_count(), 2);
  call("tuple_reset_item", tuple, 0);
  EXPECT_EQ(t.use_count(), 1);
  EXPECT_EQ(call("tuple_getitem", tuple, 0), nullptr);
}

TEST_F(Builtins, MatchShapeChecksAndStoresByCode) {
  auto heap = ints({0, 2, 0});
  call("match_shape", x, heap, 2, 3, 1, 1, 0, "ctx");
  EXPECT_EQ(at(heap, 0), 3);
  EXPECT_EQ(failure("match_shape", x, heap, 2, 0, 9, 2, 0, "ctx"),
            "RuntimeError: ctx match_cast error,  shape[0] mismatch to specified constant. "
            "(got 2, expected 9)");
  EXPECT_EQ(failure("match_shape", x, heap, 2, 2, 0, 3, 1, nullptr),
            "RuntimeError: match_cast error,  shape[1] mismatch to a previous populated value. "
            "(got 3, expected 2)");
  EXPECT_EQ(failure("match_shape", x, heap, 1, 2, 0, "ctx "),
            "RuntimeError: ctx match_cast shape size mismatch. (got rank 2, expected 1)");
  EXPECT_EQ(failure("match_shape", "s", heap, 0, nullptr).substr(0, 9), "TypeError");
}

TEST_F(Builtins, HeapIndicesAreCheckedAgainstTheHeap) {
  auto heap = ints({1});
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{1}, std::int64_t{1} << 62}) {
    EXPECT_EQ(failure("match_prim_value", 4, heap, 1, index, "").substr(0, 10), "ValueError");
    EXPECT_EQ(failure("make_shape", heap, 1, 1, index).substr(0, 10), "ValueError");
    EXPECT_EQ(failure("make_prim_value", heap, 3, index).substr(0, 13), "InternalError");
  }
  EXPECT_EQ(failure("make_shape", nullptr, 1, 1, 0).substr(0, 10), "ValueError");
}

TEST_F(Builtins, CountsThatDoNotFitTheArgumentsAreRefused) {
  for (const std::int64_t n : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 62,
                               std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(failure("make_shape", nullptr, n, 0, 1).substr(0, 9), "TypeError");
    EXPECT_EQ(failure("match_shape", x, nullptr, n, 0, 1, "c").substr(0, 9), "TypeError");
  }
  EXPECT_EQ(failure("null_value", 1),
            "TypeError: vm.builtin.null_value() takes 0 arguments, 1 given");
}

TEST_F(Builtins, ChecksNameWhatTheyGotAndWanted) {
  const DLDataType f32{kDLFloat, 32, 1};
  const DLDataType i8{kDLInt, 8, 1};
  call("check_tensor_info", x, 2, f32, "ctx");
  EXPECT_EQ(failure("check_tensor_info", x, 3, "ctx"),
            "ValueError: ctx expect Tensor with ndim 3 but get 2");
  EXPECT_EQ(failure("check_tensor_info", x, 2, i8, "ctx"),
            "ValueError: ctx expect Tensor with dtype int8 but get float32");
  EXPECT_EQ(failure("check_tensor_info", nullptr, 2, nullptr, "ctx"),
            "TypeError: ctx expect a Tensor but get None");
  EXPECT_EQ(failure("check_shape_info", Array<Any>{1}, 1, "ctx"),
            "TypeError: ctx expect a Shape but get ffi.Array");
  EXPECT_EQ(failure("check_tuple_info", nullptr, 1, "ctx"),
            "TypeError: ctx expect a Tuple but get None");
  EXPECT_EQ(failure("check_prim_value_info", nullptr, i8, "ctx"),
            "TypeError: ctx, expected dtype int8, but received None");
  EXPECT_EQ(failure("check_prim_value_info", 2.5, i8, "ctx"),
            "TypeError: ctx Cannot convert from type `float` to `int`");
  call("check_prim_value_info", true, f32, "ctx");
  EXPECT_EQ(failure("check_func_info", 3, "ctx"), "TypeError: ctx expect a Function but get int");
  EXPECT_EQ(failure("check_string_info", nullptr, "ctx"),
            "TypeError: ctx expect a string but get None");
}

TEST_F(Builtins, ShapesCanBeReadMadeAndViewed) {
  EXPECT_EQ(call("shape_of", x).cast<Shape>().size(), 2U);
  const auto shape = call("tensor_to_shape", ints({3, 2})).cast<Shape>();
  EXPECT_EQ(shape[0], 3);
  EXPECT_EQ(call("reshape", x, shape).cast<Tensor>().data_ptr(), x.data_ptr());
  EXPECT_EQ(failure("reshape", x, Shape{7}).substr(0, 10), "ValueError");
  EXPECT_EQ(failure("shape_of", nullptr).substr(0, 9), "TypeError");
}

TEST_F(Builtins, ConditionsAreReadFromNumbersAndTensors) {
  EXPECT_TRUE(call("read_if_cond", ints({1 << 20})).cast<bool>());
  EXPECT_FALSE(call("read_if_cond", 0).cast<bool>());
  EXPECT_EQ(failure("read_if_cond", 2.5).substr(0, 9), "TypeError");
  EXPECT_EQ(failure("read_if_cond", x).substr(0, 13), "InternalError");
  EXPECT_EQ(failure("read_if_cond", empty({0}, {kDLInt, 64, 1}, kCpu)).substr(0, 10), "ValueError");
}

TEST_F(Builtins, ClosuresBindValuesBehindTheCallsOwn) {
  const Closure base{"f",
                     Function::FromPacked([](const tvm::ffi::AnyView* a, std::int32_t n, Any* out) {
                       *out = n * 100 + a[n - 1].cast<int>();
                     })};
  const auto bound = call("make_closure", base, 8, 9);
  EXPECT_EQ(call("invoke_closure", nullptr, bound, 1).cast<int>(), 409);
  EXPECT_EQ(failure("invoke_closure", nullptr, 5).substr(0, 9), "TypeError");
  EXPECT_EQ(failure("invoke_closure", nullptr, x).substr(0, 13), "InternalError");
  EXPECT_EQ(failure("make_closure", 5).substr(0, 9), "TypeError");
}

TEST_F(Builtins, FunctionsAreFoundByName) {
  call("register_py_func", "twice", Function::FromTyped([](int v) { return v * 2; }));
  EXPECT_EQ(call("call_py_func", Array<Any>{Any("twice"), Any(Array<Any>{21})}).cast<int>(), 42);
  call("clear_py_func_registry");
  EXPECT_EQ(failure("get_py_func", "twice").substr(0, 13), "InternalError");
  EXPECT_EQ(failure("invoke_debug_func", nullptr, "absent.function", "line").substr(0, 10),
            "ValueError");
}

}  // namespace
}  // namespace outpost::vm
