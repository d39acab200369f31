#pragma once
#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace outpost::vm {

/// Numbers of a Relax executable's format (vm-executable.md, sections 2 and 3).
inline constexpr std::uint64_t kMagicV1 = 0xD225DE2F4214151D;
inline constexpr std::uint64_t kMagicV2 = 0xD225DE2F4214151E;
inline constexpr std::uint64_t kTensorMagic = 0xDD5E40F096B4A13F;
inline constexpr std::string_view kVersion = "0.14";
inline constexpr std::int64_t kVoidRegister = std::int64_t{1} << 54;  ///< reads None, drops results
inline constexpr std::int64_t kVmRegister = kVoidRegister + 1;        ///< the VM itself
inline constexpr int kTensorNdimMax = 64;

enum class Opcode : std::int64_t {
#define OUTPOST_OPCODE(name, number, words, mnemonic) name = number,
#include "format/opcode.def"
#undef OUTPOST_OPCODE
};

enum class FunctionKind : std::int32_t {
  packed = 0,  ///< a name to look up
  vm = 1,      ///< instructions [start, end)
  vmtir = 2,   ///< compiled: `__vmtir__NAME` in the imports
};

struct Function {
  FunctionKind kind = FunctionKind::packed;
  std::string name;
  std::int64_t start = 0;     ///< index of the first instruction
  std::int64_t end = 0;       ///< index after the last one
  std::int64_t num_args = 0;  ///< -2 for packed functions
  std::int64_t registers = 0;
  std::vector<std::string> param_names;  ///< num_args entries, or none
};

struct ShapeConstant {
  std::vector<std::int64_t> dims;
};
/// A tensor as the file has it: compact, one or more whole bytes per element.
struct TensorConstant {
  DLDataType dtype{};
  std::vector<std::int64_t> dims;
  Bytes data;  ///< borrowed from the bytes that were read
};
/// In the order of no particular tag: int, float, dtype, string, shape, tensor.
using Constant =
    std::variant<std::int64_t, double, DLDataType, std::string, ShapeConstant, TensorConstant>;

struct MemoryScope {
  std::int64_t constant = 0;  ///< index
  std::string scope;
};

/// The parts of an executable, read but not judged: see verify(). Tensor constants borrow from the
/// bytes it was read from.
struct Executable {
  int format = 2;  ///< 1 or 2: which magic the file has
  std::vector<Function> functions;
  std::vector<MemoryScope> scopes;  ///< in the file's order
  std::vector<Constant> constants;
  std::vector<std::int64_t> offsets;  ///< first word of each instruction
  std::vector<std::int64_t> words;
};

/// Reads both versions of the format. Refuses, with section and byte, what does not follow it, and
/// bytes left over. Memory grows with the bytes that are there, never with what they claim.
Result<Executable> read_executable(Bytes file);

/// The same bytes again.
std::vector<std::byte> write_executable(const Executable& executable);

/// What stands for one element of a constant in the file: whole bytes, without lanes.
std::size_t file_element_bytes(DLDataType dtype);
/// "float32", "int4x8", ...
std::string dtype_text(DLDataType dtype);

/// One argument of a call.
struct Operand {
  enum class Kind : std::uint8_t { reg, immediate, constant, function, none, vm } kind;
  std::int64_t value = 0;  ///< register, integer or index
};

/// An instruction whose numbers were checked against its function and the file.
struct Instruction {
  Opcode op;
  std::uint32_t reg = 0;       ///< call: destination; ret, branch: what is read; kNoRegister: none
  std::uint32_t function = 0;  ///< call: index of the callee
  std::uint32_t operands = 0;  ///< call: index of the first operand
  std::uint32_t operand_count = 0;
  std::uint32_t target = 0;  ///< go, branch when false: instruction to go on with
  static constexpr std::uint32_t kNoRegister = 0xFFFFFFFF;
};

/// Proof that verify() has passed, with the code decoded. The interpreter takes nothing else, so
/// its inner loop needs no bounds checks. Never changes; many VMs share one.
class VerifiedExecutable {
 public:
  const Executable& get() const { return executable_; }
  const std::vector<Instruction>& code() const { return code_; }
  const std::vector<Operand>& operands() const { return operands_; }
  /// The data of a tensor constant, the same bytes, lies elsewhere from now on.
  void move_tensor(std::size_t constant, Bytes data) {
    std::get<TensorConstant>(executable_.constants[constant]).data = data;
  }
  /// Index of the function of this name, or -1.
  std::int64_t find(std::string_view name) const;

 private:
  friend Result<VerifiedExecutable> verify(Executable);
  VerifiedExecutable() = default;
  Executable executable_;
  std::vector<Instruction> code_;
  std::vector<Operand> operands_;
  std::vector<std::uint32_t> by_name_;  ///< function indices, sorted by name
};

/// Proves structure, indices, jumps and register use, that every path of a function ends in a
/// return, and that the constants can be made. Error: function, pc, what was found, what is
/// allowed.
Result<VerifiedExecutable> verify(Executable executable);

/// Disassembly, as the peer prints it.
std::string disassemble(const VerifiedExecutable& executable);
/// The program as calls of the peer's instruction builder.
std::string as_python(const VerifiedExecutable& executable);
/// Constants and function names in a few lines.
std::string stats(const VerifiedExecutable& executable);

}  // namespace outpost::vm
