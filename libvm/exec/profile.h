#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "exec/machine.h"

namespace outpost::vm {

/// Runs the function once to warm up and once measured, each call of bytecode that has a tensor
/// among its arguments synchronised on that tensor's device. JSON as older clients read it
/// (vm-executable.md, section 9).
std::string profile_json(Machine& machine, std::uint32_t function,
                         const std::vector<tvm::ffi::Any>& args);

}  // namespace outpost::vm
