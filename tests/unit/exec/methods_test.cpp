#include <nlohmann/json.hpp>

#include "exec/closure.h"
#include "exec/nearest.h"
#include "vm_fixture.h"

namespace outpost::vm {
namespace {
using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Tensor;

class Methods : public VmTest {
 protected:
  Methods() {
    B b;
    b.function("same", 1, 1, [&](auto) { b.ret(0); });
    b.function("pair", 2, 3, [&](auto) {
      b.call(2, b.packed("vm.builtin.make_tuple"), {B::r(0), B::r(1)});
      b.ret(2);
    });
    vm = make(b);
  }
  tvm::ffi::Module vm{make_dummy()};

 private:
  static tvm::ffi::Module make_dummy() {
    B b;
    b.function("f", 0, 0, [&](auto) { b.ret(B::kVoid); });
    return load(b);
  }
};

TEST_F(Methods, StatefulCallsKeepInputsAndOutputs) {
  EXPECT_EQ(failure(vm, "invoke_stateful", "pair"),
            "ValueError: No inputs set for stateful call of pair; use `set_input` first.");
  EXPECT_EQ(failure(vm, "get_output", "pair").substr(0, 10), "ValueError");
  EXPECT_EQ(failure(vm, "set_input", "pair", 1).substr(0, 13), "InternalError");
  EXPECT_EQ(failure(vm, "set_input", "pear", 1, 2),
            "ValueError: Unknown function: pear; did you mean 'pair'?");
  call(vm, "set_input", "pair", 1, Array<Any>{2, 3});
  call(vm, "invoke_stateful", "pair");
  call(vm, "invoke_stateful", "pair");
  EXPECT_EQ(call(vm, "get_output_arity", "pair").cast<int>(), 2);
  EXPECT_EQ(call(vm, "get_output_arity", "pair", 0).cast<int>(), -1);
  EXPECT_EQ(call(vm, "get_output", "pair", 1, 1).cast<int>(), 3);
  EXPECT_EQ(failure(vm, "get_output", "pair").substr(0, 10), "ValueError");
  EXPECT_EQ(failure(vm, "get_output", "pair", 0, 0).substr(0, 10), "ValueError");
  EXPECT_EQ(failure(vm, "get_output", "pair", 2).substr(0, 10), "IndexError");
  EXPECT_EQ(failure(vm, "get_output", "pair", -1).substr(0, 10), "IndexError");
}

TEST_F(Methods, InputsOnTheDeviceAreKeptAndViewsAreCopied) {
  const auto t = floats({1, 2});
  call(vm, "set_input", "same", t);
  call(vm, "invoke_stateful", "same");
  EXPECT_TRUE(call(vm, "get_output", "same").cast<Tensor>().same_as(t));
  call(vm, "set_input", "same", const_cast<DLTensor*>(t.GetDLTensorPtr()));
  call(vm, "invoke_stateful", "same");
  EXPECT_NE(call(vm, "get_output", "same").cast<Tensor>().data_ptr(), t.data_ptr());
}

TEST_F(Methods, SavedFunctionsBindBehindTheCallsOwn) {
  call(vm, "save_function", "pair", "bound", true, 2);
  EXPECT_EQ(call(vm, "bound", 1).cast<Array<Any>>()[1].cast<int>(), 2);
  call(vm, "save_function", "bound", "both", 1, 1);
  EXPECT_EQ(call(vm, "both").cast<Array<Any>>()[0].cast<int>(), 1);
  call(vm, "save_function", "pair", "quiet", false, 1, 2);
  EXPECT_EQ(call(vm, "quiet"), nullptr);
  call(vm, "save_function", "same", "pair", true);
  EXPECT_EQ(call(vm, "pair", 9).cast<int>(), 9);  // hides the table's function from look-up
  EXPECT_EQ(failure(vm, "save_function", "absent", "x", true).substr(0, 10), "ValueError");
}

TEST_F(Methods, FunctionsTellTheirParameters) {
  EXPECT_EQ(call(vm, "get_function_arity", "pair").cast<int>(), 2);
  EXPECT_EQ(failure(vm, "get_function_param_name", "pair", 0).substr(0, 10), "ValueError");
  EXPECT_EQ(failure(vm, "get_function_arity", "vm.builtin.make_tuple").substr(0, 10), "ValueError");
  auto* module = const_cast<tvm::ffi::ModuleObj*>(vm.operator->());
  EXPECT_FALSE(module->GetFunction("vm.builtin.make_tuple").has_value());
  EXPECT_FALSE(module->GetFunction("absent").has_value());
}

TEST_F(Methods, InstrumentSeesEachCallAndMaySkipIt) {
  std::vector<std::string> seen;
  const auto watch =
      Function::FromPacked([&seen](const tvm::ffi::AnyView* a, std::int32_t n, Any* out) {
        seen.push_back(std::string(a[1].cast<tvm::ffi::String>()) +
                       (a[2].cast<bool>() ? " before " : " after ") + std::to_string(n));
        *out = "anything";
      });
  call(vm, "set_instrument", watch);
  call(vm, "pair", 1, 2);
  EXPECT_EQ(seen, (std::vector<std::string>{"vm.builtin.make_tuple before 6",
                                            "vm.builtin.make_tuple after 6"}));
  seen.clear();
  call(vm, "set_instrument",
       Function::FromPacked([&seen](const tvm::ffi::AnyView*, std::int32_t, Any* out) {
         seen.emplace_back("skip");
         *out = 1;
       }));
  EXPECT_EQ(call(vm, "pair", 1, 2), nullptr);
  EXPECT_EQ(seen.size(), 1U);
  call(vm, "set_instrument", nullptr);
  EXPECT_NE(call(vm, "pair", 1, 2), nullptr);
  EXPECT_EQ(failure(vm, "set_instrument", "no.such.factory").substr(0, 10), "ValueError");
  call(vm, "set_instrument", Function::FromTyped([]() -> int { return 0; }));
  EXPECT_EQ(failure(vm, "pair", 1, 2).substr(0, 9), "TypeError");  // wrong signature: its own error
}

TEST_F(Methods, ProfileHasARowForEachCallOnATensor) {
  const auto report =
      nlohmann::json::parse(call(vm, "profile", "pair", floats({1, 2, 3}), 2).cast<std::string>());
  ASSERT_EQ(report["calls"].size(), 1U);
  const auto& row = report["calls"][0];
  EXPECT_EQ(row["Name"], "vm.builtin.make_tuple");
  EXPECT_EQ(row["Device"], "cpu0");
  EXPECT_EQ(row["Argument Shapes"], "float32[3]");
  EXPECT_GE(row["Duration (us)"]["microseconds"].get<double>(), 0);
  EXPECT_EQ(report["device_metrics"]["cpu0"]["Name"], "Total");
  EXPECT_EQ(report["configuration"]["Executor"], "VM");
}

TEST(Nearest, SuggestsWhatIsCloseElseWhatThereIs) {
  EXPECT_EQ(did_you_mean("zzzz", {"main"}), "; there are 'main'");
  EXPECT_EQ(did_you_mean("man", {"main", "mean"}), "; did you mean 'main' or 'mean'?");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

}  // namespace
}  // namespace outpost::vm
