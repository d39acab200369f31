"""A plain socket that speaks the RPC wire, for conversations that no client library would start."""

import socket
import struct

MAGIC = 0xFF271
TRACKER_MAGIC = 0x2F271
SUCCESS, DUPLICATE, MISMATCH = 0xFF271, 0xFF272, 0xFF273

SHUTDOWN, INIT_SERVER, CALL_FUNC, RETURN, EXCEPTION = 1, 2, 3, 4, 5
COPY_FROM_REMOTE, COPY_TO_REMOTE, COPY_ACK, GET_GLOBAL_FUNC, FREE_HANDLE = 6, 7, 8, 9, 10
DEV_SET, DEV_ATTR, DEV_ALLOC, DEV_FREE, STREAM_SYNC, COPY_AMONG, ALLOC_SCOPE = 11, 12, 13, 14, 15, 16, 17

NONE, INT, BOOL, FLOAT, POINTER, DTYPE, DEVICE, VIEW, RAW_STR, RAW_BYTES = range(10)
SMALL_STR, SMALL_BYTES, STR, BYTES, FUNCTION, TENSOR, MODULE, REMOTE = 11, 12, 65, 66, 68, 70, 73, 115

CPU = (1, 0)
FLOAT32 = (2, 32, 1)
INT8 = (0, 8, 1)


class Value:
    """A value by its type index and the bytes behind it, for whatever Python types cannot say."""

    def __init__(self, index, payload=b""):
        self.index, self.payload = index, payload

    def packed(self):
        return struct.pack("<i", self.index) + self.payload


def pointer(handle):
    return Value(POINTER, struct.pack("<Q", handle))


def function(handle):
    return Value(FUNCTION, struct.pack("<Q", handle))


def module(handle):
    return Value(MODULE, struct.pack("<Q", handle))


def remote(handle):
    return boxed(REMOTE, REMOTE, struct.pack("<q", handle))


def device(kind=1, index=0):
    return Value(DEVICE, struct.pack("<ii", kind, index))


def dtype(code, bits, lanes=1):
    return Value(DTYPE, struct.pack("<BBH4x", code, bits, lanes))


def boxed(outer, inner, payload):
    return Value(outer, struct.pack("<I", inner) + payload)


def boxed_text(outer, inner, data):
    data = data.encode() if isinstance(data, str) else data
    return boxed(outer, inner, struct.pack("<Q", len(data)) + data)


def tensor_bytes(handle, shape, kind=FLOAT32, dev=CPU, offset=0):
    """A tensor as the body of a copy request holds it: no type index in front."""
    head = struct.pack("<QiiiBBH", handle, *dev, len(shape), *kind)
    return head + struct.pack(f"<{len(shape)}q", *shape) + struct.pack("<Q", offset)


def tensor(handle, shape, kind=FLOAT32, dev=CPU, offset=0):
    return Value(VIEW, tensor_bytes(handle, shape, kind, dev, offset))


def pack_value(value):
    if isinstance(value, Value):
        return value.packed()
    if value is None:
        return struct.pack("<i", NONE)
    if isinstance(value, bool):
        return struct.pack("<iq", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<iq", INT, value)
    if isinstance(value, float):
        return struct.pack("<id", FLOAT, value)
    if isinstance(value, str):
        data = value.encode()
        return struct.pack("<iQ", RAW_STR, len(data)) + data
    if isinstance(value, (bytes, bytearray)):
        index = SMALL_BYTES if len(value) <= 7 else BYTES
        return struct.pack("<iIQ", index, BYTES, len(value)) + bytes(value)
    raise TypeError(f"no wire form for {value!r}")


def pack(*values):
    return struct.pack("<i", len(values)) + b"".join(pack_value(v) for v in values)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        out = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return out if len(out) > 1 else out[0]

    def blob(self):
        size = self.take("Q")
        out = self.data[self.at:self.at + size]
        assert len(out) == size, f"{size} bytes announced, {len(out)} left"
        self.at += size
        return out

    def value(self):
        index = self.take("i")
        if index == NONE:
            return None
        if index in (INT, POINTER):
            return self.take("q" if index == INT else "Q")
        if index == BOOL:
            return bool(self.take("q"))
        if index == FLOAT:
            return self.take("d")
        if index == DTYPE:
            return self.take("BBH4x")
        if index == DEVICE:
            return self.take("ii")
        if index == VIEW:
            handle, kind, number, ndim, code, bits, lanes = self.take("QiiiBBH")
            shape = struct.unpack_from(f"<{ndim}q", self.data, self.at)
            self.at += 8 * ndim
            return {"handle": handle, "device": (kind, number), "dtype": (code, bits, lanes),
                    "shape": shape, "offset": self.take("Q")}
        if index in (FUNCTION, MODULE):
            return self.take("Q")
        if index == RAW_STR:
            return self.blob().decode()
        if index == RAW_BYTES:
            return self.blob()
        inner = self.take("I")
        if inner in (STR, BYTES):
            return self.blob().decode() if inner == STR else self.blob()
        assert inner == REMOTE, f"value of inner type {inner}"
        return self.take("q")

    def values(self):
        out = [self.value() for _ in range(self.take("i"))]
        assert self.at == len(self.data), f"{len(self.data) - self.at} bytes left in the frame"
        return out


class RemoteError(Exception):
    """The peer answered with an Exception; the text is its message."""


class Closed(Exception):
    """The peer closed the connection, or sent Shutdown."""


class Raw:
    """One connection to a server. Every wait ends after `timeout` seconds with an error."""

    def __init__(self, address, timeout=10.0):
        self.socket = socket.create_connection(address, timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Ends the connection by RST, as a peer that lost its state does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, size):
        out = b""
        while len(out) < size:
            try:
                part = self.socket.recv(min(size - len(out), 1 << 20))
            except ConnectionError as e:
                raise Closed(str(e)) from e
            if not part:
                raise Closed(f"closed after {len(out)} of {size} bytes")
            out += part
        return out

    def at_end(self):
        """True when the peer closes within the time limit without sending more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def hello(self, key="client:"):
        """Sends a handshake and gives (answer code, server key or None)."""
        data = key if isinstance(key, bytes) else key.encode()
        self.send(struct.pack("<ii", MAGIC, len(data)) + data)
        code = struct.unpack("<i", self.receive(4))[0]
        if code != SUCCESS:
            return code, None
        return code, self.receive(struct.unpack("<i", self.receive(4))[0]).decode()

    def frame(self, code, body=b""):
        self.send(struct.pack("<Qi", len(body) + 4, code) + body)

    def read_frame(self):
        """The next frame as (code, body); empty packets are skipped."""
        size = 0
        while size == 0:
            size = struct.unpack("<Q", self.receive(8))[0]
        body = self.receive(size)
        return struct.unpack_from("<i", body)[0], body[4:]

    def answer(self):
        """The values of a Return; an Exception raises RemoteError, a Shutdown Closed."""
        code, body = self.read_frame()
        if code == SHUTDOWN:
            raise Closed("the peer sent Shutdown")
        if code == COPY_ACK:
            return body
        values = Reader(body).values()
        if code == EXCEPTION:
            raise RemoteError(values[0])
        assert code == RETURN, f"answer of code {code}"
        return values

    def ask(self, code, body=b""):
        self.frame(code, body)
        return self.answer()

    def system(self, code, *values):
        """A system call: its answer is one value."""
        return self.ask(code, pack(*values))[0]

    def init(self, version="0.8.0", *constructor):
        return self.ask(INIT_SERVER, struct.pack("<Q", len(version)) + version.encode() + pack(*constructor))

    def get(self, name):
        handle = self.system(GET_GLOBAL_FUNC, name)
        assert handle, f"no function '{name}' on the server"
        return handle

    def call(self, handle, *values):
        """Calls a function by handle; gives (type index, result...)."""
        return self.ask(CALL_FUNC, struct.pack("<Q", handle) + pack(*values))

    def call_named(self, name, *values):
        return self.call(self.get(name), *values)

    def copy_from(self, tensor_body, size):
        return self.ask(COPY_FROM_REMOTE, tensor_body + struct.pack("<Q", size))

    def copy_to(self, tensor_body, data):
        return self.ask(COPY_TO_REMOTE, tensor_body + struct.pack("<Q", len(data)) + data)

    def load(self, data, name="lib.so"):
        """Uploads a library and loads it; gives the module's handle."""
        self.call_named("tvm.rpc.server.upload", name, data)
        return self.call_named("tvm.rpc.server.load_module", name)[1]

    def member(self, module_handle, name):
        """A function of a module, by handle."""
        return self.call_named("tvm.rpc.server.ModuleGetFunction", module(module_handle), name, True)[1]


def session(address, key="client:", timeout=10.0):
    """A Raw with the handshake and InitServer done."""
    raw = Raw(address, timeout)
    code, _ = raw.hello(key)
    assert code == SUCCESS, f"handshake answered {code:#x}"
    raw.init()
    return raw
