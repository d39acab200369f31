// The functions that the recorded conversations call on the server, as an operator's library: what
// stock registers in Python for its own tests. Loaded by `rpc_server --load-library`.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

namespace ffi = tvm::ffi;

struct HostMemory {
  void AllocData(DLTensor* tensor) {
    tensor->data = std::aligned_alloc(64, (ffi::GetDataSize(*tensor) + 63) / 64 * 64);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

ffi::Tensor ten_zeros() {
  static const ffi::Tensor kept = [] {
    auto made = ffi::Tensor::FromNDAlloc(HostMemory{}, ffi::Shape{10}, DLDataType{kDLFloat, 32, 1},
                                         DLDevice{kDLCPU, 0});
    std::fill_n(static_cast<float*>(made.data_ptr()), 10, 0.0F);
    return made;
  }();
  return kept;
}

double element(const DLTensor* tensor, std::int64_t i) {
  return static_cast<const float*>(tensor->data)[i];
}

ffi::Function part_of_zeros(const std::string& what) {
  if (what == "get_arr") return ffi::Function::FromTyped([] { return ten_zeros(); });
  if (what == "get_arr_elem")
    return ffi::Function::FromTyped([](DLTensor* t, std::int64_t i) { return element(t, i); });
  TVM_FFI_THROW(ValueError) << "no part '" << what << "'";
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def("rpc.test.addone", [](std::int64_t x) { return x + 1; })
      .def("rpc.test.except", [](const std::string& text) { TVM_FFI_THROW(ValueError) << text; })
      .def("rpc.test.add_to_lhs",
           [](std::int64_t x) {
             return ffi::Function::FromTyped([x](std::int64_t y) { return x + y; });
           })
      .def("rpc.test.remote_tensor_func", [](DLTensor*) {})
      .def("rpc.test.remote_return_nd", part_of_zeros);
}
