#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "outpost/vm/executable.h"

namespace outpost::vm {
namespace {

// Honest programs stay far below; a file must not make a frame of any size.
constexpr std::int64_t kArgumentsMax = 1 << 16;
constexpr std::int64_t kCompiledRegistersMax = 1 << 20;
constexpr std::int64_t kOperandBits = 56;

enum class OperandTag : std::uint8_t { reg = 0, immediate = 1, constant = 2, function = 3 };

Error refuse(std::string text) {
  return {Code::malformed, "executable refused: " + std::move(text)};
}

/// One message shape for code: function, pc, what is wrong, what would be right.
Error refuse_at(const Function& f, std::int64_t pc, const std::string& why) {
  return refuse(fmt::format("function '{}' pc {}: {}", f.name, pc - f.start, why));
}

/// Splits the words into instructions; checks and decodes function by function.
class Verifier {
 public:
  Verifier(const Executable& e, std::vector<Instruction>& code, std::vector<Operand>& operands)
      : e_{e}, code_{code}, operands_{operands} {}

  Result<> run(std::vector<std::uint32_t>& by_name) {
    OUTPOST_CHECK(check_constants());
    OUTPOST_CHECK(check_scopes());
    OUTPOST_CHECK(check_names(by_name));
    OUTPOST_CHECK(check_layout());
    code_.resize(e_.offsets.size(), Instruction{Opcode::ret});
    for (const auto& f : e_.functions) OUTPOST_CHECK(check_function(f));
    OUTPOST_CHECK(check_ranges());
    for (const auto& f : e_.functions)
      if (f.kind == FunctionKind::vm) OUTPOST_CHECK(check_code(f));
    return {};
  }

 private:
  std::int64_t instructions() const { return std::ssize(e_.offsets); }

  Result<> check_constants() const {
    for (std::size_t i = 0; i < e_.constants.size(); ++i) {
      const auto* t = std::get_if<TensorConstant>(&e_.constants[i]);
      if (t != nullptr && t->dtype.lanes != 1)
        return refuse(
            fmt::format("constants[{}]: a tensor of {} cannot be restored, the format "
                        "drops the lanes of vector elements",
                        i, dtype_text(t->dtype)));
    }
    return {};
  }

  Result<> check_scopes() const {
    std::vector<bool> seen(e_.constants.size());
    for (std::size_t i = 0; i < e_.scopes.size(); ++i) {
      const auto c = e_.scopes[i].constant;
      if (c < 0 || c >= std::ssize(e_.constants))
        return refuse(
            fmt::format("memory scopes[{}]: constant index {} out of range, the file has "
                        "{}",
                        i, c, e_.constants.size()));
      if (seen[static_cast<std::size_t>(c)])
        return refuse(fmt::format("memory scopes[{}]: constant {} has a scope already", i, c));
      seen[static_cast<std::size_t>(c)] = true;
    }
    return {};
  }

  Result<> check_names(std::vector<std::uint32_t>& by_name) const {
    if (e_.functions.size() > std::numeric_limits<std::uint32_t>::max())
      return refuse("too many functions");
    by_name.resize(e_.functions.size());
    std::iota(by_name.begin(), by_name.end(), 0U);
    const auto name = [&](std::uint32_t i) -> std::string_view { return e_.functions[i].name; };
    std::sort(by_name.begin(), by_name.end(),
              [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
    const auto twice =
        std::adjacent_find(by_name.begin(), by_name.end(),
                           [&](std::uint32_t a, std::uint32_t b) { return name(a) == name(b); });
    if (twice != by_name.end())
      return refuse(fmt::format("two functions are named '{}'", name(*twice)));
    return {};
  }

  /// The offsets must be exactly the instructions of the words, in order.
  Result<> check_layout() const {
    if (e_.offsets.size() >= Instruction::kNoRegister ||
        e_.words.size() >= Instruction::kNoRegister)
      return refuse("too much code");
    std::size_t at = 0;
    for (std::size_t i = 0; i < e_.offsets.size(); ++i) {
      if (e_.offsets[i] != static_cast<std::int64_t>(at))
        return refuse(
            fmt::format("instruction offsets[{}] is {}, the instruction starts at word {}", i,
                        e_.offsets[i], at));
      if (at >= e_.words.size())
        return refuse(fmt::format("instruction {} starts at word {}, the file has {}", i, at,
                                  e_.words.size()));
      auto size = size_at(at);
      if (size.has_error())
        return wrap(std::move(size).error(), fmt::format("executable refused: instruction {}", i));
      at += *size;
    }
    if (at != e_.words.size())
      return refuse(
          fmt::format("the instructions end at word {}, the file has {}", at, e_.words.size()));
    return {};
  }

  Result<std::size_t> size_at(std::size_t at) const {
    std::size_t fixed = 0;
    switch (static_cast<Opcode>(e_.words[at])) {
#define OUTPOST_OPCODE(name, number, words, mnemonic) \
  case Opcode::name:                                  \
    fixed = words;                                    \
    break;
#include "format/opcode.def"
#undef OUTPOST_OPCODE
      default:
        return Error{Code::malformed,
                     fmt::format("unknown opcode {} at word {}, 1 to 4 exist", e_.words[at], at)};
    }
    const auto left = e_.words.size() - at - 1;
    if (left < fixed)
      return Error{Code::malformed,
                   fmt::format("needs {} words after word {}, {} left", fixed, at, left)};
    if (static_cast<Opcode>(e_.words[at]) != Opcode::call) return 1 + fixed;
    const auto n = e_.words[at + 3];
    if (n < 0 || static_cast<std::uint64_t>(n) > left - fixed)
      return Error{Code::malformed, fmt::format("call with {} arguments at word {}, {} words left",
                                                n, at, left - fixed)};
    return 1 + fixed + static_cast<std::size_t>(n);
  }

  Result<> check_function(const Function& f) const {
    const auto bad = [&f](const std::string& why) {
      return refuse(fmt::format("function '{}': {}", f.name, why));
    };
    if (f.kind == FunctionKind::packed) {
      if (f.num_args != -2 || f.start != 0 || f.end != 0 || f.registers != 0 ||
          !f.param_names.empty())
        return bad(
            fmt::format("a packed function has num_args {}, start {}, end {}, registers {} "
                        "and {} parameter names, expected -2, 0, 0, 0 and 0",
                        f.num_args, f.start, f.end, f.registers, f.param_names.size()));
      return {};
    }
    if (f.num_args < 0 || f.num_args > kArgumentsMax)
      return bad(fmt::format("num_args is {}, expected 0 to {}", f.num_args, kArgumentsMax));
    if (!f.param_names.empty() && std::ssize(f.param_names) != f.num_args)
      return bad(
          fmt::format("{} parameter names for {} arguments", f.param_names.size(), f.num_args));
    if (f.kind == FunctionKind::vmtir) {
      if (f.start != 0 || f.end != 0)
        return bad(fmt::format("a compiled function has instructions [{}, {})", f.start, f.end));
      if (f.registers <= f.num_args || f.registers > kCompiledRegistersMax)
        return bad(fmt::format("registers is {}, expected {} to {}", f.registers, f.num_args + 1,
                               kCompiledRegistersMax));
      return {};
    }
    if (f.start < 0 || f.end > instructions() || f.start >= f.end)
      return bad(fmt::format("instructions [{}, {}) are not a part of the {} in the file", f.start,
                             f.end, instructions()));
    return {};
  }

  /// An instruction belongs to one function at most, so checking all code takes linear time.
  Result<> check_ranges() const {
    std::vector<const Function*> sorted;
    for (const auto& f : e_.functions)
      if (f.kind == FunctionKind::vm) sorted.push_back(&f);
    std::sort(sorted.begin(), sorted.end(),
              [](const Function* a, const Function* b) { return a->start < b->start; });
    for (std::size_t i = 1; i < sorted.size(); ++i)
      if (sorted[i]->start < sorted[i - 1]->end)
        return refuse(fmt::format("function '{}' and function '{}' share instruction {}",
                                  sorted[i - 1]->name, sorted[i]->name, sorted[i]->start));
    return {};
  }

  Result<> check_code(const Function& f) {
    std::int64_t calls = 0;
    for (auto pc = f.start; pc < f.end; ++pc)
      calls += e_.words[word(pc)] == static_cast<std::int64_t>(Opcode::call) ? 1 : 0;
    if (f.registers < f.num_args || f.registers > f.num_args + calls)
      return refuse(
          fmt::format("function '{}': registers is {}, expected {} to {} ({} arguments, {} "
                      "calls)",
                      f.name, f.registers, f.num_args, f.num_args + calls, f.num_args, calls));
    for (auto pc = f.start; pc < f.end; ++pc) OUTPOST_CHECK(decode(f, pc));
    return check_paths(f);
  }

  std::size_t word(std::int64_t pc) const {
    return static_cast<std::size_t>(e_.offsets[static_cast<std::size_t>(pc)]);
  }

  Result<> decode(const Function& f, std::int64_t pc) {
    const auto* w = &e_.words[word(pc)];
    auto& in = code_[static_cast<std::size_t>(pc)];
    in.op = static_cast<Opcode>(w[0]);
    switch (in.op) {
      case Opcode::call:
        return decode_call(f, pc, w, in);
      case Opcode::ret: {
        if (w[1] == kVoidRegister) {
          in.reg = Instruction::kNoRegister;
          return {};
        }
        OUTPOST_TRY(in.reg, check_register(f, pc, w[1]));
        return {};
      }
      case Opcode::go: {
        OUTPOST_TRY(in.target, check_jump(f, pc, w[1]));
        return {};
      }
      case Opcode::branch: {
        OUTPOST_TRY(in.reg, check_register(f, pc, w[1]));
        if (w[2] <= 1)
          return refuse_at(f, pc,
                           fmt::format("false offset {} of a branch, expected at least 2", w[2]));
        OUTPOST_TRY(in.target, check_jump(f, pc, w[2]));
        return {};
      }
    }
    return {};
  }

  Result<> decode_call(const Function& f, std::int64_t pc, const std::int64_t* w, Instruction& in) {
    if (w[1] == kVoidRegister || w[1] == kVmRegister) {
      in.reg = Instruction::kNoRegister;
    } else {
      OUTPOST_TRY(in.reg, check_register(f, pc, w[1]));
    }
    if (w[2] < 0 || w[2] >= std::ssize(e_.functions))
      return refuse_at(f, pc,
                       fmt::format("function index {} out of range, the file has {}", w[2],
                                   e_.functions.size()));
    in.function = static_cast<std::uint32_t>(w[2]);
    in.operands = static_cast<std::uint32_t>(operands_.size());
    in.operand_count = static_cast<std::uint32_t>(w[3]);
    for (std::int64_t i = 0; i < w[3]; ++i) {
      auto operand = decode_operand(f, pc, w[4 + i]);
      if (operand.has_error()) return std::move(operand).error();
      operands_.push_back(*operand);
    }
    return {};
  }

  Result<Operand> decode_operand(const Function& f, std::int64_t pc, std::int64_t w) const {
    const auto bits = static_cast<std::uint64_t>(w);
    const auto tag = static_cast<std::uint8_t>(bits >> kOperandBits);
    // Sign-extends the lower 56 bits.
    const auto value =
        static_cast<std::int64_t>(bits << (64 - kOperandBits)) >> (64 - kOperandBits);
    switch (static_cast<OperandTag>(tag)) {
      case OperandTag::reg: {
        if (value == kVoidRegister) return Operand{Operand::Kind::none};
        if (value == kVmRegister) return Operand{Operand::Kind::vm};
        OUTPOST_TRY(const auto reg, check_register(f, pc, value));
        return Operand{Operand::Kind::reg, reg};
      }
      case OperandTag::immediate:
        return Operand{Operand::Kind::immediate, value};
      case OperandTag::constant:
        if (value < 0 || value >= std::ssize(e_.constants))
          return refuse_at(f, pc,
                           fmt::format("constant index {} out of range, the file has {}", value,
                                       e_.constants.size()));
        return Operand{Operand::Kind::constant, value};
      case OperandTag::function:
        if (value < 0 || value >= std::ssize(e_.functions))
          return refuse_at(f, pc,
                           fmt::format("function index {} out of range, the file has {}", value,
                                       e_.functions.size()));
        return Operand{Operand::Kind::function, value};
    }
    return refuse_at(f, pc, fmt::format("argument kind {}, 0 to 3 exist", tag));
  }

  static Result<std::uint32_t> check_register(const Function& f, std::int64_t pc,
                                              std::int64_t reg) {
    if (reg >= 0 && reg < f.registers) return static_cast<std::uint32_t>(reg);
    return refuse_at(
        f, pc, fmt::format("register {} out of range, the function has {}", reg, f.registers));
  }

  static Result<std::uint32_t> check_jump(const Function& f, std::int64_t pc, std::int64_t offset) {
    // No sum of the two before the check, so no overflow.
    if (offset != 0 && offset >= f.start - pc && offset < f.end - pc)
      return static_cast<std::uint32_t>(pc + offset);
    return refuse_at(f, pc,
                     fmt::format("jump by {} {} the {} instructions of the function", offset,
                                 offset == 0 ? "never ends in" : "leaves", f.end - f.start));
  }

  /// From every instruction that can be reached a Ret can be reached.
  Result<> check_paths(const Function& f) const {
    const auto n = static_cast<std::size_t>(f.end - f.start);
    const auto at = [&](std::size_t i) -> const Instruction& {
      return code_[static_cast<std::size_t>(f.start) + i];
    };
    const auto local = [&](std::uint32_t pc) { return pc - static_cast<std::size_t>(f.start); };
    const auto falls = [](const Instruction& in) {
      return in.op == Opcode::call || in.op == Opcode::branch;
    };
    const auto jumps = [](const Instruction& in) {
      return in.op == Opcode::go || in.op == Opcode::branch;
    };
    if (falls(at(n - 1)))
      return refuse_at(f, f.end - 1, "the function can run past its last instruction");
    std::vector<std::pair<std::size_t, std::size_t>> sources;  // (target, source), sorted
    std::vector<bool> ends(n);
    std::vector<bool> seen(n);
    std::vector<std::size_t> work;
    for (std::size_t i = 0; i < n; ++i) {
      if (jumps(at(i))) sources.emplace_back(local(at(i).target), i);
      if (at(i).op != Opcode::ret) continue;
      ends[i] = true;
      work.push_back(i);
    }
    std::sort(sources.begin(), sources.end());
    const auto visit = [&work](std::vector<bool>& marks, std::size_t i) {
      if (marks[i]) return;
      marks[i] = true;
      work.push_back(i);
    };
    while (!work.empty()) {
      const auto i = work.back();
      work.pop_back();
      if (i > 0 && falls(at(i - 1))) visit(ends, i - 1);
      for (auto it = std::lower_bound(sources.begin(), sources.end(), std::pair{i, std::size_t{0}});
           it != sources.end() && it->first == i; ++it)
        visit(ends, it->second);
    }
    visit(seen, 0);
    while (!work.empty()) {
      const auto i = work.back();
      work.pop_back();
      if (!ends[i])
        return refuse_at(f, f.start + static_cast<std::int64_t>(i),
                         "no return can be reached from here");
      if (falls(at(i))) visit(seen, i + 1);
      if (jumps(at(i))) visit(seen, local(at(i).target));
    }
    return {};
  }

  const Executable& e_;
  std::vector<Instruction>& code_;
  std::vector<Operand>& operands_;
};

}  // namespace

std::int64_t VerifiedExecutable::find(std::string_view name) const {
  const auto it = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](std::uint32_t i, std::string_view n) { return executable_.functions[i].name < n; });
  if (it == by_name_.end() || executable_.functions[*it].name != name) return -1;
  return *it;
}

Result<VerifiedExecutable> verify(Executable executable) {
  VerifiedExecutable v;
  v.executable_ = std::move(executable);
  OUTPOST_CHECK((Verifier{v.executable_, v.code_, v.operands_}.run(v.by_name_)));
  return v;
}

}  // namespace outpost::vm
