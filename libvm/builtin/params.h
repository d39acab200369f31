#pragma once
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "outpost/vm/executable.h"

namespace outpost::vm {

/// A parameter blob (server-functions.md): names and tensors in the file's order. Both borrow from
/// its bytes. Errors: what does not follow the format, bytes left over, a name that comes twice.
Result<std::vector<std::pair<std::string_view, TensorConstant>>> read_params(Bytes blob);

/// A CPU tensor of its own. @throws ValueError for types that the format cannot hold whole
/// (sub-byte elements and vectors).
tvm::ffi::Tensor make_tensor(const TensorConstant& constant);

/// runtime.SaveParams, SaveParamsToFile, LoadParams, LoadParamsFromFile.
void register_params();

}  // namespace outpost::vm
