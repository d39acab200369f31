#include <fstream>
#include <iterator>
#include <thread>

#include "exec/closure.h"
#include "vm_fixture.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;

TEST_F(VmTest, RunsARealExecutableOfBuiltins) {
  const auto path = tvm::ffi::String{OUTPOST_CORPUS "/fuzz_executable/constants_constants.vmexe"};
  const auto executable =
      Function::GetGlobalRequired("relax.ExecutableLoadFromFile")(path).cast<tvm::ffi::Module>();
  const auto vm = executable->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
  call(vm, "vm_initialization", 1, 0, 2);
  EXPECT_EQ(call(vm, "bigint").cast<std::int64_t>(), std::int64_t{1} << 55);
  EXPECT_EQ(call(vm, "float").cast<double>(), -2.5);
  EXPECT_EQ(call(vm, "text").cast<tvm::ffi::String>(), "a string");
  EXPECT_EQ(call(vm, "no_result"), nullptr);
  EXPECT_EQ(call(vm, "function_value", 7).cast<int>(), 7);
  EXPECT_FALSE(call(vm, "loop", true, false).cast<bool>());
  EXPECT_EQ(call(vm, "immediates").cast<Array<Any>>()[1].cast<std::int64_t>(),
            (std::int64_t{1} << 55) - 1);
}

TEST_F(VmTest, IsRefusedBeforeInitialisationAndTwice) {
  B b;
  b.function("main", 1, 1, [&](auto) { b.ret(0); });
  const auto vm = load(b)->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
  EXPECT_EQ(failure(vm, "main", 1),
            "RuntimeError: the VM has no devices yet; call vm_initialization first");
  EXPECT_EQ(failure(vm, "set_input", "main", 1).substr(0, 12), "RuntimeError");
  EXPECT_EQ(failure(vm, "vm_initialization").substr(0, 13), "InternalError");
  EXPECT_EQ(failure(vm, "vm_initialization", 1, 0).substr(0, 13), "InternalError");
  EXPECT_EQ(failure(vm, "vm_initialization", 1, 0, 3),
            "InternalError: vm_initialization: Unknown allocator type: 3; 1 is naive, 2 is pooled");
  EXPECT_NE(failure(vm, "vm_initialization", 99, 0, 2).find("is not enabled"), std::string::npos);
  call(vm, "vm_initialization", 1, 0, 2);
  EXPECT_EQ(call(vm, "main", 5).cast<int>(), 5);
  EXPECT_EQ(failure(vm, "vm_initialization", 1, 0, 2).substr(0, 12), "RuntimeError");
}

TEST_F(VmTest, MissingFunctionsAreAllNamed) {
  B b;
  b.function("main", 1, 2, [&](auto) {
    b.call(1, b.packed("no.such.function"), {});
    b.call(1, b.packed("nor.this"), {});
    b.ret(1);
  });
  const auto vm = load(b)->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
  EXPECT_EQ(failure(vm, "vm_initialization", 1, 0, 2),
            "InternalError: the executable needs 'no.such.function', 'nor.this', found neither in "
            "the kernel library nor in the registry of this process");
}

TEST_F(VmTest, ArgumentCountIsCheckedOnEveryEntry) {
  B b;
  const auto leaf = b.function("leaf", 2, 2, [&](auto) { b.ret(1); });
  b.function("main", 1, 2, [&](auto) {
    b.call(1, leaf, {B::r(0)});
    b.ret(1);
  });
  const auto vm = make(b);
  EXPECT_EQ(failure(vm, "leaf", 1),
            "InternalError: Invoking function leaf expects 2 arguments, but 1 arguments were "
            "provided.");
  EXPECT_EQ(failure(vm, "main", 1).substr(0, 13), "InternalError");
  EXPECT_EQ(call(vm, "leaf", 1, 2).cast<int>(), 2);
}

TEST_F(VmTest, RecursionEndsWithAnErrorNotWithTheStack) {
  B b;
  b.function("deep", 1, 2, [&](std::int64_t self) {
    b.call(1, self, {B::r(0)});
    b.ret(1);
  });
  b.function("through", 1, 2, [&](std::int64_t self) {
    b.call(1, b.packed("vm.builtin.invoke_closure"), {B::ctx(), B::f(self), B::r(0)});
    b.ret(1);
  });
  const auto vm = make(b);
  EXPECT_NE(failure(vm, "deep", 1).find("frames_max"), std::string::npos);
  EXPECT_NE(failure(vm, "through", 1).find("nested_max"), std::string::npos);
  EXPECT_NE(failure(vm, "deep", 1).find("frames_max"), std::string::npos);
}

TEST_F(VmTest, EndlessLoopMeetsTheLimitOfTheSession) {
  B b;
  b.function("main", 1, 2, [&](auto) {
    b.call(1, b.packed("vm.builtin.copy"), {B::r(0)});
    b.branch(0, 2);
    b.go(-2);
    b.ret(0);
  });
  const auto vm = make(b);
  machine(vm).set_limits({.jumps_max = 1000});
  EXPECT_NE(failure(vm, "main", true).find("jumps_max"), std::string::npos);
  EXPECT_FALSE(call(vm, "main", false).cast<bool>());
  EXPECT_EQ(failure(vm, "main", 2.5),
            "TypeError: function 'main': a condition must be int or bool, not float");
}

TEST_F(VmTest, ErrorsGiveBackEveryRegister) {
  B b;
  b.function("main", 2, 3, [&](auto) {
    b.call(2, b.packed("vm.builtin.make_tuple"), {B::r(0), B::r(0)});
    b.call(B::kVoid, b.packed("vm.builtin.tuple_getitem"), {B::r(2), B::r(1)});
    b.ret(2);
  });
  const auto vm = make(b);
  const auto t = floats({1, 2});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(failure(vm, "main", t, 9).substr(0, 10), "IndexError");
  EXPECT_EQ(t.use_count(), 1);
  {
    const auto tuple = call(vm, "main", t, 1);
    EXPECT_EQ(t.use_count(), 3);
  }
  EXPECT_EQ(t.use_count(), 1);  // nothing is kept until the next call
}

TEST_F(VmTest, ResultOfACallMayBeDropped) {
  B b;
  const auto leaf = b.function("leaf", 1, 1, [&](auto) { b.ret(0); });
  b.function("main", 1, 1, [&](auto) {
    b.call(B::kVoid, leaf, {B::r(0)});
    b.ret(B::kVoid);
  });
  const auto vm = make(b);
  const auto t = floats({1});
  EXPECT_EQ(call(vm, "main", t), nullptr);
  EXPECT_EQ(t.use_count(), 1);
}

TEST_F(VmTest, ClosuresRunInAnyVmOfTheirExecutable) {
  B b;
  const auto body = b.function("body", 2, 2, [&](auto) { b.ret(1); });
  b.function("make", 1, 2, [&](auto) {
    b.call(1, b.packed("vm.builtin.make_closure"), {B::f(body), B::r(0)});
    b.ret(1);
  });
  const auto executable = load(b);
  const auto start = [&executable] {
    auto vm = executable->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
    call(vm, "vm_initialization", 1, 0, 1);
    return vm;
  };
  auto one = start();
  const auto two = start();
  const auto closure = call(one, "make", 42);
  EXPECT_EQ(call(one, "invoke_closure", closure, 1).cast<int>(), 42);
  one = two;  // the first VM is gone, the closure goes on
  EXPECT_EQ(call(two, "invoke_closure", closure, 1).cast<int>(), 42);
  EXPECT_EQ(failure(make(b), "invoke_closure", closure, 1).substr(0, 13), "InternalError");
  EXPECT_EQ(failure(two, "invoke_closure", 5).substr(0, 13), "InternalError");
}

TEST_F(VmTest, PointerThatIsNoVmIsRefused) {
  int thing = 0;
  const auto alloc = Function::GetGlobalRequired("vm.builtin.alloc_shape_heap");
  EXPECT_THROW(alloc(static_cast<void*>(&thing), 1), tvm::ffi::Error);
  EXPECT_THROW(alloc(nullptr, 1), tvm::ffi::Error);
  EXPECT_THROW(alloc(1, 1), tvm::ffi::Error);
}

TEST_F(VmTest, SecondThreadIsRefusedWhileOneRuns) {
  B b;
  b.function("main", 1, 2, [&](auto) {
    b.call(1, b.packed("vm.builtin.invoke_closure"), {B::ctx(), B::r(0)});
    b.ret(1);
  });
  const auto vm = make(b);
  const auto other = Function::FromTyped([&vm] {
    std::string said;
    std::thread{[&] { said = failure(vm, "main", 1); }}.join();
    return tvm::ffi::String{said};
  });
  EXPECT_EQ(call(vm, "main", other).cast<std::string>(),
            "RuntimeError: this VM is in use by another thread; make one for each thread");
}

}  // namespace
}  // namespace outpost::vm
