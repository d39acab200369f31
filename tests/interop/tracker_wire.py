"""A plain socket that speaks the tracker's control plane."""

import json
import struct

import wire

PING, STOP, PUT, REQUEST, UPDATE_INFO, SUMMARY, PENDING = range(1, 8)


class RawTracker(wire.Raw):
    """One connection to a tracker, the magic exchanged."""

    def __init__(self, address, timeout=10.0):
        super().__init__(address, timeout)
        self.send(struct.pack("<i", wire.TRACKER_MAGIC))
        answer = struct.unpack("<i", self.receive(4))[0]
        assert answer == wire.TRACKER_MAGIC, f"tracker answered {answer:#x}"

    def post(self, message):
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.send(struct.pack("<i", len(data)) + data)

    def reply(self):
        return json.loads(self.receive(struct.unpack("<i", self.receive(4))[0]))

    def talk(self, message):
        self.post(message)
        return self.reply()

    def summary(self):
        code, data = self.talk([SUMMARY])
        assert code == 0
        return data

    def queue(self, key):
        """{"free": n, "pending": n} of a key; zeros for one never heard of."""
        return self.summary()["queue_info"].get(key, {"free": 0, "pending": 0})
