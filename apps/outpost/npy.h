#pragma once
#include <outpost/rpc/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace outpost::app {

/// What the head of a .npy file says.
struct NpyHead {
  client::DataType dtype;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;  ///< where the elements begin
};

/// Reads the head of a .npy file, versions 1 to 3, and checks that all elements follow. Malformed
/// says what is wrong at which place; unsupported: Fortran order of several dimensions, big-endian
/// numbers, objects, text and structures.
Result<NpyHead> parse_npy(Bytes file);

/// The head of a file whose elements follow. A type that numpy does not know is written as opaque
/// elements of its size, as ml_dtypes does; one below a byte as the packed bytes.
std::string npy_head(client::DataType dtype, const std::vector<std::int64_t>& shape);

}  // namespace outpost::app
