/* The probe library of the interop tests: functions that misbehave on request. Built with
 * `cc -shared -fPIC`; no headers of tvm-ffi, so that a board without them can be tested.
 * `-DPROBE_VERSION=2` makes a second build that can be told apart. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef PROBE_VERSION
#define PROBE_VERSION 1
#endif

typedef struct {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t as_int;
    double as_float;
    void* as_pointer;
  };
} Any; /* the 16 bytes of TVMFFIAny */

enum { kNone = 0, kInt = 1 };

#define PROBE(name)                                                            \
  __attribute__((visibility("default"))) int __tvm_ffi_##name(                 \
      void* self, const Any* args, int32_t n, Any* ret)
#define UNUSED (void)self, (void)args, (void)n, (void)ret

static int give(Any* ret, int64_t value) {
  ret->type_index = kInt;
  ret->padding = 0;
  ret->as_int = value;
  return 0;
}

static int64_t int_argument(const Any* args, int32_t n) { return n > 0 ? args[0].as_int : 0; }

PROBE(noargs) { UNUSED; return give(ret, 42); }
PROBE(ver) { UNUSED; return give(ret, PROBE_VERSION); }
PROBE(getpid_) { UNUSED; return give(ret, getpid()); }
PROBE(nargs) { UNUSED; return give(ret, n); }
PROBE(argtype) { UNUSED; return give(ret, n > 0 ? args[0].type_index : -1); }

PROBE(crash) {
  UNUSED;
  volatile int* nowhere = 0;
  *nowhere = 1;
  return 0;
}
PROBE(abort_) { UNUSED; abort(); }
PROBE(exit0) { UNUSED; exit(0); }
PROBE(exit7) { UNUSED; exit(7); }

PROBE(sleep_ms) {
  UNUSED;
  const int64_t ms = int_argument(args, n);
  struct timespec left = {ms / 1000, (ms % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0) {
  }
  return give(ret, ms);
}
PROBE(spin) {
  UNUSED;
  for (volatile uint64_t i = 0;; i = i + 1) {
  }
  return 0;
}
PROBE(ignore_term) {
  UNUSED;
  signal(SIGTERM, SIG_IGN);
  for (;;) pause();
  return 0;
}
PROBE(child) {
  UNUSED;
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  return give(ret, pid);
}
PROBE(closefds) {
  UNUSED;
  for (int fd = 3; fd < 64; ++fd) close(fd);
  return give(ret, 0);
}
PROBE(eatmem) {
  UNUSED;
  const size_t bytes = (size_t)int_argument(args, n);
  char* block = malloc(bytes);
  if (block == 0) return give(ret, 0);
  memset(block, 1, bytes);
  return give(ret, (int64_t)bytes);
}
PROBE(print_) {
  UNUSED;
  printf("probe writes to stdout\n");
  fflush(stdout);
  fprintf(stderr, "probe writes to stderr\n");
  return give(ret, 0);
}
