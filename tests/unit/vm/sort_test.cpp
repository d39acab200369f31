#include <gtest/gtest.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "outpost/vm/runtime.h"

namespace outpost::vm {
namespace {
namespace ffi = tvm::ffi;
constexpr DLDevice kCpu{kDLCPU, 0};
constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};

ffi::Function sorting(const std::string& name) {
  register_runtime();
  return ffi::Function::GetGlobalRequired("tvm.contrib.sort." + name);
}

std::string hex(const ffi::Tensor& t) {
  std::string out;
  const auto* bytes = static_cast<const unsigned char*>(t.data_ptr());
  for (std::uint64_t i = 0; i < checked_bytes(*t.GetDLTensorPtr()); ++i) {
    out += "0123456789abcdef"[bytes[i] >> 4];
    out += "0123456789abcdef"[bytes[i] & 15];
  }
  return out;
}

/// "dtype:shape:hex"; `filled` takes the bytes over.
ffi::Tensor tensor_of(const std::string& text, bool filled) {
  std::istringstream in{text};
  std::string dtype, dims, bytes;
  std::getline(in, dtype, ':');
  std::getline(in, dims, ':');
  in >> bytes;
  std::vector<std::int64_t> shape;
  std::istringstream dim_in{dims};
  for (std::string dim; std::getline(dim_in, dim, ',');) shape.push_back(std::stoll(dim));
  auto t = empty({shape.data(), shape.size()}, ffi::StringToDLDataType(dtype), kCpu);
  auto* data = static_cast<unsigned char*>(t.data_ptr());
  for (std::size_t i = 0; filled && i < bytes.size() / 2; ++i)
    data[i] = static_cast<unsigned char>(std::stoi(bytes.substr(2 * i, 2), nullptr, 16));
  return t;
}

TEST(Sort, GivesWhatTheStockRuntimeGives) {
  std::ifstream in{OUTPOST_TEST_DATA "/vm/sort.txt"};
  int calls = 0;
  for (std::string line; std::getline(in, line); ++calls) {
    SCOPED_TRACE(line);
    std::istringstream words{line};
    std::string name, word;
    words >> name;
    std::map<std::string, std::string> field;
    while (words >> word) field[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    const int axis = std::stoi(field.at("axis"));
    const bool up = field.at("up") == "1";
    const auto x = tensor_of(field.at("input"), true);
    std::vector<ffi::Tensor> outputs;
    for (const char* key : {"output0", "output1"})
      if (field.count(key) != 0) outputs.push_back(tensor_of(field[key], false));
    const auto f = sorting(name);
    if (name == "topk" && outputs.size() == 2)
      f(x, outputs[0], outputs[1], std::stoi(field["k"]), axis, field["kind"], up);
    else if (name == "topk")
      f(x, outputs[0], std::stoi(field["k"]), axis, field["kind"], up);
    else if (name == "argsort_nms")
      f(x, tensor_of(field["counts"], true), outputs[0], axis, up);
    else
      f(x, outputs[0], axis, up);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto& wanted = field["output" + std::to_string(i)];
      EXPECT_EQ(hex(outputs[i]), wanted.substr(wanted.rfind(':') + 1));
    }
  }
  EXPECT_EQ(calls, 370);
}

TEST(Sort, PutsNanLastWhenAscendingWhateverItsPlace) {
  const auto x = empty({5}, kFloat32, kCpu);
  const float values[] = {NAN, 1, 3, NAN, 2};
  write_bytes(*x.GetDLTensorPtr(), values, sizeof values);
  const auto order = empty({5}, kInt32, kCpu);
  sorting("argsort")(x, order, -1, true);
  const auto* i = static_cast<std::int32_t*>(order.data_ptr());
  EXPECT_EQ((std::vector<std::int32_t>{i, i + 5}), (std::vector<std::int32_t>{1, 4, 2, 0, 3}));
}

TEST(Sort, CountsOfRowsAreBounded) {
  const auto x = empty({1, 3}, kFloat32, kCpu);
  const float values[] = {3, 2, 1};
  write_bytes(*x.GetDLTensorPtr(), values, sizeof values);
  const auto order = empty({1, 3}, kInt32, kCpu);
  const auto counts = empty({1}, kInt32, kCpu);
  const auto* i = static_cast<std::int32_t*>(order.data_ptr());
  *static_cast<std::int32_t*>(counts.data_ptr()) = 99;
  sorting("argsort_nms")(x, counts, order, 1, true);
  EXPECT_EQ((std::vector<std::int32_t>{i, i + 3}), (std::vector<std::int32_t>{2, 1, 0}));
  *static_cast<std::int32_t*>(counts.data_ptr()) = -5;
  sorting("argsort_nms")(x, counts, order, 1, true);
  EXPECT_EQ((std::vector<std::int32_t>{i, i + 3}), (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(Sort, AnEmptyInputIsFine) {
  const auto x = empty({2, 0}, kFloat32, kCpu);
  sorting("sort")(x, empty({2, 0}, kFloat32, kCpu), 1, true);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
    return "no error";
  } catch (const ffi::Error& e) {
    return e.message();
  }
}

TEST(Sort, RefusesWhatDoesNotFit) {
  const auto x = empty({2, 3}, kFloat32, kCpu);
  const auto y = empty({2, 3}, kFloat32, kCpu);
  const auto small = empty({2, 2}, kFloat32, kCpu);
  const auto ints = empty({2, 3}, kInt32, kCpu);
  const auto wide = empty({2, 3}, DLDataType{kDLUInt, 32, 1}, kCpu);
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const int axis : {2, -3})
    says(error_of([&] { sorting("sort")(x, y, axis, true); }), "of an input with 2 dimensions");
  says(error_of([&] { sorting("sort")(x, small, 1, true); }),
       "the output must have the input's shape");
  says(error_of([&] { sorting("sort")(x, ints, 1, true); }),
       "the output is int32, the input float32");
  says(error_of([&] { sorting("sort")(wide, wide, 1, true); }), "");
  says(error_of([&] { sorting("sort")(x, x, 1, true); }), "must not be the input itself");
  says(error_of([&] { sorting("argsort")(wide, ints, 1, true); }),
       "Unsupported input dtype: uint32");
  says(error_of([&] { sorting("argsort")(x, wide, 1, true); }), "Unsupported output dtype: uint32");
  says(error_of([&] { sorting("topk")(x, ints, 9, 1, "indices", true, 0); }), "");
  says(error_of([&] { sorting("topk")(x, small, 9, 1, "values", true); }), "an output must have");
  says(error_of([&] { sorting("topk")(x, ints, 3, 1, "foo", true); }), "Unsupported ret type: foo");
  says(error_of([&] { sorting("argsort_nms")(x, ints, ints, 1, true); }), "the counts must be 2");
  says(error_of([&] { sorting("sort")(1, 2, 0, true); }), "");
}
}  // namespace
}  // namespace outpost::vm
