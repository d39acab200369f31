#include <fmt/format.h>

#include <fmt/ranges.h>

#include "outpost/vm/executable.h"

namespace outpost::vm {
namespace {

std::string_view mnemonic(Opcode op) {
  switch (op) {
#define OUTPOST_OPCODE(name, number, words, text) \
  case Opcode::name:                              \
    return text;
#include "format/opcode.def"
#undef OUTPOST_OPCODE
  }
  return "?";
}

std::string register_text(std::uint32_t reg) {
  return reg == Instruction::kNoRegister ? "%void" : fmt::format("%{}", reg);
}

std::string operand_text(const Executable& e, const Operand& o) {
  switch (o.kind) {
    case Operand::Kind::reg:
      return fmt::format("%{}", o.value);
    case Operand::Kind::immediate:
      return fmt::format("i{}", o.value);
    case Operand::Kind::constant:
      return fmt::format("c[{}]", o.value);
    case Operand::Kind::function:
      return fmt::format("f[{}]", e.functions[static_cast<std::size_t>(o.value)].name);
    case Operand::Kind::none:
      return "%void";
    case Operand::Kind::vm:
      return "%vm";
  }
  return {};
}

std::string operand_python(const Executable& e, const Operand& o) {
  switch (o.kind) {
    case Operand::Kind::reg:
      return fmt::format("ib.r({})", o.value);
    case Operand::Kind::immediate:
      return fmt::format("ib.imm({})", o.value);
    case Operand::Kind::constant:
      return fmt::format("ib.c({})", o.value);
    case Operand::Kind::function:
      return fmt::format("ib.f(\"{}\")", e.functions[static_cast<std::size_t>(o.value)].name);
    case Operand::Kind::none:
      return "ib.void_arg()";
    case Operand::Kind::vm:
      return "ib.vm_state()";
  }
  return {};
}

template <class Print>
std::string operands_of(const VerifiedExecutable& v, const Instruction& in, Print print) {
  std::string out;
  for (std::uint32_t i = 0; i < in.operand_count; ++i) {
    if (i != 0) out += ", ";
    out += print(v.get(), v.operands()[in.operands + i]);
  }
  return out;
}

std::string line_text(const VerifiedExecutable& v, std::int64_t pc) {
  const auto& in = v.code()[static_cast<std::size_t>(pc)];
  auto out = fmt::format("  {:<6}", mnemonic(in.op));
  const auto offset = static_cast<std::int64_t>(in.target) - pc;
  switch (in.op) {
    case Opcode::call:
      return out + fmt::format("{:<16} in: {:<12} dst: {}", v.get().functions[in.function].name,
                               operands_of(v, in, operand_text), register_text(in.reg));
    case Opcode::ret:
      return out + register_text(in.reg);
    case Opcode::go:
      return out + fmt::format("{}", offset);
    case Opcode::branch:
      return out + fmt::format("{}, {}", register_text(in.reg), offset);
  }
  return out;
}

std::string line_python(const VerifiedExecutable& v, std::int64_t pc) {
  const auto& in = v.code()[static_cast<std::size_t>(pc)];
  const auto offset = static_cast<std::int64_t>(in.target) - pc;
  const auto reg = in.reg == Instruction::kNoRegister ? std::string{"ib.void_arg()"}
                                                      : fmt::format("ib.r({})", in.reg);
  switch (in.op) {
    case Opcode::call:
      return fmt::format("ib.emit_call(\"{}\", args=[{}]{})", v.get().functions[in.function].name,
                         operands_of(v, in, operand_python),
                         in.reg == Instruction::kNoRegister ? "" : ", dst=" + reg);
    case Opcode::ret:
      return fmt::format("ib.emit_ret({})", reg);
    case Opcode::go:
      return fmt::format("ib.emit_goto({})", offset);
    case Opcode::branch:
      return fmt::format("ib.emit_if({}, {})", reg, offset);
  }
  return {};
}

struct ConstantText {
  std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(DLDataType v) const { return dtype_text(v); }
  std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v); }
  std::string operator()(const ShapeConstant& v) const {
    return fmt::format("shape[{}]", fmt::join(v.dims, ", "));
  }
  std::string operator()(const TensorConstant& v) const {
    return fmt::format("{}[{}]", dtype_text(v.dtype), fmt::join(v.dims, ", "));
  }
};

}  // namespace

std::string disassemble(const VerifiedExecutable& v) {
  std::string out;
  for (const auto& f : v.get().functions) {
    switch (f.kind) {
      case FunctionKind::packed:
        out += fmt::format("@{} packed_func;\n\n", f.name);
        break;
      case FunctionKind::vmtir:
        out += fmt::format("@{} num_inputs={} vm_tir_func;\n\n", f.name, f.num_args);
        break;
      case FunctionKind::vm:
        out += fmt::format("@{}:\n", f.name);
        for (auto pc = f.start; pc < f.end; ++pc) out += line_text(v, pc) + "\n";
        out += "\n";
        break;
    }
  }
  return out;
}

std::string as_python(const VerifiedExecutable& v) {
  std::string out = "ib = rx.Builder()\n";
  for (const auto& f : v.get().functions) {
    if (f.kind != FunctionKind::vm) continue;
    out += fmt::format("with ib.function(\"{}\", num_inputs={}):\n", f.name, f.num_args);
    for (auto pc = f.start; pc < f.end; ++pc) out += "    " + line_python(v, pc) + "\n";
  }
  return out;
}

std::string stats(const VerifiedExecutable& v) {
  std::vector<std::string> constants;
  for (const auto& c : v.get().constants) constants.push_back(std::visit(ConstantText{}, c));
  std::vector<std::string_view> names;
  for (const auto& f : v.get().functions) names.push_back(f.name);
  return fmt::format(
      "Relax VM executable statistics:\n  Constant pool (# {}): [{}]\n  Globals (#{}): [{}]\n",
      constants.size(), fmt::join(constants, ", "), names.size(), fmt::join(names, ", "));
}

}  // namespace outpost::vm
