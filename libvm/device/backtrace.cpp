// Takes the place of libtvm_ffi's function in our programs: walking the stack for every error costs
// more than a whole request, the first time hundreds of milliseconds of reading debug information,
// and its frames would tell a client nothing.
#include <tvm/ffi/c_api.h>

extern "C" const TVMFFIByteArray* TVMFFIBacktrace(const char*, int, const char*, int) {
  static const TVMFFIByteArray none{"", 0};
  return &none;
}
