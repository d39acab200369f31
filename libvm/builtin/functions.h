#pragma once

namespace outpost::vm {
/// Random numbers, sorting, parameter files and the small functions of tuners and tests.
void register_library_builtins();
}  // namespace outpost::vm
