"""The samples that are programs: artefacts and calls with the results of the stock runtime."""

import os
import struct

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import relax as R
from tvm_ffi import Shape

from samples.networks import Closures, Control, Dynamic, Threads, Tuples, TwoCpus, cnn, mlp, packed_calls, python_ops
from samples.recorder import Cases, On, Var, export, f32, rng


def sample_mlp(out):
    mod, done = mlp(), []
    for mode in ("bytecode", "compiled"):
        folder = os.path.join(out, "mlp_" + mode)
        export(relax.build(mod, "llvm", exec_mode=mode), folder, "mlp", ("so", "o", "tar", "vmexe"))
        c = Cases(folder, "mlp.so")
        r = rng(11)
        for n in (1, 4, 7):
            c.call("main", f32(r, n, 16))
        x = f32(r, 2, 16)
        c.call("main", note="too few arguments").call("main", x, x, note="too many arguments")
        c.call("main", f32(r, 2, 15)).call("main", x.astype("float64")).call("main", f32(r, 2, 16, 1)).call("main", 3)
        stateful(c, "main", x)
        done.append(c.write())
    return "; ".join(done)


def stateful(c, name, *args):
    m = dict(where="method")
    c.call("invoke_stateful", name, **m).call("get_output", name, **m).call("set_input", name, *args[:-1], **m)
    c.call("set_input", name, *args, **m).call("invoke_stateful", name, **m).call("get_output_arity", name, **m)
    c.call("get_output", name, **m).call("get_output", name, 0, **m).call("get_output", name, 99, **m)
    c.call("get_function_arity", name, **m).call("get_function_param_name", name, 0, **m)
    c.call("get_function_param_name", name, 50, **m).call("set_input", "absent", *args, **m)
    c.call("save_function", name, "saved", True, *args, **m).call("saved")
    c.call("save_function", name, "saved", False, *args, **m).call("saved", note="saved without its result")
    c.call("save_function", "absent", "saved2", True, **m)


def sample_cnn(out):
    folder = os.path.join(out, "cnn")
    export(relax.build(cnn(), "llvm"), folder, "cnn")
    c = Cases(folder, "cnn.so")
    for s in (3, 4):
        c.call("main", f32(rng(s), 1, 3, 16, 16))
    return c.write()


def both_modes(out, name, mod, body):
    done = []
    for mode in ("bytecode", "compiled"):
        folder = os.path.join(out, name + "_" + mode)
        export(relax.build(mod, "llvm", exec_mode=mode), folder, name, ("so", "vmexe"))
        c = Cases(folder, name + ".so")
        body(c)
        done.append(c.write())
    return "; ".join(done)


def sample_dynamic(out):
    def body(c):
        r = rng(21)
        c.call("join", f32(r, 2, 3), f32(r, 5, 3)).call("join", f32(r, 0, 3), f32(r, 1, 3)).call(
            "join", f32(r, 2, 3), f32(r, 2, 4)
        )
        c.call("sizes", np.zeros((5, 7), "int32")).call("fold", f32(r, 3, 4)).call("square", f32(r, 3, 3)).call(
            "square", f32(r, 3, 4)
        )
        c.call("pairs", f32(r, 4), f32(r, 8)).call("pairs", f32(r, 4), f32(r, 9)).call("cast", f32(r, 3, 2)).call(
            "cast", f32(r, 3, 3)
        )
        c.call("cast", f32(r, 3)).call("cast", "text").call("from_shape", Shape([2, 3]), 5).call(
            "from_shape", Shape([2, 3, 4]), 5
        )
        c.call("from_shape", [2, 3], 5).call("from_shape", Shape([2, 3]), 2.5)
        c.call("get_output_arity", "join", where="method")

    return both_modes(out, "dynamic", Dynamic, body)


def sample_control(out):
    def body(c):
        x = f32(rng(31), 3)
        for b in (True, False):
            c.call("pick", np.array(b), x)
            for d in (True, False):
                c.call("nested", np.array(b), np.array(d), x)
        for n in (0, 1, 5, 40):
            c.call("countdown", np.array(n, "int64"), x)
        c.call("pick", np.array(1, "int32"), x)

    return both_modes(out, "control", Control, body)


def sample_closures(out):
    def body(c):
        r = rng(41)
        x, b, s = f32(r, 3), f32(r, 3), np.array(2.5, "float32")
        c.call("run", x, b, s).call("make", b, s, save="c").call("invoke_closure", Var("c"), x, where="method")
        c.call("apply", Var("c"), x).call("invoke_closure", Var("c"), x, x, where="method")
        c.call("invoke_closure", x, x, where="method").call("apply", 5, x).call(
            "vm.builtin.check_func_info", Var("c"), "", where="global"
        )

    return both_modes(out, "closures", Closures, body)


def sample_tuples(out):
    def body(c):
        r = rng(51)
        a, i = f32(r, 2), np.arange(3, dtype="int32")
        c.call("swap", (a, i)).call("swap", (a,)).call("swap", (i, a)).call("swap", a).call("split", f32(r, 6, 2))
        c.call("prims", 5, 2.5, True).call("prims", 5, 2, 1).call("prims", 5.5, 2.5, True).call("prims", a, 2.5, True)
        for v in (
            7,
            -2.5,
            True,
            None,
            "short",
            "a string too long for the small form",
            a,
            Shape([1, 2]),
            tvm.DataType("bfloat16"),
            (a, (i,)),
            b"\x00raw",
        ):
            c.call("same", v)
        c.call("deep", a)
        m = dict(where="method")
        c.call("set_input", "deep", a, **m).call("invoke_stateful", "deep", **m).call("get_output_arity", "deep", **m)
        for idx in ((), (0,), (0, 0), (0, 1), (0, 1, 0), (0, 1, 1), (1,), (2,), (3,), (4,), (-1,), (1, 0)):
            c.call("get_output", "deep", *idx, **m).call("get_output_arity", "deep", *idx, **m)

    return both_modes(out, "tuples", Tuples, body)


def constants_builder():
    """Every kind of constant, by the instruction builder."""
    b = relax.ExecBuilder()
    r = rng(61)
    values = {
        "f32": tvm.runtime.tensor(f32(r, 2, 3)),
        "f64": tvm.runtime.tensor(r.standard_normal(4)),
        "f16": tvm.runtime.tensor(f32(r, 5).astype("float16")),
        "bool": tvm.runtime.tensor(np.array([True, False, True])),
        "i8": tvm.runtime.tensor(np.array([-3, 4], "int8")),
        "u16": tvm.runtime.tensor(np.array([65535], "uint16")),
        "i64": tvm.runtime.tensor(np.array([[1 << 40]], "int64")),
        "scalar": tvm.runtime.tensor(np.array(1.5, "float32")),
        "empty": tvm.runtime.tensor(np.zeros((0, 4), "float32")),
        "shape": Shape([3, 0, 9]),
        "noshape": Shape([]),
        "dtype": tvm.DataType("float8_e4m3fn"),
        "dtype4": tvm.DataType("float32x4"),
        "text": "a string",
        "notext": "",
        "bigint": (1 << 55),
        "negint": -(1 << 60),
        "smallint": 42,
        "float": -2.5,
    }
    for name, v in values.items():
        with b.function(name, num_inputs=0):
            b.emit_call("vm.builtin.copy", args=[b.convert_constant(v)], dst=b.r(0))
            b.emit_ret(b.r(0))
    with b.function("immediates", num_inputs=0):
        b.emit_call(
            "vm.builtin.make_tuple",
            args=[b.imm(0), b.imm((1 << 55) - 1), b.imm(-((1 << 55) - 1)), b.void_arg()],
            dst=b.r(0),
        )
        b.emit_ret(b.r(0))
    with b.function("function_value", num_inputs=1):
        b.emit_call("vm.builtin.invoke_closure", args=[b.vm_state(), b.f("vm.builtin.copy"), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("no_result", num_inputs=0):
        b.emit_call("vm.builtin.null_value", args=[])
        b.emit_ret(b.void_arg())
    with b.function("loop", num_inputs=2):
        # while the first argument is true: run the body once, then take the second as the condition
        b.emit_call("vm.builtin.read_if_cond", args=[b.r(0)], dst=b.r(2))
        b.emit_if(b.r(2), 4)
        b.emit_call("vm.builtin.copy", args=[b.r(1)], dst=b.r(3))
        b.emit_call("vm.builtin.copy", args=[b.r(3)], dst=b.r(0))
        b.emit_goto(-4)
        b.emit_ret(b.r(0))
    return b.get(), list(values)


def end_of_functions(data):
    """Byte offset after the function table of an executable."""

    def num(at):
        return struct.unpack_from("<Q", data, at)[0]

    at = 16 + num(8)
    count, at = num(at), at + 8
    for _ in range(count):
        at += 4
        at += 8 + num(at) + 32
        names, at = num(at), at + 8
        for _ in range(names):
            at += 8 + num(at)
    return at


def sample_constants(out):
    folder = os.path.join(out, "constants")
    ex, names = constants_builder()
    export(ex, folder, "constants", ("vmexe",))
    path = os.path.join(folder, "constants.vmexe")
    with open(path, "rb") as f:
        data = f.read()
    at = end_of_functions(data)  # here stands the count of memory scopes
    scope = struct.pack("<QqQ", 1, 0, 6) + b"global"
    for name, body in (
        ("scoped", data[:at] + scope + data[at + 8 :]),
        ("v1", struct.pack("<Q", 0xD225DE2F4214151D) + data[8:at] + data[at + 8 :]),
    ):
        with open(os.path.join(folder, name + ".vmexe"), "wb") as f:
            f.write(body)
    c = Cases(folder)
    c.library = "constants.vmexe"
    c.vm = tvm_ffi.get_global_func("relax.ExecutableLoadFromFile")(os.path.join(folder, c.library))[
        "vm_load_executable"
    ]()
    c.vm["vm_initialization"](1, 0, 2)
    for name in names + ["immediates", "no_result"]:
        c.call(name)
    c.call("function_value", "through a function value").call("loop", True, False).call("loop", False, True)
    return c.write()


def sample_packed(out):
    folder = os.path.join(out, "packed")
    export(relax.build(packed_calls(), "llvm"), folder, "packed")
    c = Cases(folder, "packed.so")
    x = f32(rng(71), 4, 6)
    x[1, 2] = x[1, 4]
    for name in ("sorted", "order", "top3", "top2values", "shape_of_by_name"):
        c.call(name, x)
    return c.write()


def sample_python_ops(out):
    folder = os.path.join(out, "python_ops")
    export(relax.build(python_ops(), "llvm"), folder, "python_ops")
    c = Cases(folder, "python_ops.so")
    x = np.array([[3, 0, 3, 1], [0, 0, 7, 1], [3, 0, 3, 1]], "int32")
    for name in ("plain", "index", "all", "unsorted", "unsorted_all", "rows", "columns_all"):
        c.call("unique_" + name, x)
    v = np.array([1.5, -2], "float32")
    c.call("nonzero", x).call("shape_to_tensor", Shape([4, 5, 6])).call("guard", np.array(True), v).call(
        "guard", np.array(False), v
    )
    return c.write()


def sample_const_loader(out):
    """Bound parameters put a constant loader between the executable and the library."""
    folder = os.path.join(out, "const_loader")
    ex = relax.build(mlp(), "llvm", params={"extra": tvm.runtime.tensor(f32(rng(5), 3))})
    export(ex, folder, "mlp")
    c = Cases(folder, "mlp.so")
    c.call("main", f32(rng(6), 3, 16))
    return c.write()


def sample_scopes(out):
    """A constant with a memory scope, from the compiler: the second version of the executable's format."""
    folder = os.path.join(out, "scopes")
    device = tvm.relax.global_info.VDevice("llvm", 0, "global")
    bb, r = relax.BlockBuilder(), rng(8)
    x = relax.Var("x", R.Tensor([2, 3], "float32"))
    data = tvm.runtime.tensor(f32(r, 2, 3))
    scoped = tvm.ir.GenericConst(data, relax.TensorType([2, 3], "float32", vdevice=device))
    with bb.function("main", [x]):
        y = bb.emit(relax.op.add(x, scoped))
        bb.emit_func_output(bb.emit(relax.op.multiply(y, relax.const(f32(r, 2, 3)))))
    mod = bb.get()
    mod.update_global_info("vdevice", [device])
    export(relax.build(mod, "llvm"), folder, "scopes", ("so", "vmexe"))
    c = Cases(folder, "scopes.so")
    c.call("main", f32(r, 2, 3))
    return c.write()


def sample_threads(out):
    folder = os.path.join(out, "threads")
    export(relax.build(Threads, "llvm"), folder, "threads")
    c = Cases(folder, "threads.so")
    x = f32(rng(81), 64, 512)
    c.call("main", x).call("half", x.astype("float16"))
    return c.write()


def sample_two_cpus(out):
    folder = os.path.join(out, "two_cpus")
    mod = relax.transform.LegalizeOps()(relax.transform.RealizeVDevice()(TwoCpus))
    export(tvm.compile(mod), folder, "two_cpus", ("so", "vmexe"))
    c = Cases(folder, "two_cpus.so", devices=[[1, 0, 2], [1, 1, 2]])
    r = rng(91)
    c.call("main", f32(r, 2, 3), f32(r, 3, 4), On(1, f32(r, 4, 5)))
    c.call("main", f32(r, 2, 3), f32(r, 3, 4), f32(r, 4, 5), note="the last argument is on the wrong device")
    return c.write()
