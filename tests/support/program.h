#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "outpost/vm/executable.h"

namespace outpost::test {

/// Builds executables instruction by instruction, right or wrong.
class ProgramBuilder {
 public:
  static constexpr std::int64_t kVoid = vm::kVoidRegister;
  static std::int64_t arg(int kind, std::int64_t value) {
    return static_cast<std::int64_t>((static_cast<std::uint64_t>(kind) << 56) |
                                     (static_cast<std::uint64_t>(value) & ((1ULL << 56) - 1)));
  }
  static std::int64_t r(std::int64_t reg) { return arg(0, reg); }
  static std::int64_t imm(std::int64_t value) { return arg(1, value); }
  static std::int64_t c(std::int64_t constant) { return arg(2, constant); }
  static std::int64_t f(std::int64_t function) { return arg(3, function); }
  static std::int64_t ctx() { return arg(0, vm::kVmRegister); }

  /// Index of a packed function of this name.
  std::int64_t packed(const std::string& name) {
    for (std::size_t i = 0; i < e_.functions.size(); ++i)
      if (e_.functions[i].name == name) return static_cast<std::int64_t>(i);
    e_.functions.push_back({vm::FunctionKind::packed, name, 0, 0, -2, 0, {}});
    return std::ssize(e_.functions) - 1;
  }
  /// A VM function of the instructions that `body` emits.
  template <class Body>
  std::int64_t function(const std::string& name, std::int64_t args, std::int64_t registers,
                        Body body) {
    const auto index = std::ssize(e_.functions);
    e_.functions.push_back({vm::FunctionKind::vm, name, 0, 0, args, registers, {}});
    const auto start = std::ssize(e_.offsets);
    body(index);
    auto& f = e_.functions[static_cast<std::size_t>(index)];
    f.start = start;
    f.end = std::ssize(e_.offsets);
    return index;
  }
  void call(std::int64_t dst, std::int64_t function, std::vector<std::int64_t> args) {
    args.insert(args.begin(), {1, dst, function, std::ssize(args)});
    emit(args);
  }
  void ret(std::int64_t reg) { emit({2, reg}); }
  void go(std::int64_t offset) { emit({3, offset}); }
  void branch(std::int64_t reg, std::int64_t offset) { emit({4, reg, offset}); }
  std::int64_t constant(vm::Constant value) {
    e_.constants.push_back(std::move(value));
    return std::ssize(e_.constants) - 1;
  }
  const vm::Executable& get() const { return e_; }
  std::vector<std::byte> bytes() const { return vm::write_executable(e_); }

 private:
  void emit(const std::vector<std::int64_t>& words) {
    e_.offsets.push_back(std::ssize(e_.words));
    e_.words.insert(e_.words.end(), words.begin(), words.end());
  }
  vm::Executable e_;
};

}  // namespace outpost::test
