"""Builds sample artefacts and test vectors with the installed compiler: python -m samples OUT [name ...]

A sample is a folder OUT/<name> with artefacts, `cases.json` (calls with their results) and `io.npz` (the tensors).
Every result is what the stock runtime gave on this machine's CPU. tests/interop/vm_replay.py reads them.
"""

import os
import sys
import time
import traceback

from samples import decoder, functions, programs

PREFIX = "sample_"
SAMPLES = [
    (name[len(PREFIX):], f)
    for module in (programs, decoder, functions)
    for name, f in vars(module).items()
    if name.startswith(PREFIX)
]


def run(name, f, out):
    """One sample in a process of its own, so that a crash of the compiler stops only that one."""
    begin = time.time()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            print(f"{name:12} {f(out)}")
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        os._exit(status)
    status = os.waitpid(pid, 0)[1]
    print(f"{'':12} {time.time() - begin:.1f} s{'' if status == 0 else f'  FAILED (status {status})'}", flush=True)
    return status != 0


def main(argv):
    failed = sum(run(n, f, argv[0]) for n, f in SAMPLES if not argv[1:] or n in argv[1:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
