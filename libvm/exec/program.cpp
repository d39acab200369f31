#include "exec/program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/string.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "builtin/packed.h"
#include "device/tensor.h"
#include "exec/nearest.h"

namespace outpost::vm {
namespace {

/// A file in memory, page by page as it is read.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat info {};
    if (file.get() < 0 || ::fstat(file.get(), &info) != 0)
      raise("ValueError", fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) raise("ValueError", fmt::format("'{}' is no file", path));
    size_ = static_cast<std::size_t>(info.st_size);
    if (size_ == 0) return;
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data_ == MAP_FAILED)
      raise("ValueError", fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  }
  ~Mapping() {
    if (size_ != 0) ::munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Bytes bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Lets the kernel take the whole pages of a part that was read; they come back when read again.
void drop_pages(Bytes part) {
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const auto first = (begin + kPage - 1) / kPage * kPage;
  const auto last = (begin + part.size()) / kPage * kPage;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

tvm::ffi::Tensor host_tensor(const TensorConstant& c) {
  const tvm::ffi::ShapeView shape{c.dims.data(), c.dims.size()};
  auto t = empty(shape, c.dtype, {kDLCPU, 0});
  // A type of less than a byte is packed in memory; the file has its bytes first, then filler.
  const auto bytes = std::min<std::uint64_t>(checked_bytes(shape, c.dtype), c.data.size());
  if (bytes != 0) std::memcpy(t.data_ptr(), c.data.data(), bytes);
  return t;
}

struct ValueOf {
  tvm::ffi::Any operator()(std::int64_t v) const { return v; }
  tvm::ffi::Any operator()(double v) const { return v; }
  tvm::ffi::Any operator()(DLDataType v) const { return v; }
  tvm::ffi::Any operator()(const std::string& v) const { return tvm::ffi::String{v}; }
  tvm::ffi::Any operator()(const ShapeConstant& v) const {
    return tvm::ffi::Shape{v.dims.begin(), v.dims.end()};
  }
  tvm::ffi::Any operator()(const TensorConstant& v) const { return host_tensor(v); }
};

}  // namespace

std::shared_ptr<const Program> Program::load(Bytes file, Done done) {
  auto executable = read_executable(file);
  if (executable.has_error()) raise("ValueError", executable.error().text);
  auto verified = verify(*std::move(executable));
  if (verified.has_error()) raise("ValueError", verified.error().text);
  std::shared_ptr<Program> p{new Program{*std::move(verified)}};
  const auto& e = p->executable_.get();
  p->constants_.reserve(e.constants.size());
  p->packed_.reserve(e.constants.size());
  for (std::size_t i = 0; i < e.constants.size(); ++i) {
    p->constants_.push_back(std::visit(ValueOf{}, e.constants[i]));
    const auto* c = std::get_if<TensorConstant>(&e.constants[i]);
    if (c == nullptr) continue;
    if (done != nullptr) done(c->data);
    const auto t = p->constants_.back().cast<tvm::ffi::Tensor>();
    if (c->dtype.bits % 8 == 0) {
      p->executable_.move_tensor(i, {static_cast<const std::byte*>(t.data_ptr()), c->data.size()});
    } else {
      p->packed_.emplace_back(c->data.begin(), c->data.end());
      p->executable_.move_tensor(i, p->packed_.back());
    }
  }
  p->scopes_.resize(e.constants.size());
  for (const auto& s : e.scopes) p->scopes_[static_cast<std::size_t>(s.constant)] = s.scope;
  return p;
}

std::shared_ptr<const Program> Program::load_file(const std::string& path) {
  const Mapping file{path};
  return load(file.bytes(), drop_pages);
}

std::string_view Program::scope_of(std::size_t constant) const {
  return scopes_[constant];
}

std::vector<std::byte> Program::bytes() const {
  return write_executable(executable_.get());
}

std::string Program::suggestion(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const auto& f : functions())
    if (f.kind != FunctionKind::packed) names.push_back(f.name);
  return did_you_mean(name, names);
}

}  // namespace outpost::vm
