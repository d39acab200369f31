#pragma once
#include "base/bytes.h"
#include "outpost/vm/executable.h"

namespace outpost::vm {

/// One tensor as executables, parameter files and constant loaders hold it (vm-executable.md,
/// section 2). The data is borrowed from the reader's bytes.
Result<TensorConstant> read_tensor(ByteReader& in);
void write_tensor(ByteWriter& out, const TensorConstant& tensor);

}  // namespace outpost::vm
