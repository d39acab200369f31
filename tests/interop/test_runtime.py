"""field-reports.md, sections 5 and 8: timing, thread choice and the functions that a server must have; and what
compiled code imports from the server's process."""

import pathlib
import platform
import struct
import subprocess
import time

import pytest

import wire

EVALUATOR_DEFAULTS = dict(number=1, repeat=1, min_repeat_ms=0, limit_zero=100, cooldown_ms=0, repeats_to_cooldown=1,
                          flush_bytes=0, preproc="")


@pytest.fixture
def raw(server):
    with wire.session(server.address) as connection:
        yield connection


@pytest.fixture
def probe_module(raw, probe):
    return raw.load(pathlib.Path(probe).read_bytes())


def evaluator(raw, module, name, **knobs):
    knobs = {**EVALUATOR_DEFAULTS, **knobs}
    return raw.call_named("runtime.RPCTimeEvaluator", wire.module(module), name, 1, 0, *knobs.values())[1]


def measure(raw, module, name, *arguments, **knobs):
    """Seconds per call, one number a repeat."""
    result = raw.call(evaluator(raw, module, name, **knobs), *arguments)[1]
    return list(struct.unpack(f"<{len(result) // 8}d", result))


def test_E01_a_function_that_takes_no_time_ends(raw, probe_module):
    began = time.monotonic()
    results = measure(raw, probe_module, "noargs", number=1, repeat=2, min_repeat_ms=100)
    assert len(results) == 2 and all(r > 0 for r in results)
    assert 0.2 <= time.monotonic() - began < 5.0


def test_E02_cool_down_waits_between_repeats_and_leaves_the_results_alone(raw, probe_module):
    began = time.monotonic()
    results = measure(raw, probe_module, "sleep_ms", 1, repeat=4, cooldown_ms=200, repeats_to_cooldown=2)
    assert time.monotonic() - began >= 0.4
    assert len(results) == 4 and all(r >= 0.001 for r in results)


def test_E04_too_few_arguments_are_named_and_the_session_goes_on(raw, probe_module):
    with pytest.raises(wire.RemoteError, match="Expected 12 but got 7 arguments"):
        raw.call_named("runtime.RPCTimeEvaluator", wire.module(probe_module), "noargs", 1, 0, 1, 1, 0)
    assert raw.call(raw.member(probe_module, "noargs")) == [wire.INT, 42]


def test_E04_a_cool_down_of_every_zero_repeats_is_refused(raw, probe_module):
    with pytest.raises(wire.RemoteError, match="repeats_to_cooldown must not be 0"):
        evaluator(raw, probe_module, "noargs", cooldown_ms=10, repeats_to_cooldown=0)


def test_E04_an_unknown_function_is_named_at_once(raw, probe_module):
    with pytest.raises(wire.RemoteError, match="Cannot find nothing_here"):
        evaluator(raw, probe_module, "nothing_here")
    with pytest.raises(wire.RemoteError, match="Cannot find no.preproc"):
        evaluator(raw, probe_module, "noargs", preproc="no.preproc")


def test_E05_only_the_calls_are_counted(raw, probe_module):
    results = measure(raw, probe_module, "sleep_ms", 20, number=2, repeat=5)
    assert all(r >= 0.020 for r in results)
    assert min(results) < 0.021


def test_D05_thread_choice_belongs_to_one_session(server, raw):
    default = raw.call_named("runtime.NumThreads")[1]
    raw.call_named("runtime.config_threadpool", -1, 2)
    assert raw.call_named("runtime.NumThreads") == [wire.INT, 2]
    raw.call_named("runtime.config_threadpool", 0, 0)
    assert raw.call_named("runtime.NumThreads") == [wire.INT, default]
    raw.call_named("runtime.config_threadpool", 1, 1)
    raw.frame(wire.SHUTDOWN)
    raw.close()
    with wire.session(server.address) as next_session:
        assert next_session.call_named("runtime.NumThreads") == [wire.INT, default]


# server-functions.md, The functions
NAMES = """
tvm.rpc.server.workpath tvm.rpc.server.upload tvm.rpc.server.download tvm.rpc.server.remove tvm.rpc.server.listdir
tvm.rpc.server.load_module tvm.rpc.server.download_linked_module tvm.rpc.server.ImportModule
tvm.rpc.server.ModuleGetFunction tvm.rpc.server.GetCRTMaxPacketSize ffi.SystemLib runtime.RPCTimeEvaluator rpc.Connect
rpc.LocalSession rpc.testing.GetShapeSize rpc.testing.GetShapeElem runtime.GetDeviceAttr runtime.Device_StreamCreate
runtime.Device_StreamFree runtime.Device_SetStream runtime.Device_StreamSync runtime.Device_StreamSyncFromTo
runtime.TVMSetStream __tvm_set_device runtime.TVMTensorAllocWithScope runtime.TVMTensorCreateView
runtime.TVMTensorCopyFromBytes runtime.TVMTensorCopyToBytes runtime.TVMTensorCopyFromTo
runtime.TVMTensorIsStorageShared runtime.config_threadpool runtime.NumThreads
tvm.runtime.threading.set_current_thread_affinity runtime.RuntimeEnabled device_api.cpu runtime.SaveParams
runtime.SaveParamsToFile runtime.LoadParams runtime.LoadParamsFromFile runtime.timer.cpu
tvm.contrib.random.random_fill tvm.contrib.random.random_fill_for_measure tvm.contrib.random.uniform
tvm.contrib.random.normal tvm.contrib.random.randint tvm.contrib.sort.argsort tvm.contrib.sort.sort
tvm.contrib.sort.topk tvm.contrib.sort.argsort_nms cache_flush_cpu_non_first_arg
ffi.Module.load_from_bytes.const_loader ffi.Module.load_from_bytes.static_library
ffi.Module.load_from_bytes.relax.VMExecutable ffi.Module.load_from_file.relax.VMExecutable
ffi.Module.load_from_file.so relax.ExecutableLoadFromFile runtime.ModuleLoadStaticLibrary
runtime.LoadMetaDataFromJSON vm.builtin.alloc_shape_heap vm.builtin.match_shape vm.builtin.make_shape
vm.builtin.alloc_storage vm.builtin.alloc_tensor vm.builtin.reshape vm.builtin.null_value vm.builtin.invoke_closure
""".split()


def test_D06_every_name_of_a_server_resolves_on_a_fresh_session(raw):
    missing = [name for name in NAMES if not raw.system(wire.GET_GLOBAL_FUNC, name)]
    assert not missing


def test_D06_the_tuners_functions_work(raw):
    handle = raw.ask(wire.ALLOC_SCOPE, wire.pack(wire.tensor(0, [64]), None))[0]
    filled = wire.tensor(handle, [64])
    raw.call_named("tvm.contrib.random.random_fill_for_measure", filled)
    raw.call_named("cache_flush_cpu_non_first_arg", filled, filled)
    values = struct.unpack("<64f", raw.copy_from(wire.tensor_bytes(handle, [64]), 256))
    assert all(1 <= v < 10 for v in values) and len(set(values)) > 1


HOST_CODE = r"""
#include <stdint.h>
typedef struct { int32_t type_index, zero; int64_t v_int64; } Any;
typedef struct { void* sync; int32_t num_task; } Env;
extern void* TVMBackendAllocWorkspace(int, int, uint64_t, int, int);
extern int TVMBackendFreeWorkspace(int, int, void*);
extern int TVMBackendParallelLaunch(int (*)(int, Env*, void*), void*, int);
extern int TVMBackendParallelBarrier(int, Env*);
extern int TVMBackendAnyListSetPackedArg(void*, int, Any*, int);
extern int TVMBackendAnyListResetItem(void*, int);
extern int TVMBackendAnyListMoveFromPackedReturn(void*, int, Any*, int);
extern float __gnu_h2f_ieee(uint16_t);
extern uint16_t __gnu_f2h_ieee(float);
static int add(int task, Env* env, void* data) {
  __atomic_fetch_add((int64_t*)data, task + 1, __ATOMIC_SEQ_CST);
  return TVMBackendParallelBarrier(task, env);
}
/* () -> workers * (workers + 1) / 2, summed by the tasks */
int __tvm_ffi_sum_tasks(void* self, Any* args, int n, Any* ret) {
  int64_t* sum = TVMBackendAllocWorkspace(1, 0, 8, 0, 64);
  *sum = 0;
  if (TVMBackendParallelLaunch(add, sum, 0) != 0) return -1;
  ret->type_index = 1;
  ret->v_int64 = *sum;
  return TVMBackendFreeWorkspace(1, 0, sum);
}
/* () -> 7 when the symbols of registers and half precision do what they should */
int __tvm_ffi_check(void* self, Any* args, int n, Any* ret) {
  Any list[2] = {{1, 0, 5}, {0, 0, 0}}, call[2] = {{0, 0, 0}, {1, 0, 6}};
  int good = 0;
  TVMBackendAnyListSetPackedArg(list, 0, call, 0);
  good |= call[0].v_int64 == 5;
  TVMBackendAnyListMoveFromPackedReturn(list, 1, call, 1);
  TVMBackendAnyListResetItem(list, 0);
  good |= (list[1].v_int64 == 6 && list[0].type_index == 0) << 1;
  good |= (__gnu_h2f_ieee(0x3e00) == 1.5f && __gnu_f2h_ieee(1.5f) == 0x3e00) << 2;
  ret->type_index = 1;
  ret->v_int64 = good;
  return 0;
}
"""


def test_compiled_code_finds_every_symbol_it_imports(raw, tmp_path):
    source, library = tmp_path / "host.c", tmp_path / "host.so"
    source.write_text(HOST_CODE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, source], check=True)
    module = raw.load(library.read_bytes())
    assert raw.call(raw.member(module, "check")) == [wire.INT, 7]
    for workers in (1, 2):
        raw.call_named("runtime.config_threadpool", 0, workers)
        assert raw.call(raw.member(module, "sum_tasks")) == [wire.INT, workers * (workers + 1) // 2]


HALF_CODE = r"""
#include <stdint.h>
typedef struct { int32_t type_index, zero; union { int64_t v_int64; double v_float64; }; } Any;
typedef uint16_t (*InInteger)(double);
typedef _Float16 (*InVector)(double);
extern void* dlsym(void*, const char*);
/* (double) -> 1 when the half comes back in both registers that compilers look at */
int __tvm_ffi_narrow(void* self, Any* args, int n, Any* ret) {
  void* f = dlsym(0, "__truncdfhf2");
  const double value = args[0].v_float64;
  const _Float16 half = ((InVector)f)(value);
  uint16_t bits;
  __builtin_memcpy(&bits, &half, 2);
  ret->type_index = 1;
  ret->v_int64 = (double)half == value && ((InInteger)f)(value) == bits;
  return 0;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have an instruction for it")
def test_halves_come_back_where_old_and_new_compilers_look(raw, tmp_path):
    source, library = tmp_path / "half.c", tmp_path / "half.so"
    source.write_text(HALF_CODE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, source], check=True)
    narrow = raw.member(raw.load(library.read_bytes()), "narrow")
    for value in (1.5, -2.25, 65504.0, 2.0**-24):
        assert raw.call(narrow, value) == [wire.INT, 1]


def test_a_library_that_cannot_run_is_named_and_the_session_goes_on(raw, probe, tmp_path):
    data = bytearray(pathlib.Path(probe).read_bytes())
    data[18:20] = struct.pack("<H", 40)  # the machine number of 32-bit ARM
    with pytest.raises(wire.RemoteError, match=r"wrong architecture: the file is for ARM .*, this machine is "):
        raw.load(bytes(data), "arm.so")
    with pytest.raises(wire.RemoteError, match="file cut short"):
        raw.load(pathlib.Path(probe).read_bytes()[:3000], "cut.so")
    source, library = tmp_path / "lacking.c", tmp_path / "lacking.so"
    source.write_text("extern int symbol_of_nobody(void); int __tvm_ffi_f() { return symbol_of_nobody(); }")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    with pytest.raises(wire.RemoteError, match="'lacking.so': it needs the symbols 'symbol_of_nobody'"):
        raw.load(library.read_bytes(), "lacking.so")
    module = raw.load(pathlib.Path(probe).read_bytes(), "good.so")
    assert raw.call(raw.member(module, "noargs")) == [wire.INT, 42]
