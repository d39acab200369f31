#pragma once
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "outpost/vm/executable.h"

namespace outpost::vm {

/// A verified executable with its constants as values on the host. Never changes; all VMs made from
/// one executable share it.
class Program {
 public:
  /// Called with each part of the file that will not be read again.
  using Done = void (*)(Bytes);

  /// Takes tensor data out of the file's bytes, so they are not needed afterwards.
  /// @throws tvm::ffi::Error ValueError naming section and reason when the bytes are refused
  static std::shared_ptr<const Program> load(Bytes file, Done done = nullptr);
  /// The same for a file, which is never in memory as a whole beside its constants.
  static std::shared_ptr<const Program> load_file(const std::string& path);

  const VerifiedExecutable& executable() const { return executable_; }
  const std::vector<Function>& functions() const { return executable_.get().functions; }
  const std::vector<tvm::ffi::Any>& constants() const { return constants_; }
  /// Memory scope of a constant, "" when it has none.
  std::string_view scope_of(std::size_t constant) const;
  /// The bytes of the file, made again from the parts.
  std::vector<std::byte> bytes() const;
  /// "; did you mean 'main' or 'mean'?" from the VM and VMTIR functions, or nothing.
  std::string suggestion(std::string_view name) const;

 private:
  explicit Program(VerifiedExecutable e) : executable_{std::move(e)} {}
  VerifiedExecutable executable_;
  std::vector<tvm::ffi::Any> constants_;
  std::vector<std::string> scopes_;
  std::vector<std::vector<std::byte>> packed_;  ///< the file's form of tensors of less than a byte
};

}  // namespace outpost::vm
