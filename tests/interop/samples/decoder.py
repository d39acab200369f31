"""A tiny decoder with a paged cache, and the calls that drive it; the RNN state."""

import os

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, TIRPagedKVCache
from tvm.script import tirx as T
from tvm_ffi import Shape

from samples.recorder import Cases, Var, export, f32, rng

LAYERS, HIDDEN, QHEADS, KVHEADS, HEAD, VOCAB = 2, 32, 4, 2, 8, 64


class Block(nn.Module):
    def __init__(self):
        self.norm1 = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.qkv = nn.Linear(HIDDEN, (QHEADS + 2 * KVHEADS) * HEAD, bias=False)
        self.out = nn.Linear(QHEADS * HEAD, HIDDEN, bias=False)
        self.norm2 = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.up = nn.Linear(HIDDEN, 48, bias=False)
        self.down = nn.Linear(48, HIDDEN, bias=False)

    def forward(self, h, cache, layer):
        b, s, _ = h.shape
        qkv = self.qkv(self.norm1(h)).reshape(b, s, QHEADS + 2 * KVHEADS, HEAD)
        a = cache.attention_with_fused_qkv(layer, qkv, QHEADS, sm_scale=HEAD**-0.5)
        h = h + self.out(a.reshape(b, s, QHEADS * HEAD))
        return h + self.down(nn.op.silu(self.up(self.norm2(h))))


class Decoder(nn.Module):
    def __init__(self, rope_mode=1):
        self.rope_mode = rope_mode
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def step(self, ids: nn.Tensor, cache: PagedKVCache):
        h = self.embed(ids)
        for i, block in enumerate(self.blocks):
            h = block(h, cache, i)
        return self.head(self.norm(h)), cache

    def make_cache(
        self, max_batch: tirx.Var, max_total: tirx.Var, chunk: tirx.Var, page: tirx.Var, sliding: tirx.Var
    ):
        return TIRPagedKVCache(
            attn_kind="mha",
            max_batch_size=max_batch,
            max_total_seq_len=max_total,
            prefill_chunk_size=chunk,
            page_size=page,
            support_sliding_window=sliding,
            layer_partition=relax.ShapeExpr([0, LAYERS]),
            num_hidden_layers=LAYERS,
            num_attention_heads=QHEADS,
            num_key_value_heads=KVHEADS,
            qk_head_dim=HEAD,
            v_head_dim=HEAD,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=self.rope_mode,
            rope_scale=1,
            rope_theta=10000,
            rope_scaling={},
            rope_ext_factors=tirx.IntImm("int64", 0),
            rotary_dim=HEAD,
            enable_disaggregation=False,
            dtype="float32",
            target=tvm.target.Target("llvm"),
        )


@relax.expr_functor.mutator
class SwapTreeKernels(relax.PyExprMutator):
    """The stock CPU cache class passes its two tree kernels in the wrong order (20 and 21): put them right."""

    def visit_call_(self, call):
        args = list(call.args)
        if args and isinstance(args[0], relax.ExternFunc) and args[0].global_symbol.endswith("kv_cache_create"):
            args[21], args[22] = args[22], args[21]  # args[0] is the callee
            return relax.Call(call.op, args, call.attrs, call.ty_args)
        return call


def decoder_module(rope_mode):
    model = Decoder(rope_mode)
    plain = {"param_mode": "packed", "effect_mode": "none"}
    spec = {
        "step": {
            "ids": nn.spec.Tensor(["batch", "seq"], "int32"),
            "cache": nn.spec.Object(object_type=PagedKVCache),
            "$": plain,
        },
        "make_cache": {
            "max_batch": int,
            "max_total": int,
            "chunk": int,
            "page": int,
            "sliding": int,
            "$": {"param_mode": "none", "effect_mode": "none"},
        },
    }
    mod, params = model.export_tvm(spec=spec)
    mod["make_cache"] = SwapTreeKernels(mod).visit_expr(mod["make_cache"])
    r = rng(7)
    weights = [
        (
            f32(r, *[int(d) for d in p.shape]) * (0.3 if len(p.shape) > 1 else 0.1) + (0 if len(p.shape) > 1 else 1)
        ).astype("float32")
        for _, p in params
    ]
    return mod, weights


def sample_decoder(out):
    done = []
    for rope, name, sliding in ((1, "decoder", 0), (2, "decoder_sliding", 1)):
        folder = os.path.join(out, name)
        mod, weights = decoder_module(rope)
        export(relax.build(mod, "llvm"), folder, "decoder", ("so", "vmexe") if name == "decoder" else ("so",))
        c = Cases(folder, "decoder.so", tolerance={"rtol": 1e-5, "atol": 1e-5})
        c.call("vm.builtin.make_tuple", *weights, where="global", save="w")
        c.call("make_cache", *[Shape([v]) for v in (4, 160, 64, 16, sliding)], save="kv")
        drive(c, sliding)
        done.append("%s: %s" % (name, c.write()))
    return "; ".join(done)


def drive(c, sliding):
    kv, w = Var("kv"), Var("w")
    r = rng(101)

    def g(name, *args, **kw):
        c.call("vm.builtin." + name, kv, *args, where="global", **kw)

    def forward(seqs, lengths, batched=False):
        g("kv_state_begin_forward", Shape(seqs), Shape(lengths))
        total = sum(lengths)
        ids = r.integers(0, VOCAB, (total,)).astype("int32")
        shape = (total, 1) if batched else (1, total)
        g("attention_kv_cache_get_query_positions")
        c.call("step", ids.reshape(shape), kv, w)
        g("kv_state_end_forward")
        counts()

    def counts():
        g("attention_kv_cache_get_num_available_pages")
        g("attention_kv_cache_get_total_sequence_length")
        g("attention_kv_cache_empty")

    def debug(seq, begin, end):
        shape = (LAYERS, end - begin, KVHEADS, HEAD)
        g(
            "attention_kv_cache_debug_get_kv",
            seq,
            begin,
            end,
            np.zeros(shape, "float32"),
            np.zeros(shape, "float32"),
            mutates=(4, 5),
        )

    counts()
    g("kv_state_add_sequence", 0)
    g("kv_state_add_sequence", 0, note="twice")
    g("kv_state_begin_forward", Shape([5]), Shape([1]), note="unknown sequence")
    if sliding:
        g("attention_kv_cache_enable_sliding_window_for_seq", 0, 20, 6)
        g("attention_kv_cache_enable_sliding_window_for_seq", 0, 20, 6, note="twice")
        for n in (18, 7, 1, 1, 13, 1):
            forward([0], [n])
            g("attention_kv_cache_get_sequence_length", 0)
        debug(0, 0, 20)
    else:
        g("attention_kv_cache_enable_sliding_window_for_seq", 0, 20, 6, note="not a sliding cache")
        forward([0], [20])
        for _ in range(2):
            forward([0], [1], batched=True)
        debug(0, 0, 22)
        g("kv_state_add_sequence", 1)
        forward([1], [16])
        g("kv_state_fork_sequence", 1, 2, -1)
        g("kv_state_fork_sequence", 0, 3, 17)
        counts()
        forward([0, 2, 3], [3, 2, 5])
        forward([0, 1, 2, 3], [1, 1, 1, 1], batched=True)
        debug(3, 0, 23)
        g("kv_state_popn", 0, 4)
        g("kv_state_popn", 0, 400)
        g("kv_state_popn", 2, 5)
        forward([0, 2], [1, 1], batched=True)
        # No chain among the trees: stock then forgets to move what was accepted.
        g("kv_state_begin_forward", Shape([0, 2]), Shape([3, 4]), Shape([-1, 0, 0, -1, 0, 0, 2]))
        c.call("step", r.integers(0, VOCAB, (1, 7)).astype("int32"), kv, w)
        g("kv_state_end_forward")
        g("attention_kv_cache_commit_accepted_token_tree_nodes", Shape([0, 2]), Shape([2, 9]))
        g("attention_kv_cache_commit_accepted_token_tree_nodes", Shape([0, 2]), Shape([2, 3]))
        g("attention_kv_cache_commit_accepted_token_tree_nodes", Shape([0, 2]), Shape([0, 0]))
        counts()
        forward([0, 2], [1, 1], batched=True)
        debug(0, 15, 24)
        # a chain given as a tree, kept up to its third node
        g("kv_state_begin_forward", Shape([1]), Shape([5]), Shape([-1, 0, 1, 2, 3]))
        c.call("step", r.integers(0, VOCAB, (1, 5)).astype("int32"), kv, w)
        g("attention_kv_cache_commit_accepted_token_tree_nodes", Shape([1]), Shape([2]))
        counts()
        debug(1, 10, 20)
        g("attention_kv_cache_get_layout_hash")
        g("attention_kv_cache_get_checkpoint_metadata", 1, note="only sequence 0 can be saved")
        g("attention_kv_cache_get_checkpoint_metadata", 0, save="meta")
        group = np.zeros((1, 2, 2, KVHEADS, 16, HEAD), "float32")
        for layer in (0, 1):
            g("attention_kv_cache_export_page_group", 0, layer, group, mutates=(3,))
            c.call(
                "runtime.TVMTensorCreateView",
                tvm.runtime.tensor(c.arrays[c.steps[-1]["after"]["3"]["tensor"]]),
                Shape(group.shape),
                tvm.DataType("float32"),
                0,
                where="global",
                save="g%d" % layer,
            )
        c.call("make_cache", *[Shape([v]) for v in (4, 160, 64, 16, 0)], save="kv2")
        kv2 = Var("kv2")
        for name, args in (
            ("import_page_group", (0, 0, Var("g0"))),
            ("prepare_import", (0, "{}")),
            ("prepare_import", (0, Var("meta"))),
            ("get_sequence_length", (0,)),
            ("import_page_group", (0, 0, Var("g0"))),
            ("import_page_group", (0, 0, Var("g0"))),
            ("finish_import", (0,)),
            ("import_page_group", (0, 1, Var("g1"))),
            ("finish_import", (0,)),
            ("get_sequence_length", (0,)),
        ):
            c.call("vm.builtin.attention_kv_cache_" + name, kv2, *args, where="global")
        for cache in (kv, kv2):
            c.call("vm.builtin.kv_state_begin_forward", cache, Shape([0]), Shape([1]), where="global")
            c.call("step", np.array([[9]], "int32"), cache, w)
            c.call("vm.builtin.kv_state_end_forward", cache, where="global")
        g("kv_state_begin_forward", Shape([0]), Shape([0]), note="nothing to append")
    g("kv_state_remove_sequence", 0)
    g("kv_state_remove_sequence", 0, note="twice")
    counts()
    g("kv_state_clear")
    counts()


def sample_rnn(out):
    """State kernels with the calling convention of vm.builtin.rnn_state_create."""
    folder = os.path.join(out, "rnn_state")
    seqs, history, shape = 3, 4, (2, 3)

    @T.prim_func(s_tir=True)
    def get_state(s: T.handle, q: T.handle, h: T.handle, o: T.handle):
        T.func_attr({"global_symbol": "get_state"})
        n = T.int32()
        S = T.match_buffer(s, (seqs, history, 2, 3), "float32")
        Q = T.match_buffer(q, (n,), "int32")
        H = T.match_buffer(h, (n,), "int32")
        O = T.match_buffer(o, (n, 2, 3), "float32")
        for i, j, k in T.grid(n, 2, 3):
            with T.sblock("get"):
                a, b, d = T.axis.remap("SSS", [i, j, k])
                O[a, b, d] = S[Q[a], H[a], b, d]

    @T.prim_func(s_tir=True)
    def set_state(s: T.handle, q: T.handle, h: T.handle, v: T.handle):
        T.func_attr({"global_symbol": "set_state"})
        n = T.int32()
        S = T.match_buffer(s, (seqs, history, 2, 3), "float32")
        Q = T.match_buffer(q, (n,), "int32")
        H = T.match_buffer(h, (n,), "int32")
        V = T.match_buffer(v, (n, 2, 3), "float32")
        for i, j, k in T.grid(n, 2, 3):
            with T.sblock("set"):
                a, b, d = T.axis.remap("SSS", [i, j, k])
                S[Q[a], (H[a] + 1) % history, b, d] = V[a, b, d]

    lib = tvm.tirx.build(tvm.IRModule({"get_state": get_state, "set_state": set_state}), target="llvm")
    os.makedirs(folder, exist_ok=True)
    lib.export_library(os.path.join(folder, "rnn.so"))
    mod = tvm.runtime.load_module(os.path.join(folder, "rnn.so"))
    c = Cases(folder)
    c.library = "rnn.so"
    c.saved = {"get": mod["get_state"], "set": mod["set_state"]}
    c.steps.append({"where": "library", "name": "get_state", "save": "get"})
    c.steps.append({"where": "library", "name": "set_state", "save": "set"})
    init = f32(rng(111), *shape)

    def g(name, *args, **kw):
        c.call("vm.builtin." + name, *args, where="global", **kw)

    st = Var("st")
    g("rnn_state_create", 2, seqs, history, [Var("get")], [Var("set")], [init], save="st")
    g("rnn_state_create", 0, seqs, history, [Var("get")], [Var("set")], [init])
    g("rnn_state_create", 2, seqs, 0, [Var("get")], [Var("set")], [init])
    g("rnn_state_get", st, 0, 0, np.zeros((1,) + shape, "float32"), note="before begin_forward")
    for s in range(3):
        g("kv_state_add_sequence", st, s)
    g("kv_state_add_sequence", st, 9, note="full")

    def forward(ids, lengths, write=True):
        g("kv_state_begin_forward", st, Shape(ids), Shape(lengths))
        for layer in range(2):
            g("rnn_state_get", st, layer, 0, np.zeros((len(ids),) + shape, "float32"), mutates=(3,))
            if write:
                g("rnn_state_set", st, layer, 0, f32(rng(sum(ids) + layer + len(c.steps)), len(ids), *shape))
        g("kv_state_end_forward", st)
        for s in ids:
            g("rnn_state_debug_get", st, 1, 0, s)

    forward([0, 2], [1, 1])
    forward([2], [1])
    g("kv_state_popn", st, 2, 1)
    g("rnn_state_debug_get", st, 1, 0, 2)
    g("kv_state_popn", st, 2, 2)
    g("kv_state_popn", st, 2, -1)
    forward([0, 1], [5, 1])
    g("kv_state_popn", st, 0, 1, note="a prefill cannot be undone")
    g("kv_state_remove_sequence", st, 1)
    g("kv_state_fork_sequence", st, 0, 7, -1)
    forward([7, 0], [1, 1])
    for _ in range(5):
        forward([7], [1])
    g("kv_state_popn", st, 7, 3)
    g("rnn_state_debug_get", st, 1, 0, 7)
    g("kv_state_popn", st, 7, 1)
    g("rnn_state_debug_get", st, 0, 0, 55)
    g("kv_state_begin_forward", st, Shape([0]), Shape([3]), Shape([-1, 0, 0]), note="a tree")
    g("kv_state_clear", st)
    g("rnn_state_debug_get", st, 0, 0, 0)
    return c.write()
