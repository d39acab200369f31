#!/usr/bin/env python3
"""Makes the seed corpora of fuzz_handshake, fuzz_frame and fuzz_packed from the recorded conversations.

  tests/fuzz/make_corpus.py     rewrites tests/fuzz/corpus/<target>/seed_*.bin; other files there stay
"""

import json
import pathlib
import struct

TESTS = pathlib.Path(__file__).resolve().parents[1]
STREAM_BYTES_MAX = 2000
SEQUENCE_BYTES_MAX = 300
HELLO_MAGICS = (0xFF271, 0xFF272, 0xFF273)
INIT_SERVER, CALL_FUNC, COPY_ACK = 2, 3, 8


def messages():
    for path in sorted((TESTS / "data" / "captures").glob("*.json")):
        if not path.stem.startswith("tracker") and path.stem not in ("proxy_tracker", "proxy_websocket"):
            for message in json.loads(path.read_text()):
                yield path.stem, message["from"], bytes.fromhex(message["hex"])


def is_hello(data):
    return len(data) >= 4 and struct.unpack_from("<i", data)[0] in HELLO_MAGICS


def sequence(frame):
    """The packed sequence of a frame, or None for one that holds none."""
    code = struct.unpack_from("<i", frame, 8)[0]
    body = frame[12:]
    if code == CALL_FUNC:
        return body[8:]
    if code == INIT_SERVER:
        return body[8 + struct.unpack_from("<Q", body)[0]:]
    return None if code in (1, 6, 7, COPY_ACK) else body


def shape(packed):
    """Type indices of a sequence: one seed of each suffices."""
    return packed[:8] + bytes([len(packed) % 256])


def write(target, seeds):
    folder = TESTS / "fuzz" / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("seed_*.bin"):
        old.unlink()
    for number, data in enumerate(seeds):
        (folder / f"seed_{number:03}.bin").write_bytes(data)
    print(f"{target}: {len(seeds)} seeds, {sum(map(len, seeds))} bytes")


def main():
    hellos, streams, sequences = {}, {}, {}
    for name, side, data in messages():
        if is_hello(data):
            hellos[data] = None
        elif len(data) >= 12:
            stream = streams.setdefault((name, side), bytearray([17]))
            if len(stream) + len(data) <= STREAM_BYTES_MAX:
                stream += data
            packed = sequence(data)
            if packed is not None and len(packed) <= SEQUENCE_BYTES_MAX:
                sequences.setdefault(shape(packed), packed)
    write("fuzz_handshake", list(hellos))
    write("fuzz_frame", [bytes(s) for s in streams.values()])
    write("fuzz_packed", list(sequences.values()))


if __name__ == "__main__":
    main()
