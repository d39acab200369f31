"""The sample of global functions alone: builtins, sampling, weights by name, sorting."""

import json
import os

import numpy as np
import tvm
import tvm_ffi
from tvm_ffi import Shape

from samples.recorder import Cases, Var, f32, rng


def sample_builtins(out):
    """Global functions alone: arguments, results, errors."""
    folder = os.path.join(out, "builtins")
    os.makedirs(folder, exist_ok=True)
    c = Cases(folder)
    r = rng(121)
    x, heap = f32(r, 2, 3), np.array([5, 6, 7, 8], "int64")

    def g(name, *args, **kw):
        c.call("vm.builtin." + name, *args, where="global", **kw)

    g("make_shape", heap, 3, 0, 10, 1, 0, 1, 2)
    g("make_shape", None, 2, 0, 1, 0, -5)
    g("make_shape", heap, 1, 9, 0)
    g("match_shape", x, heap, 2, 1, 3, 3, 0, "ctx", mutates=(1,))
    g("match_shape", x, heap, 2, 0, 2, 2, 0, "ctx")
    g("match_shape", x, heap, 2, 0, 9, 2, 0, "ctx")
    g("match_shape", x, heap, 3, 0, 2, 0, 3, 0, 1, "ctx")
    g("match_shape", Shape([5, 6]), heap, 2, 3, 0, 3, 1, "ctx")
    g("match_shape", "text", heap, 1, 0, 1, "ctx")
    g("match_prim_value", 5, heap, 3, 0, "ctx")
    g("match_prim_value", 4, heap, 3, 0, "ctx")
    g("match_prim_value", 4, heap, 1, 3, "ctx", mutates=(1,))
    g("match_prim_value", 4, heap, 0, 5, "ctx")
    g("make_prim_value", heap, 1, 2)
    g("make_prim_value", heap, 0, -9)
    for args in (
        (x, 2, tvm.DataType("float32"), "ctx"),
        (x, -1, None, "ctx"),
        (x, 3, "ctx"),
        (x, 2, tvm.DataType("int8"), "ctx"),
        (Shape([1]), 1, None, "ctx"),
        (None, 1, None, "ctx"),
    ):
        g("check_tensor_info", *args)
    for args in (
        (Shape([1, 2]), 2, "ctx"),
        (Shape([1, 2]), -1, "ctx"),
        (Shape([1, 2]), 3, "ctx"),
        ((1, 2), 2, "ctx"),
        (4, 2, "ctx"),
    ):
        g("check_shape_info", *args)
    for v in (1, 2.5, True, "text", x):
        for d in ("int64", "float32", "bool", "uint8"):
            g("check_prim_value_info", v, tvm.DataType(d), "ctx")
    for args in (((x, x), 2, "ctx"), ((x,), 2, "ctx"), (x, 1, "ctx"), (Shape([1]), 1, "ctx")):
        g("check_tuple_info", *args)
    for v in ("short", "a string too long for the small form", x, None):
        g("check_string_info", v, "ctx")
    for v in (True, False, 0, 5, -1, 2.5, "text"):
        g("read_if_cond", v)
    for d in ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float32"):
        g("read_if_cond", np.array(1).astype(d))
        g("tensor_to_shape", np.array([2, 3]).astype(d))
    g("tensor_to_shape", np.zeros((1, 1), "int64"))
    g("shape_of", x)
    g("shape_of", Shape([1]))
    for s in ([3, 2], [6], [2], [7], [1, 1, 6]):
        g("reshape", x, Shape(s))
    g("reshape", "text", Shape([1]))
    g("copy", x)
    g("null_value")
    g("to_device", x, 1, 0)
    g("to_device", x, 1, 0, "global")
    g("to_device", x, 1, 0, "texture")
    g("make_tuple", 1, None, x, "a", Shape([2]))
    for i in (0, 1, 2, -1):
        g("tuple_getitem", (4, x), i)
    g("tuple_getitem", x, 0)
    c.call("vm.builtin.make_tuple", 1, 2, where="global", save="t")
    g("tuple_reset_item", Var("t"), 0)
    g("tuple_getitem", Var("t"), 0)
    g("tuple_reset_item", Var("t"), 2)
    g("ensure_zero_offset", x)
    # sampling
    p = np.exp(f32(r, 1, 40) * 2)
    p = (p / p.sum()).astype("float32")
    logits = f32(r, 1, 40) * 3
    for u in (0.0, 0.1, 0.37, 0.5, 0.9, 0.999):
        for top in (0.1, 0.5, 0.95, 1.0):
            g("sample_top_p_from_prob", p, top, u)
            g("sample_top_p_from_logits", logits, 0.7, top, u)
        g("sample_top_p_from_logits", logits, 0.0, 0.9, u)
    g("sample_top_p_from_prob", np.full((1, 4), np.nan, "float32"), 0.9, 0.5)
    g("sample_top_p_from_prob", p.astype("float64"), 0.9, 0.5)
    g("sample_top_p_from_prob", f32(r, 2, 4), 0.9, 0.5)
    g("multinomial_from_uniform", np.repeat(p, 3, axis=0), np.array([[0.0], [0.5], [0.999]], "float32"))
    for penalty in (1.5, 0.5):
        g("apply_repetition_penalty", logits.copy(), np.array([3, 4, 3], "int32"), penalty, mutates=(0,))
    g(
        "apply_presence_and_frequency_penalty",
        logits.copy(),
        np.array([1, 2], "int32"),
        np.array([3, 1], "int32"),
        0.25,
        0.5,
        mutates=(0,),
    )
    g("apply_softmax_with_temperature", logits.copy(), 0.8, mutates=(0,))
    g(
        "apply_softmax_with_temperature",
        -np.abs(logits) - 200,
        0.8,
        mutates=(0,),
        flaw="NaN when every logit is far below zero",
    )
    g("apply_softmax_with_temperature", logits.astype("float16"), 0.8)
    # the older cache
    row = np.arange(4, dtype="float32").reshape(1, 4)
    g("attention_kv_cache_create", row, Shape([2, 4]), -1, save="old")
    for k in range(3):
        g("attention_kv_cache_append", Var("old"), row + 10 * k)
        g("attention_kv_cache_view", Var("old"))
    g("attention_kv_cache_view", Var("old"), Shape([3, 4]))
    g("attention_kv_cache_array_popn", (Var("old"),), 2)
    g("attention_kv_cache_view", Var("old"))
    g("attention_kv_cache_update", Var("old"), np.full((2, 4), 9, "float32"))
    g("attention_kv_cache_view", Var("old"))
    g("attention_kv_cache_append", Var("old"), np.zeros((1, 5), "float32"))
    g("attention_kv_cache_append", Var("old"), np.zeros((1, 4), "int32"))
    g("attention_kv_cache_array_popn", (Var("old"),), 50)
    g("attention_kv_cache_array_clear", (Var("old"),))
    g("attention_kv_cache_create", np.zeros((2, 4), "float32"), Shape([8, 4]), 0, save="win")
    for k in range(7):
        g("attention_kv_cache_window_override", Var("win"), row + 10 * k, 4)
    g("attention_kv_cache_view", Var("win"))
    g("attention_kv_cache_create", np.zeros((2, 4), "float32"), Shape([8, 4]), 0, save="sink")
    for k in range(9):
        g("attention_kv_cache_window_override_with_sinks", Var("sink"), row + 10 * k, 6, 2)
    g("attention_kv_cache_view", Var("sink"))
    # weights by name
    g("tensor_cache.update", "w_0", x)
    g("tensor_cache.update", "w_0", x)
    g("tensor_cache.update", "w_0", x + 1, True)
    g("tensor_cache.update", "w_1", heap)
    g("tensor_cache.get", "w_0")
    g("tensor_cache.get", "absent")
    g("param_array_from_cache", "w", -1)
    g("param_array_from_cache", "w", 1)
    g("param_array_from_cache", "w", 3)
    g("param_array_from_cache_by_name", ("w_1", "w_0"))
    g("param_array_from_cache_by_name", ("absent",))
    g("param_array_from_cache_by_name_unpacked", "w_1", "w_0")
    g("param_array_from_cache_by_name_unpacked", "w_1", 5)
    g("tensor_cache.remove", "w_0")
    g("tensor_cache.remove", "w_0")
    g("param_array_from_cache", "w", -1)
    g("tensor_cache.clear")
    g("tensor_cache.get", "w_1")
    # extras
    for d in ("float32", "float64", "int32", "int64", "float16"):
        v = (f32(r, 3, 7) * 9).astype(d)
        v[0, 1] = v[0, 5]
        for axis in (0, 1, -1):
            for up in (True, False):
                c.call(
                    "tvm.contrib.sort.argsort", v, np.zeros(v.shape, "int32"), axis, up, where="global", mutates=(1,)
                )
                c.call("tvm.contrib.sort.sort", v, np.zeros(v.shape, d), axis, up, where="global", mutates=(1,))
        c.call(
            "tvm.contrib.sort.topk",
            v,
            np.zeros((3, 2), d),
            np.zeros((3, 2), "int64"),
            2,
            1,
            "both",
            False,
            where="global",
            mutates=(1, 2),
        )
    c.call("tvm.contrib.sort.argsort", x.astype("uint32"), np.zeros((2, 3), "int32"), 1, True, where="global")
    c.call("tvm.contrib.sort.argsort", x, np.zeros((2, 3), "int8"), 1, True, where="global")
    c.call("tvm.contrib.sort.sort", x, np.zeros((2, 3), "int32"), 1, True, where="global")
    c.call(
        "tvm.contrib.sort.argsort_nms",
        x,
        np.array([2, 3], "int32"),
        np.zeros((2, 3), "int32"),
        1,
        False,
        where="global",
        mutates=(2,),
    )
    c.call("runtime.TVMTensorIsStorageShared", x, x, where="global")
    with open(os.path.join(folder, "params.bin"), "wb") as f:
        f.write(tvm.runtime.save_param_dict({"a": tvm.runtime.tensor(x), "b": tvm.runtime.tensor(heap)}))
    shards(os.path.join(folder, "cache"), {"p_0": x, "p_1": heap, "p_2": f32(r, 4)})
    c.steps.append(
        {
            "where": "global",
            "name": "vm.builtin.tensor_cache.load",
            "args": [{"folder": "cache"}, {"int": 1}, {"int": 0}],
            "result": {"none": 1},
        }
    )
    tvm_ffi.get_global_func("vm.builtin.tensor_cache.load")(os.path.join(folder, "cache"), 1, 0)
    g("param_array_from_cache", "p", -1)
    g("tensor_cache.clear")
    return c.write()


def shards(folder, tensors):
    """A weights folder: one raw shard, the last tensor stored as bfloat16."""
    os.makedirs(folder, exist_ok=True)
    raw, records = b"", []
    for i, (name, v) in enumerate(tensors.items()):
        fmt, body = "raw", v.tobytes()
        if i == len(tensors) - 1:
            fmt, body = "f32-to-bf16", (v.view("uint32") >> 16).astype("uint16").tobytes()
        records.append(
            {
                "name": name,
                "shape": list(v.shape),
                "dtype": str(v.dtype),
                "format": fmt,
                "nbytes": len(body),
                "byteOffset": len(raw),
            }
        )
        raw += body
    with open(os.path.join(folder, "shard0.bin"), "wb") as f:
        f.write(raw)
    doc = {
        "metadata": {},
        "records": [{"dataPath": "shard0.bin", "format": "raw-shard", "nbytes": len(raw), "records": records}],
    }
    with open(os.path.join(folder, "tensor-cache.json"), "w") as f:
        json.dump(doc, f)
