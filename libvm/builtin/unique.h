#pragma once
#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace outpost::vm {

/// The different elements of a tensor, or the different slices along an axis.
struct Unique {
  tvm::ffi::Tensor values;
  std::vector<std::int64_t> index;    ///< first place of each
  std::vector<std::int64_t> inverse;  ///< which one each element or slice is
  std::vector<std::int64_t> counts;
};

/// Ascending by value (NaN last and all equal), or in the order of first appearance.
/// @throws TypeError for an element type that cannot be ordered, IndexError for a wrong axis
Unique unique(const DLTensor& tensor, bool sorted, std::optional<std::int64_t> axis);

/// Whether each element differs from zero, row by row.
std::vector<bool> nonzero(const DLTensor& tensor);

}  // namespace outpost::vm
