#include "builtin/params.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/unique_fd.h"
#include "base/utf8.h"
#include "device/tensor.h"
#include "format/tensor.h"
#include "module/mapped_file.h"
#include "register.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

constexpr std::uint64_t kParamsMagic = 0xF7E58D4F05049CB7;
using Params = ffi::Map<ffi::String, ffi::Tensor>;

void check_whole(DLDataType dtype, std::uint64_t bytes, std::uint64_t file_bytes) {
  if (bytes != file_bytes)
    TVM_FFI_THROW(ValueError) << "a parameter file cannot hold " << dtype_text(dtype)
                              << " tensors whole: only plain elements of whole bytes";
}

std::vector<std::byte> save_params(const Params& params) {
  std::vector<std::byte> blob;
  ByteWriter out{blob};
  out.le(kParamsMagic);
  out.le<std::uint64_t>(0);
  out.le<std::uint64_t>(params.size());
  for (const auto& [name, tensor] : params) out.sized(as_bytes(as_view(name)));
  out.le<std::uint64_t>(params.size());
  std::vector<std::byte> data;
  for (const auto& [name, tensor] : params) {
    const auto bytes = checked_bytes(*tensor.GetDLTensorPtr());
    const auto count = static_cast<std::uint64_t>(tensor.numel());
    check_whole(tensor.dtype(), bytes, count * file_element_bytes(tensor.dtype()));
    data.resize(bytes);
    read_bytes(*tensor.GetDLTensorPtr(), data.data(), bytes);
    const auto shape = tensor.shape();
    write_tensor(out, {tensor.dtype(), {shape.begin(), shape.end()}, data});
  }
  return blob;
}

Params load_params(Bytes blob) {
  const auto entries = read_params(blob);
  if (entries.has_error())
    TVM_FFI_THROW(ValueError) << "cannot read parameters: " << entries.error().text;
  Params out;
  for (const auto& [name, constant] : *entries)
    out.Set(ffi::String{name.data(), name.size()}, make_tensor(constant));
  return out;
}

[[noreturn]] void fail_io(const char* what, const std::string& path) {
  TVM_FFI_THROW(RuntimeError) << what << " '" << printable(path) << "': " << std::strerror(errno);
}

/// Under the final name there is the whole file or none.
void save_params_to_file(const Params& params, const ffi::String& path) {
  const auto blob = save_params(params);
  const std::string name{as_view(path)};
  const auto part = name + ".part";
  const unique_fd file{::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (!file) fail_io("cannot open file", name);
  for (std::size_t done = 0; done < blob.size();) {
    const auto n = ::write(file.get(), blob.data() + done, blob.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      ::unlink(part.c_str());
      fail_io("cannot write file", name);
    }
    done += static_cast<std::size_t>(n);
  }
  if (::rename(part.c_str(), name.c_str()) != 0) {
    ::unlink(part.c_str());
    fail_io("cannot write file", name);
  }
}

Params load_params_from_file(const ffi::String& path) {
  const auto file = MappedFile::open(std::string{as_view(path)});
  if (file.has_error())
    TVM_FFI_THROW(RuntimeError) << "cannot read '" << printable(as_view(path))
                                << "': " << file.error().text;
  return load_params(file->bytes());
}

}  // namespace

Result<std::vector<std::pair<std::string_view, TensorConstant>>> read_params(Bytes blob) {
  ByteReader in{blob};
  OUTPOST_TRY(const auto magic, in.le<std::uint64_t>("magic"));
  if (magic != kParamsMagic)
    return Error{Code::malformed, fmt::format("magic is {:#018x}, expected {:#018x}: these are no "
                                              "parameters",
                                              magic, kParamsMagic)};
  OUTPOST_TRY(const auto reserved, in.le<std::uint64_t>("reserved word"));
  if (reserved != 0)
    return Error{Code::malformed, fmt::format("reserved word is {}, expected 0", reserved)};
  OUTPOST_TRY(const auto names, in.count(sizeof(std::uint64_t), "name count"));
  std::vector<std::pair<std::string_view, TensorConstant>> out;
  out.reserve(names);
  for (std::uint64_t i = 0; i < names; ++i) {
    OUTPOST_TRY(const auto name, in.sized("name"));
    out.emplace_back(as_text(name), TensorConstant{});
  }
  OUTPOST_TRY(const auto tensors, in.le<std::uint64_t>("tensor count"));
  if (tensors != names)
    return Error{Code::malformed, fmt::format("{} tensors for {} names", tensors, names)};
  for (auto& [name, tensor] : out) {
    auto read = read_tensor(in);
    if (read.has_error())
      return wrap(std::move(read).error(), fmt::format("parameter '{}'", printable(name)));
    tensor = *std::move(read);
  }
  if (in.left() != 0)
    return Error{Code::malformed,
                 fmt::format("{} bytes left over (byte {})", in.left(), in.offset())};
  std::vector<std::string_view> sorted;
  for (const auto& entry : out) sorted.push_back(entry.first);
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return Error{Code::malformed, fmt::format("name '{}' comes twice", printable(*twice))};
  return out;
}

ffi::Tensor make_tensor(const TensorConstant& constant) {
  const ffi::ShapeView shape{constant.dims.data(), constant.dims.size()};
  check_whole(constant.dtype, checked_bytes(shape, constant.dtype), constant.data.size());
  auto tensor = empty(shape, constant.dtype, {kDLCPU, 0});
  write_bytes(*tensor.GetDLTensorPtr(), constant.data.data(), constant.data.size());
  return tensor;
}

void register_params() {
  add_typed("runtime.SaveParams", [](const Params& params) {
    const auto blob = save_params(params);
    return ffi::Bytes{reinterpret_cast<const char*>(blob.data()), blob.size()};
  });
  add_typed("runtime.LoadParams", [](const ffi::Bytes& blob) {
    return load_params(as_bytes({blob.data(), blob.size()}));
  });
  add_typed("runtime.SaveParamsToFile", save_params_to_file);
  add_typed("runtime.LoadParamsFromFile", load_params_from_file);
}

}  // namespace outpost::vm
