"""Plays the client's side of a recorded conversation to a live server and compares what the server says.

Pointers in a recording are another machine's: each is mapped to what the server under test handed out in its place.
"""

import json
import pathlib
import struct

import wire

CAPTURES = pathlib.Path(__file__).resolve().parents[1] / "data" / "captures"
SMALL = {11: 65, 12: 66}  # a string or bytes says the same with and without its small form
OFFERED_ONLY_BY_US = {"tvm.rpc.server.GetCRTMaxPacketSize", "tvm.rpc.server.listdir"}
EVALUATOR = "<runtime.RPCTimeEvaluator>"
TOTAL_MEMORY = 14  # attribute whose value is the machine's


def load(name):
    text = (CAPTURES / f"{name}.json").read_text()
    return [(m["from"], bytes.fromhex(m["hex"]), m["note"]) for m in json.loads(text)]


def values_of(packed):
    """The values with their type index, as (index, value)."""
    reader = wire.Reader(packed)
    out = []
    for _ in range(reader.take("i")):
        index = struct.unpack_from("<i", packed, reader.at)[0]
        out.append((index, reader.value()))
    return out


def is_object(index, value):
    return index >= 64 and isinstance(value, int) and index not in (wire.FUNCTION, wire.MODULE)


class Replay:
    def __init__(self, address, key, ports=None):
        self.raw, self.key, self.ports = wire.Raw(address), key, ports or {}
        self.handles = {}  # recorded pointer -> what the server under test gave, newest last
        self.names = {}  # our handle -> what it is
        self.written = set()  # our data handles whose contents are known
        self.request = None  # of the answer that comes next: code, name of the callee, values
        self.compared = 0
        self.over = False  # the server has closed: what the client still says goes nowhere

    def play(self, name):
        with self.raw:
            for side, data, note in load(name):
                try:
                    if side == "server":
                        self.hear(data)
                    elif not self.over:
                        self.say(data)
                except (AssertionError, wire.Closed, TimeoutError) as e:
                    raise AssertionError(f"{name}, at '{note}': {e}") from e
        return self.compared

    # What the client said

    def say(self, data):
        if not data:
            self.raw.socket.shutdown(1)
        elif struct.unpack_from("<i", data)[0] == wire.MAGIC:
            options = data[8:].decode().split(" ", 1)[1:]
            wrong = data[8:].decode().startswith("client:wrong")
            key = " ".join([f"client:{'wrong' if wrong else self.key}", *options]).encode()
            self.raw.send(struct.pack("<ii", wire.MAGIC, len(key)) + key)
        elif len(data) == 8:
            self.raw.send(data)  # an empty packet
        else:
            self.raw.frame(struct.unpack_from("<i", data, 8)[0], self.translated(data[8:]))

    def translated(self, body):
        code, rest = struct.unpack_from("<i", body)[0], body[4:]
        self.request = (code, None, [])
        if code == wire.SHUTDOWN:
            return b""
        if code in (wire.COPY_TO_REMOTE, wire.COPY_FROM_REMOTE):
            handle = self.ours(struct.unpack_from("<Q", rest)[0])
            if code == wire.COPY_TO_REMOTE:
                self.written.add(handle)
            self.request = (code, handle, [])
            return struct.pack("<Q", handle) + rest[8:]
        head = b""
        if code == wire.CALL_FUNC:
            function = self.ours(struct.unpack_from("<Q", rest)[0])
            head, rest = struct.pack("<Q", function), rest[8:]
            self.request = (code, self.names.get(function), values_of(rest))
        elif code == wire.INIT_SERVER:
            size = 8 + struct.unpack_from("<Q", rest)[0]
            head, rest = rest[:size], rest[size:]
        else:
            self.request = (code, None, values_of(rest))
        return head + self.sequence(rest, freed=code == wire.FREE_HANDLE)

    def sequence(self, packed, freed=False):
        values = [self.value(index, value, freed) for index, value in values_of(packed)]
        if self.request[0] == wire.COPY_AMONG:
            self.written.add(values_of(wire.pack(*values))[1][1]["handle"])
        return self.raw_types(packed, values)

    def raw_types(self, packed, values):
        """Packs translated values; strings and bytes keep the form in which they were recorded."""
        out, reader = struct.pack("<i", len(values)), wire.Reader(packed)
        reader.take("i")
        for value in values:
            begin = reader.at
            reader.value()
            out += packed[begin:reader.at] if value is None else value.packed()
        return out

    def value(self, index, value, freed):
        """The value for our server, or None where the recorded bytes will do."""
        if index in (wire.POINTER, wire.FUNCTION, wire.MODULE) or is_object(index, value):
            handle = self.ours(value, freed)
            return wire.remote(handle) if is_object(index, value) else wire.Value(index, struct.pack("<Q", handle))
        if index == wire.VIEW:
            return wire.tensor(self.ours(value["handle"]), value["shape"], value["dtype"], value["device"],
                               value["offset"])
        if index == wire.INT and self.request[0] == wire.INIT_SERVER and self.ports:
            return wire.Value(wire.INT, struct.pack("<q", self.ports["inner"]))
        return None

    def ours(self, recorded, freed=False):
        known = self.handles.get(recorded)
        if not known:
            return recorded  # null, or a pointer that the probe made up
        return known.pop() if freed and len(known) > 1 else known[-1]

    def learn(self, recorded, given, name):
        self.handles.setdefault(recorded, []).append(given)
        self.names[given] = name

    # What the server said

    def hear(self, data):
        if not data:
            assert self.raw.at_end(), "the server keeps the connection open"
            self.over = True
            return
        first = struct.unpack_from("<i", data)[0]
        if first in (wire.SUCCESS, wire.MISMATCH):
            code = struct.unpack("<i", self.raw.receive(4))[0]
            assert code == first, f"handshake answered {code:#x}"
            if code == wire.SUCCESS:
                key = self.raw.receive(struct.unpack("<i", self.raw.receive(4))[0])
                assert key == b"server:" + self.key.encode()
            return
        code, body = struct.unpack_from("<i", data, 8)[0], data[12:]
        got_code, got = self.raw.read_frame()
        text = wire.Reader(got).values() if got_code == wire.EXCEPTION else ""
        assert got_code == code, f"answered with code {got_code} {text}, recorded is {code}"
        self.compared += 1
        if code == wire.COPY_ACK:
            assert len(got) == len(body)
            assert got == body or self.request[1] not in self.written, "copied bytes differ"
        elif code == wire.EXCEPTION:
            assert isinstance(text[0], str) and text[0]
        elif code == wire.RETURN:
            self.compare(values_of(body), values_of(got))

    def compare(self, want, got):
        assert len(want) == len(got), f"{len(got)} values, recorded are {len(want)}"
        name = f"<{self.request[1]}>"
        if self.request[0] == wire.GET_GLOBAL_FUNC:
            name = self.request[2][0][1]
        for (want_index, want_value), (index, value) in zip(want, got):
            assert index == want_index, f"type {index}, recorded is {want_index}"
            if index == wire.POINTER:
                assert bool(value) == bool(want_value) or name in OFFERED_ONLY_BY_US, f"pointer {value:#x} for {name}"
                if want_value:
                    self.learn(want_value, value, name)
            elif index == wire.VIEW:
                for field in ("device", "dtype", "shape", "offset"):
                    assert value[field] == want_value[field], f"{field} {value[field]}, not {want_value[field]}"
                self.learn(want_value["handle"], value["handle"], name)
                self.written.add(value["handle"])
            elif len(want) == 2 and value in SMALL and SMALL[value] == want_value:
                pass
            elif name == f"<{EVALUATOR}>":
                assert not isinstance(value, bytes) or len(value) == len(want_value)
            elif self.request[0] == wire.DEV_ATTR and self.request[2][1][1] == TOTAL_MEMORY:
                assert value > 0
            else:
                assert value == want_value, f"{value!r}, recorded is {want_value!r}"
