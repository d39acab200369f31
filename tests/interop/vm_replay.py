"""Replays the recorded calls of sample folders on our VM, in this process, without the peer's runtime.

  vm_replay.py LIBRARY FOLDER [FOLDER ...]     LIBRARY is liboutpost_vm_library.so of a build

A folder has cases.json and io.npz as tests/interop/vm_samples.py writes them. Exit code 1 when a result differs.
"""

import ctypes
import json
import os
import sys

import numpy as np
import tvm_ffi
from tvm_ffi import Shape


@tvm_ffi.register_error
class InternalError(RuntimeError):
    """The kind that the peer's package has too."""


def get(name):
    return tvm_ffi.get_global_func(name)


def tensor(array, dtype, device):
    """A tensor of our runtime with the bytes of `array`, which may stand for another dtype of that width."""
    shape = Shape(array.shape)
    t = get("runtime.TVMTensorAllocWithScope")(shape, tvm_ffi.dtype(dtype), tvm_ffi.device("cpu", device), None)
    raw = np.ascontiguousarray(array)
    if raw.nbytes:
        get("runtime.TVMTensorCopyFromBytes")(t, ctypes.c_void_p(raw.ctypes.data), raw.nbytes)
    return t


def array(t, like):
    """The bytes of a tensor as an array of the type of `like`."""
    out = np.empty(tuple(t.shape), like.dtype)
    if out.nbytes:
        get("runtime.TVMTensorCopyToBytes")(t, ctypes.c_void_p(out.ctypes.data), out.nbytes)
    return out


class Replay:
    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "cases.json")) as f:
            self.doc = json.load(f)
        self.arrays = np.load(os.path.join(folder, "io.npz"))
        self.saved, self.bad, self.vm, self.lib = {}, [], None, None
        name = self.doc["library"]
        if name and name.endswith(".vmexe"):
            self.lib = get("relax.ExecutableLoadFromFile")(os.path.join(folder, name))
        elif name:
            self.lib = tvm_ffi.load_module(os.path.join(folder, name))
        if self.lib is not None and self.lib.kind == "relax.VMExecutable":
            self.vm = self.lib.get_function("vm_load_executable")()
            self.vm.get_function("vm_initialization")(*[v for d in self.doc["devices"] for v in d])

    def value(self, d):
        kind, v = next((k, d[k]) for k in d if k not in ("dtype", "shape", "device") or len(d) == 1)
        if kind == "tensor":
            return tensor(self.arrays[v], d["dtype"], d.get("device", 0))
        if kind == "tuple":
            return tvm_ffi.Array([self.value(e) for e in v])
        if kind == "var":
            return self.saved[v]
        if kind == "vm_function":
            return self.vm.get_function(v)
        if kind == "folder":
            return os.path.join(self.folder, v)
        return {"none": lambda: None, "shape": lambda: Shape(v), "dtype": lambda: tvm_ffi.dtype(v),
                "bytes": lambda: bytearray.fromhex(v)}.get(kind, lambda: v)()

    def same(self, got, want):
        if "tensor" in want:
            raw = self.arrays[want["tensor"]]
            if str(got.dtype) != want["dtype"] or tuple(got.shape) != tuple(want["shape"]):
                return f"dtype or shape {got.dtype} {got.shape}"
            a = array(got, raw)
            if self.doc["compare"] == "exact" or raw.dtype.kind not in "f":
                return None if a.tobytes() == raw.tobytes() else "tensor differs"
            near = np.allclose(a, raw, equal_nan=True, **self.doc["compare"])
            return None if near else f"tensor is off by {np.abs(a - raw).max():g}"
        if "tuple" in want:
            if len(got) != len(want["tuple"]):
                return f"tuple of {len(got)}"
            return next((x for x in map(self.same, got, want["tuple"]) if x), None)
        if "object" in want:
            plain = isinstance(got, (int, float, str, bytes, type(None), tvm_ffi.Tensor))
            return f"{type(got).__name__} instead of an object" if plain else None
        w = self.value(want)
        if isinstance(w, bytearray):
            got, w = bytes(got), bytes(w)
        return None if got == w and (got is None) == (w is None) else repr(got)

    def call(self, step):
        args = [self.value(a) for a in step["args"]]
        f = get(step["name"]) if step["where"] == "global" else self.vm.get_function(step["name"])
        return args, f(*args)

    def run(self):
        for i, step in enumerate(self.doc["steps"]):
            if step["where"] == "library":
                self.saved[step["save"]] = self.lib.get_function(step["name"])
                continue
            wanted = step.get("error", {}).get("kind")
            try:
                args, out = self.call(step)
            except Exception as e:  # the answer is the error
                if type(e).__name__ != wanted:
                    self.bad.append((i, step["name"], f"{type(e).__name__}: {str(e)[:300]}", step.get("error")))
                continue
            if wanted:
                self.bad.append((i, step["name"], "no error", step["error"]))
                continue
            if "save" in step:
                self.saved[step["save"]] = out
            why = self.same(out, step["result"])
            for k, w in step.get("after", {}).items():
                why = why or (None if "flaw" in step else self.same(args[int(k)], w))
            if why and "flaw" not in step:
                self.bad.append((i, step["name"], why, None))
        return len(self.doc["steps"]), self.bad


def load(library):
    lib = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    lib.outpost_register()
    return lib


def main(argv):
    load(argv[0])
    wrong = 0
    for folder in argv[1:]:
        name = os.path.basename(os.path.normpath(folder))
        n, bad = Replay(folder).run()
        wrong += len(bad)
        print(f"{name:24} {n:3} steps, {len(bad)} wrong", flush=True)
        for b in bad[:20]:
            print("    step %d %s: %s; wanted %s" % b, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
