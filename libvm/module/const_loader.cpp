#include <fmt/format.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <map>

#include "base/utf8.h"
#include "builtin/params.h"
#include "format/tensor.h"
#include "module/loaders.h"
#include "register.h"

namespace outpost::vm {
namespace ffi = tvm::ffi;
namespace {

Result<std::vector<std::string_view>> read_names(ByteReader& in, std::string_view what) {
  OUTPOST_TRY(const auto n, in.count(sizeof(std::uint64_t), what));
  std::vector<std::string_view> out;
  out.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    OUTPOST_TRY(const auto name, in.sized(what));
    out.push_back(as_text(name));
  }
  return out;
}

/// Gives kernels of an outside library their constants before the first of them runs.
class ConstLoaderObj final : public ffi::ModuleObj {
 public:
  explicit ConstLoaderObj(const ConstLoaderFacts& facts) {
    std::vector<ffi::Tensor> tensors;
    for (const auto& [name, constant] : facts.constants) {
      tensors.push_back(make_tensor(constant));
      constants_.Set(ffi::String{name.data(), name.size()}, tensors.back());
    }
    for (const auto& symbol : facts.symbols) {
      ffi::Array<ffi::Tensor> own;
      for (const auto i : symbol.constants) own.push_back(tensors[i]);
      waiting_[std::string{symbol.name}] = own;
    }
  }

  const char* kind() const final { return "const_loader"; }
  int GetPropertyMask() const final { return ffi::Module::kRunnable; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (as_view(name) == "get_const_var_tensor")
      return ffi::Function::FromTyped([constants = constants_] { return constants; });
    start_up(std::string{as_view(name)});
    for (const auto& import : imports_)
      if (auto f = import.cast<ffi::Module>()->GetFunction(name, true); f.has_value()) return f;
    return std::nullopt;
  }

 private:
  void start_up(const std::string& symbol) {
    const auto it = waiting_.find(symbol);
    if (it == waiting_.end()) return;
    const ffi::String name = "__init_" + symbol;
    for (const auto& import : imports_) {
      const auto f = import.cast<ffi::Module>()->GetFunction(name, true);
      if (!f.has_value()) continue;
      if (const auto code = (*f)(it->second).cast<std::int64_t>(); code != 0)
        TVM_FFI_THROW(RuntimeError) << "'" << name << "' failed with " << code;
      waiting_.erase(it);
      return;
    }
    TVM_FFI_THROW(RuntimeError) << "no imported module has '" << name << "', which gives '"
                                << symbol << "' its constants";
  }

  ffi::Map<ffi::String, ffi::Tensor> constants_;
  std::map<std::string, ffi::Array<ffi::Tensor>> waiting_;  ///< symbols that have not started up
};

}  // namespace

Result<ConstLoaderFacts> read_const_loader(Bytes bytes) {
  ByteReader in{bytes};
  ConstLoaderFacts out;
  OUTPOST_TRY(const auto names, read_names(in, "constant name"));
  OUTPOST_TRY(const auto tensors, in.le<std::uint64_t>("constant count"));
  if (tensors != names.size())
    return Error{Code::malformed, fmt::format("{} constants for {} names", tensors, names.size())};
  for (const auto name : names) {
    auto tensor = read_tensor(in);
    if (tensor.has_error())
      return wrap(std::move(tensor).error(), fmt::format("constant '{}'", printable(name)));
    out.constants.emplace_back(name, *std::move(tensor));
  }
  OUTPOST_TRY(const auto symbols, read_names(in, "symbol"));
  OUTPOST_TRY(const auto lists, in.le<std::uint64_t>("symbol count"));
  if (lists != symbols.size())
    return Error{Code::malformed,
                 fmt::format("{} constant lists for {} symbols", lists, symbols.size())};
  for (const auto symbol : symbols) {
    OUTPOST_TRY(const auto wanted, read_names(in, "constant of a symbol"));
    auto& entry = out.symbols.emplace_back(ConstLoaderFacts::Symbol{symbol, {}});
    for (const auto name : wanted) {
      const auto it = std::find(names.begin(), names.end(), name);
      if (it == names.end())
        return Error{Code::malformed, fmt::format("symbol '{}' wants constant '{}', which is none",
                                                  printable(symbol), printable(name))};
      entry.constants.push_back(static_cast<std::size_t>(it - names.begin()));
    }
  }
  return out;
}

ffi::Module load_const_loader(const ffi::Bytes& bytes) {
  const auto facts = read_const_loader(as_bytes({bytes.data(), bytes.size()}));
  if (facts.has_error())
    TVM_FFI_THROW(ValueError) << "cannot read module of kind 'const_loader': "
                              << facts.error().text;
  return ffi::Module{ffi::make_object<ConstLoaderObj>(*facts)};
}

}  // namespace outpost::vm
