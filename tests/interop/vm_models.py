"""The library of the field reports' virtual machine recipes, made by the stock compiler."""

import pathlib

import numpy as np


def weights():
    return np.arange(32, dtype="float32").reshape(8, 4) / 8


def build(folder, mode="bytecode"):
    """mm(x[n, 8], w[8, 4]), ident(x), tup(x) = (2x, (x*x, x)), resh(x[n, 8]) and big(x), which asks for 4 TB."""
    import tvm
    from tvm import relax
    from tvm.script import ir as I
    from tvm.script import relax as R
    from tvm.script import tirx as T

    @I.ir_module
    class Recipes:
        @R.function
        def mm(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
            return R.matmul(x, w)

        @R.function
        def ident(x: R.Any):
            return x

        @R.function
        def tup(x: R.Tensor(("n", 8), "float32")):
            return (R.add(x, x), (R.multiply(x, x), x))

        @R.function
        def resh(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            return R.reshape(x, R.shape([n * 8]))

        @R.function
        def big(x: R.Tensor((1,), "float32")):
            return R.zeros(R.shape([1 << 40]), "float32")

    out = pathlib.Path(folder) / f"recipes_{mode}.so"
    relax.build(Recipes, tvm.target.Target("llvm"), exec_mode=mode).export_library(str(out))
    return out
