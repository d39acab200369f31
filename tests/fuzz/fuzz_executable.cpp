// Reader, verifier, printer and writer of executables: any bytes are refused or read to the end.
#include <cstdint>
#include <cstdlib>

#include "outpost/vm/executable.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace outpost;
  const Bytes file{reinterpret_cast<const std::byte*>(data), size};
  auto executable = vm::read_executable(file);
  if (executable.has_error()) return 0;
  const auto written = vm::write_executable(*executable);
  if (!std::equal(written.begin(), written.end(), file.begin(), file.end())) std::abort();
  const auto verified = vm::verify(*std::move(executable));
  if (verified.has_error()) return 0;
  vm::disassemble(*verified);
  vm::as_python(*verified);
  vm::stats(*verified);
  return 0;
}
