"""Runs calls on the stock runtime and writes down what it answered: cases.json and io.npz of a sample folder."""

import json
import os
import subprocess
import tarfile

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm_ffi import Shape


def rng(seed):
    return np.random.default_rng(seed)


def f32(r, *shape):
    return r.standard_normal(shape).astype("float32")


class Var:
    """A value that an earlier step saved under a name."""

    def __init__(self, name):
        self.name = name


class Vm:
    """A function of the sample's VM, as a value."""

    def __init__(self, name):
        self.name = name


class On:
    """An array on another CPU device."""

    def __init__(self, device, array):
        self.device, self.array = device, array


class Cases:
    """Runs calls on the stock runtime and writes down what it answered."""

    def __init__(self, folder, library=None, devices=None, tolerance=None):
        self.folder, self.steps, self.arrays, self.saved = folder, [], {}, {}
        self.library, self.tolerance = library, tolerance
        self.devices = devices or [[1, 0, 2]]
        self.vm = None
        if library:
            mod = tvm.runtime.load_module(os.path.join(folder, library))
            self.vm = mod["vm_load_executable"]()
            self.vm["vm_initialization"](*[v for d in self.devices for v in d])

    def tensor(self, value):
        device = 0
        if not isinstance(value, np.ndarray):
            device = value.device.index
            dtype = str(value.dtype)
            if dtype == "bfloat16" or dtype.startswith("float8"):
                value = np.from_dlpack(
                    tvm_ffi.get_global_func("runtime.TVMTensorCreateView")(
                        value, value.shape, tvm.DataType("uint16" if dtype == "bfloat16" else "uint8"), 0
                    )
                ).copy()
            else:
                value = value.numpy()
        else:
            dtype = str(value.dtype)
        key = "t%d" % len(self.arrays)
        self.arrays[key] = (
            value.view("uint%d" % (8 * value.itemsize))
            if value.dtype.kind == "V" or dtype in ("bfloat16",) or dtype.startswith("float8")
            else value
        )
        out = {"tensor": key, "dtype": dtype, "shape": list(value.shape)}
        return dict(out, device=device) if device else out

    def describe(self, v):
        if isinstance(v, Var):
            return {"var": v.name}
        if isinstance(v, Vm):
            return {"vm_function": v.name}
        if isinstance(v, On):
            return dict(self.tensor(v.array), device=v.device)
        if v is None:
            return {"none": 1}
        if isinstance(v, (bool, np.bool_)):
            return {"bool": bool(v)}
        if isinstance(v, int):
            return {"int": v}
        if isinstance(v, float):
            return {"float": v}
        if isinstance(v, (bytes, bytearray)):
            return {"bytes": bytes(v).hex()}
        if isinstance(v, Shape):
            return {"shape": list(v)}
        if isinstance(v, (tvm_ffi.core.DataType, tvm.DataType)) or type(v).__name__ == "dtype":
            return {"dtype": str(v)}
        if isinstance(v, str):
            return {"str": str(v)}
        if isinstance(v, (np.ndarray, tvm.runtime.Tensor)):
            return self.tensor(v)
        if isinstance(v, (tuple, list, tvm_ffi.Array)):
            return {"tuple": [self.describe(e) for e in v]}
        return {"object": type(v).__name__}

    def actual(self, v, device=None):
        if isinstance(v, Var):
            return self.saved[v.name]
        if isinstance(v, Vm):
            return self.vm[v.name]
        if isinstance(v, np.ndarray):
            if v.dtype == ml_dtypes.bfloat16:
                t = tvm.runtime.empty(v.shape, "bfloat16", device or tvm.cpu())
                tvm_ffi.get_global_func("runtime.TVMTensorCreateView")(
                    t, t.shape, tvm.DataType("uint16"), 0
                ).copyfrom(v.view("uint16"))
                return t
            return tvm.runtime.tensor(v, device or tvm.cpu())
        if isinstance(v, On):
            return tvm.runtime.tensor(v.array, tvm.cpu(v.device))
        if isinstance(v, (tuple, list)) and not isinstance(v, Shape):
            return tvm_ffi.Array([self.actual(e) for e in v])
        return v

    def call(self, name, *args, where="vm", save=None, mutates=(), note=None, flaw=None):
        """where: vm (a VM function), method (a method of the VM module), global (a global function)."""
        real = [self.actual(a) for a in args]
        step = {"where": where, "name": name, "args": [self.describe(a) for a in args]}
        if note:
            step["note"] = note
        if flaw:
            step["flaw"] = flaw
        try:
            f = tvm_ffi.get_global_func(name) if where == "global" else self.vm[name]
            out = f(*real)
        except Exception as e:  # the answer is the error
            step["error"] = {"kind": type(e).__name__, "text": str(e).split("\n")[0][:300]}
        else:
            step["result"] = self.describe(out)
            if save:
                step["save"] = save
                self.saved[save] = out
            if mutates:
                step["after"] = {str(i): self.tensor(real[i]) for i in mutates}
        self.steps.append(step)
        return self

    def write(self):
        doc = {
            "library": self.library,
            "devices": self.devices,
            "compare": self.tolerance or "exact",
            "steps": self.steps,
        }
        with open(os.path.join(self.folder, "cases.json"), "w") as f:
            json.dump(doc, f, indent=1)
        np.savez(os.path.join(self.folder, "io.npz"), **self.arrays)
        errors = sum("error" in s for s in self.steps)
        return "%d calls (%d errors)" % (len(self.steps), errors)


def export(ex, folder, stem, forms=("so",)):
    os.makedirs(folder, exist_ok=True)
    for form in forms:
        path = os.path.join(folder, "%s.%s" % (stem, form))
        if form == "vmexe":
            ex.mod.write_to_file(path)
        elif form == "o":
            tar = os.path.join(folder, stem + ".parts.tar")
            ex.export_library(tar)
            with tarfile.open(tar) as t:
                # Debian 12's Python 3.11.2 has no filters yet.
                t.extractall(folder + "/parts", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            names = sorted(os.listdir(folder + "/parts"))
            subprocess.run(["ld", "-r", "-o", path] + [folder + "/parts/" + n for n in names], check=True)
            for n in names:
                os.remove(folder + "/parts/" + n)
            os.rmdir(folder + "/parts")
            os.remove(tar)
        else:
            ex.export_library(path)
