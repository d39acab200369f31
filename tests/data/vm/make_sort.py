"""Writes sort.txt: calls of the stock runtime's sort functions with their results.

Run with a Python that has apache-tvm. One call a line: function, then name=value fields; tensors
are dtype:shape:hex.
"""
import pathlib

import numpy as np
import tvm
import tvm_ffi

rng = np.random.default_rng(7)


def text(t):
    a = t.numpy()
    return f"{a.dtype}:{','.join(map(str, a.shape))}:{a.tobytes().hex()}"


def make(dtype, shape):
    # Few distinct values, so that the order of equal ones shows.
    return tvm.runtime.tensor(rng.integers(0, 9, size=shape).astype(dtype))


def zeros(dtype, shape):
    return tvm.runtime.tensor(np.zeros(shape, dtype))


lines = []


def call(name, args, outputs, **fields):
    tvm_ffi.get_global_func("tvm.contrib.sort." + name)(*args)
    shown = {"input": text(args[0]), **fields}
    for i, output in enumerate(outputs):
        shown[f"output{i}"] = text(output)
    lines.append(name + " " + " ".join(f"{k}={v}" for k, v in shown.items()))


SHAPES = [((7,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 4, 3), 1), ((2, 2, 6), 1)]
for shape, axis in SHAPES:
    for up in (0, 1):
        for dtype in ("float32", "float64", "float16", "int32", "int64"):
            x, y = make(dtype, shape), zeros(dtype, shape)
            call("sort", (x, y, axis, bool(up)), [y], axis=axis, up=up)
        for out in ("int32", "int64", "float32", "float64"):
            x, y = make("float32", shape), zeros(out, shape)
            call("argsort", (x, y, axis, bool(up)), [y], axis=axis, up=up)
        for dtype in ("float32", "uint8", "int8"):
            for k in (0, 1, 2):
                n = shape[axis] if k < 1 else k
                small = tuple(n if i == axis else d for i, d in enumerate(shape))
                x, v, i = make(dtype, shape), zeros(dtype, small), zeros("int64", small)
                call("topk", (x, v, i, k, axis, "both", bool(up)), [v, i], axis=axis, up=up, k=k, kind="both")
                call("topk", (x, i, k, axis, "indices", bool(up)), [i], axis=axis, up=up, k=k, kind="indices")
                call("topk", (x, v, k, axis, "values", bool(up)), [v], axis=axis, up=up, k=k, kind="values")
        rows = tuple(d for i, d in enumerate(shape) if i != axis)
        x, y = make("float32", shape), zeros("int32", shape)
        c = tvm.runtime.tensor(rng.integers(0, shape[axis] + 1, size=rows or (1,)).astype("int32"))
        call("argsort_nms", (x, c, y, axis, bool(up)), [y], axis=axis, up=up, counts=text(c))

pathlib.Path(__file__).with_name("sort.txt").write_text("\n".join(lines) + "\n")
print(len(lines), "calls")
