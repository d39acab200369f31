#include "builtin/weights_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <tvm/ffi/dtype.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/unique_fd.h"
#include "builtin/packed.h"
#include "device/tensor.h"

namespace outpost::vm {
namespace {
using nlohmann::json;
using tvm::ffi::Tensor;

constexpr std::uint64_t kIndexBytesMax = std::uint64_t{256} << 20;
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
constexpr std::size_t kNdimMax = 64;

/// A file that is read in pieces.
class Shard {
 public:
  explicit Shard(std::string path) : path_{std::move(path)} {
    file_ = unique_fd{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat info {};
    if (!file_ || ::fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode))
      raise("ValueError", fmt::format("cannot open '{}': {}", path_,
                                      file_ ? "it is no file" : std::strerror(errno)));
    bytes_ = static_cast<std::uint64_t>(info.st_size);
  }
  std::uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  void read(std::uint64_t offset, void* to, std::uint64_t bytes) const {
    auto* out = static_cast<char*>(to);
    while (bytes != 0) {
      const auto n = ::pread(file_.get(), out, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        raise("ValueError", fmt::format("cannot read '{}' at byte {}: {}", path_, offset,
                                        n < 0 ? std::strerror(errno) : "it ends there"));
      out += n;
      offset += static_cast<std::uint64_t>(n);
      bytes -= static_cast<std::uint64_t>(n);
    }
  }

 private:
  std::string path_;
  unique_fd file_;
  std::uint64_t bytes_ = 0;
};

struct Record {
  std::string name;
  std::vector<std::int64_t> shape;
  DLDataType dtype{};
  bool halved = false;  ///< upper halves of float32
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
};

Record record_of(const json& j) {
  Record r;
  r.name = j.at("name").get<std::string>();
  r.shape = j.at("shape").get<std::vector<std::int64_t>>();
  r.dtype = tvm::ffi::StringToDLDataType(j.at("dtype").get<std::string>());
  r.halved = j.at("format") == "f32-to-bf16" && r.dtype.code == kDLFloat && r.dtype.bits == 32;
  r.bytes = j.at("nbytes").get<std::uint64_t>();
  r.offset = j.at("byteOffset").get<std::uint64_t>();
  return r;
}

/// bfloat16 to float32, from the end so that it works in one buffer.
void widen(std::vector<char>& raw) {
  const auto n = raw.size() / 2;
  raw.resize(n * 4);
  for (std::size_t i = n; i-- > 0;) {
    std::uint16_t half = 0;
    std::memcpy(&half, raw.data() + i * 2, 2);
    const std::uint32_t whole = std::uint32_t{half} << 16;
    std::memcpy(raw.data() + i * 4, &whole, 4);
  }
}

Tensor tensor_of_record(const Shard& shard, const Record& r, DLDevice device) {
  const auto refuse = [&](const std::string& why) {
    raise("ValueError", fmt::format("'{}', record '{}': {}", shard.path(), r.name, why));
  };
  if (r.offset > shard.bytes() || r.bytes > shard.bytes() - r.offset)
    refuse(fmt::format("{} bytes at byte {} reach outside the file of {} bytes", r.bytes, r.offset,
                       shard.bytes()));
  if (r.shape.size() > kNdimMax) refuse(fmt::format("{} dimensions", r.shape.size()));
  const tvm::ffi::ShapeView shape{r.shape.data(), r.shape.size()};
  const auto bytes = checked_bytes(shape, r.dtype);
  const auto in_file = r.halved ? bytes / 2 : bytes;
  if (r.bytes != in_file)
    refuse(fmt::format("nbytes is {}, its shape and dtype make {}", r.bytes, in_file));
  auto t = empty(shape, r.dtype, device);
  const bool host = device.device_type == kDLCPU;
  if (host && !r.halved) {
    shard.read(r.offset, t.data_ptr(), bytes);
    return t;
  }
  if (!host && !r.halved && bytes > kPieceBytes) {
    // Pieces, so that a large weight is not on the host as a whole.
    std::vector<char> piece(kPieceBytes);
    auto& api = device_api(device.device_type);
    for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) {
      const auto n = std::min(kPieceBytes, bytes - at);
      shard.read(r.offset + at, piece.data(), n);
      api.copy({piece.data(), 0, {kDLCPU, 0}}, {t.data_ptr(), at, device}, n, nullptr);
      api.synchronize(device, nullptr);
    }
    return t;
  }
  std::vector<char> raw(r.bytes);
  shard.read(r.offset, raw.data(), r.bytes);
  if (r.halved) widen(raw);
  if (bytes != 0) write_bytes(*t.GetDLTensorPtr(), raw.data(), bytes);
  return t;
}

json read_index(const std::string& path) {
  const Shard file{path};
  if (file.bytes() > kIndexBytesMax)
    raise("ValueError", fmt::format("'{}' has {} bytes, at most {} are read", path, file.bytes(),
                                    kIndexBytesMax));
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return json::parse(text);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> load_weights_folder(const std::string& folder,
                                                                DLDevice device) {
  const auto index = folder + "/tensor-cache.json";
  std::vector<std::pair<std::string, Tensor>> out;
  try {
    const auto doc = read_index(index);
    for (const auto& file : doc.at("records")) {
      const auto name = file.at("dataPath").get<std::string>();
      if (name.empty() || name.front() == '/' || name.find("..") != std::string::npos)
        raise("ValueError", fmt::format("'{}': dataPath '{}' leaves the folder", index, name));
      if (file.at("format") != "raw-shard")
        raise("ValueError", fmt::format("'{}': '{}' has format '{}', expected 'raw-shard'", index,
                                        name, file.at("format").get<std::string>()));
      const Shard shard{folder + "/" + name};
      const auto wanted = file.at("nbytes").get<std::uint64_t>();
      if (shard.bytes() != wanted)
        raise("ValueError", fmt::format("'{}' has {} bytes, tensor-cache.json lists {}: is the "
                                        "download complete?",
                                        shard.path(), shard.bytes(), wanted));
      for (const auto& record : file.at("records")) {
        const auto r = record_of(record);
        out.emplace_back(r.name, tensor_of_record(shard, r, device));
      }
    }
  } catch (const json::exception& e) {
    raise("ValueError", fmt::format("cannot read '{}': {}", index, e.what()));
  }
  return out;
}

}  // namespace outpost::vm
