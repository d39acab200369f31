"""Small libraries made by the stock compiler and the system's C compiler; each is made once per test run."""

import functools
import pathlib
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_probe(folder, version=1):
    """The probe library (tests/support/probe.c) as a shared library."""
    out = pathlib.Path(folder) / f"probe{version}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", f"-DPROBE_VERSION={version}", "-o", out,
                    ROOT / "tests" / "support" / "probe.c"], check=True)
    return out


def build_probe_object(folder):
    out = pathlib.Path(folder) / "probe.o"
    subprocess.run(["cc", "-c", "-fPIC", "-O1", "-w", "-o", out, ROOT / "tests" / "support" / "probe.c"], check=True)
    return out


@functools.cache
def kernels():
    """add_one(A[4], B[4]) and add(A[128,128], B, C), float32, compiled for the host."""
    import tvm
    from tvm.script import ir as I
    from tvm.script import tirx as T

    @I.ir_module
    class Kernels:
        @T.prim_func(s_tir=True)
        def add_one(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            T.func_attr({"global_symbol": "add_one"})
            for i in range(4):
                with T.sblock("B"):
                    v = T.axis.spatial(4, i)
                    B[v] = A[v] + T.float32(1)

        @T.prim_func(s_tir=True)
        def add(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"),
                C: T.Buffer((128, 128), "float32")):
            T.func_attr({"global_symbol": "add"})
            for i, j in T.grid(128, 128):
                with T.sblock("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj] + B[vi, vj]

    return tvm.compile(Kernels, target="llvm")


def build_kernels(folder, suffix=".so"):
    """The library as `.so`, as the `.tar` that a build machine without a linker exports, or as its one object `.o`."""
    out = pathlib.Path(folder) / f"kernels{suffix}"
    if suffix == ".o":
        with tarfile.open(build_kernels(folder, ".tar")) as archive:
            out.write_bytes(archive.extractfile("lib0.o").read())
    else:
        kernels().export_library(str(out))
    return out
