#pragma once
#include <tvm/ffi/container/tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace outpost::vm {
/// Reads a folder with tensor-cache.json and its shards; every offset and size is checked against
/// the file. @throws ValueError that names the file
std::vector<std::pair<std::string, tvm::ffi::Tensor>> load_weights_folder(const std::string& folder,
                                                                          DLDevice device);
}  // namespace outpost::vm
