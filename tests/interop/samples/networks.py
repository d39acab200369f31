"""The models of the samples, each as small as what it shows allows."""

import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from samples.recorder import f32, rng


def mlp(symbolic=True):
    r = rng(1)
    bb = relax.BlockBuilder()
    n = tirx.Var("n", "int64") if symbolic else 4
    x = relax.Var("x", R.Tensor([n, 16], "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            h = bb.emit(relax.op.matmul(x, relax.const(f32(r, 16, 32) / 4)))
            h = bb.emit(relax.op.add(h, relax.const(f32(r, 32))))
            h = bb.emit(relax.op.nn.relu(h))
            h = bb.emit(relax.op.matmul(h, relax.const(f32(r, 32, 10) / 6)))
            h = bb.emit(relax.op.add(h, relax.const(f32(r, 10))))
            out = bb.emit_output(relax.op.nn.softmax(h, axis=-1))
        bb.emit_func_output(out)
    return bb.get()


def cnn():
    r = rng(2)
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor([1, 3, 16, 16], "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            h = bb.emit(relax.op.nn.conv2d(x, relax.const(f32(r, 8, 3, 3, 3) / 5), padding=1))
            h = bb.emit(relax.op.add(h, relax.const(f32(r, 1, 8, 1, 1))))
            h = bb.emit(relax.op.nn.relu(h))
            h = bb.emit(relax.op.nn.max_pool2d(h, pool_size=2, strides=2))
            h = bb.emit(relax.op.nn.conv2d(h, relax.const(f32(r, 12, 8, 3, 3) / 8), strides=2, padding=1))
            h = bb.emit(relax.op.nn.relu(h))
            h = bb.emit(relax.op.nn.avg_pool2d(h, pool_size=2, strides=2))
            h = bb.emit(relax.op.reshape(h, (1, 48)))
            out = bb.emit_output(relax.op.matmul(h, relax.const(f32(r, 48, 5) / 7)))
        bb.emit_func_output(out)
    return bb.get()


@I.ir_module
class Dynamic:
    @R.function
    def join(x: R.Tensor(("a", "k"), "float32"), y: R.Tensor(("b", "k"), "float32")):
        return R.concat([x, y], axis=0)

    @R.function
    def sizes(x: R.Tensor(("a", "b"), "int32")):
        a, b = T.int64(), T.int64()
        return R.shape([a * 2, a + b, b // 3, 7])

    @R.function
    def fold(x: R.Tensor(("a", "b"), "float32")):
        a, b = T.int64(), T.int64()
        y = R.reshape(x, R.shape([a * b]))
        return R.add(y, y)

    @R.function
    def square(x: R.Tensor(("a", "a"), "float32")) -> R.Tensor(("a", "a"), "float32"):
        return R.matmul(x, x)

    @R.function
    def pairs(x: R.Tensor(("a",), "float32"), y: R.Tensor(("2 * a",), "float32")):
        a = T.int64()
        z = R.reshape(y, R.shape([a, 2]))
        return R.add(R.sum(z, axis=1), x)

    @R.function
    def cast(x: R.Any):
        a = T.int64()
        y = R.match_cast(x, R.Tensor((a, 2), "float32"))
        return R.add(y, y)

    @R.function
    def from_shape(s: R.Shape(["a", "b"]), n: R.Prim("int64")):
        a, b = T.int64(), T.int64()
        return R.zeros(R.shape([a, b]), "int32"), n


@I.ir_module
class Control:
    @R.function
    def pick(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        if c:
            r = R.add(x, x)
        else:
            r = R.multiply(x, x)
        return r

    @R.function
    def nested(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")):
        if c:
            if d:
                q = R.add(x, R.const(1.0, "float32"))
            else:
                q = R.add(x, R.const(2.0, "float32"))
            r = q
        else:
            r = R.negative(x)
        return r

    @R.function
    def countdown(n: R.Tensor((), "int64"), acc: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        stop = R.less_equal(n, R.const(0, "int64"))
        if stop:
            r = acc
        else:
            m = R.subtract(n, R.const(1, "int64"))
            more = R.add(acc, acc)
            r = Control.countdown(m, more)
        return r


@I.ir_module
class Closures:
    @R.function
    def body(x: R.Tensor((3,), "float32"), bound: R.Tensor((3,), "float32"), scale: R.Tensor((), "float32")):
        return R.add(R.multiply(x, scale), bound)

    @R.function
    def make(b: R.Tensor((3,), "float32"), s: R.Tensor((), "float32")):
        b2 = R.add(b, b)
        c = R.make_closure(Closures.body, (b2, s))
        return c

    @R.function
    def run(x: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32"), s: R.Tensor((), "float32")):
        c = R.make_closure(Closures.body, (b, s))
        r = R.invoke_pure_closure(c, (x,), ty_args=(R.Tensor((3,), "float32")))
        return r

    @R.function
    def apply(f: R.Any, x: R.Tensor((3,), "float32")):
        r = R.invoke_pure_closure(f, (x,), ty_args=(R.Tensor((3,), "float32")))
        return r


@I.ir_module
class Tuples:
    @R.function
    def swap(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "int32"))):
        return (t[1], t[0])

    @R.function
    def deep(x: R.Tensor((2,), "float32")):
        y = R.add(x, x)
        return ((y, (R.negative(y), R.shape([4, 5]))), R.prim_value(9), R.str("text"), ())

    @R.function
    def split(x: R.Tensor((6, 2), "float32")):
        s = R.split(x, 3, axis=0)
        return (s[0], R.add(s[1], s[2]))

    @R.function
    def prims(a: R.Prim("int64"), b: R.Prim("float32"), c: R.Prim("bool")):
        return (a, b, c)

    @R.function
    def same(x: R.Any):
        return x


def packed_calls():
    """Calls by name: builtins, extras and names that a VM resolves among the globals."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor([4, 6], "float32"))
    for name, op in (
        ("sorted", lambda v: relax.op.sort(v, axis=-1)),
        ("order", lambda v: relax.op.argsort(v, axis=0)),
        ("top3", lambda v: relax.op.topk(v, k=3, axis=1, ret_type="both", largest=True)),
        ("top2values", lambda v: relax.op.topk(v, k=2, axis=0, ret_type="values", largest=False)),
    ):
        p = relax.Var("x", R.Tensor([4, 6], "float32"))
        with bb.function(name, [p]):
            bb.emit_func_output(bb.emit(op(p)))
    with bb.function("shape_of_by_name", [x]):
        bb.emit_func_output(
            bb.emit(relax.Call(relax.ExternFunc("vm.builtin.shape_of"), [x], ty_args=[relax.ShapeType(ndim=2)]))
        )
    return bb.get()


def python_ops():
    """Operators that the stock runtime has only in Python: a native server needs its own."""
    bb = relax.BlockBuilder()
    for name, kw in (
        ("plain", {}),
        ("index", {"return_index": True}),
        ("all", {"return_index": True, "return_inverse": True, "return_counts": True}),
        ("unsorted", {"sorted": False}),
        ("unsorted_all", {"sorted": False, "return_index": True, "return_inverse": True, "return_counts": True}),
        ("rows", {"axis": 0}),
        ("columns_all", {"axis": 1, "return_index": True, "return_inverse": True, "return_counts": True}),
    ):
        p = relax.Var("x", R.Tensor([3, 4], "int32"))
        with bb.function("unique_" + name, [p]):
            bb.emit_func_output(bb.emit(relax.op.unique(p, **kw)))
    p = relax.Var("x", R.Tensor([3, 4], "int32"))
    with bb.function("nonzero", [p]):
        bb.emit_func_output(bb.emit(relax.op.nonzero(p)))
    s = relax.Var("s", R.Shape(ndim=3))
    with bb.function("shape_to_tensor", [s]):
        bb.emit_func_output(bb.emit(relax.op.shape_to_tensor(s)))
    c, v = relax.Var("c", R.Tensor([], "bool")), relax.Var("v", R.Tensor([2], "float32"))
    with bb.function("guard", [c, v], pure=False):
        bb.emit(relax.op.assert_op(c, [v], format="wrong: {}"))
        bb.emit_func_output(v)
    v = relax.Var("v", R.Tensor([2], "float32"))
    with bb.function("show", [v], pure=False):
        bb.emit(relax.op.print(v, format="value {}"))
        bb.emit_func_output(v)
    return bb.get()


@I.ir_module
class Threads:
    """Parallel loops, a work buffer too large for the stack, half precision, an assertion inside the loop."""

    @T.prim_func(s_tir=True)
    def rows(A: T.Buffer((64, 512), "float32"), B: T.Buffer((64,), "float32")):
        tmp = T.sblock_alloc_buffer((64, 512), "float32")
        for i in T.parallel(64):
            for j in range(512):
                with T.sblock("double"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    tmp[vi, vj] = A[vi, vj] * T.float32(2)
        for i in T.parallel(64):
            for j in range(512):
                with T.sblock("sum"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + tmp[vi, vj]

    @T.prim_func(s_tir=True)
    def halves(A: T.Buffer((64, 512), "float16"), B: T.Buffer((64, 512), "float16")):
        for i in T.parallel(64):
            for j in range(512):
                with T.sblock("root2"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.sqrt(A[vi, vj] * A[vi, vj] + T.float16(1))

    @R.function
    def main(x: R.Tensor((64, 512), "float32")):
        y = R.call_tir(Threads.rows, (x,), out_ty=R.Tensor((64,), "float32"))
        return y

    @R.function
    def half(x: R.Tensor((64, 512), "float16")):
        y = R.call_tir(Threads.halves, (x,), out_ty=R.Tensor((64, 512), "float16"))
        return y


@I.ir_module
class TwoCpus:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((3, 4), "float32"), z: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            a = R.matmul(x, y)
            a = R.hint_on_device(a, tvm.cpu(0))
            b: R.Tensor((2, 4), "float32", "llvm:1") = R.to_vdevice(a, "llvm:1")
            c = R.matmul(b, z)
            R.output(c)
        return c
