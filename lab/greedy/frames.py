"""Frames of greedy clients as bytes: what `towlab.wire` lacks. Standard library only.

A selector, a queue of the connection's own, a browser, what is settled in advance, other channels than 0, a drain, the
outcomes beside `accepted`, the end of a unit of work, sections before a body, a body of several frames.
"""

import struct

from towlab import wire
from towlab.wire import FALSE, NULL, TRUE, binary, described, frame, symbol, text, ubyte, uint

REJECTED, RELEASED, DISCHARGE = 0x25, 0x26, 0x32
HEADER, PROPERTIES, APPLICATION_PROPERTIES, DATA, VALUE = 0x70, 0x73, 0x74, 0x75, 0x77
SELECTOR = "apache.org:selector-filter:string"
SELECTOR_CODE = 0x0000468C00000004
# The largest window: what a client that takes everything says.
WIDE = (1 << 31) - 1
# max-frame-size of the queue manager, less the head of a transfer.
PIECE_BYTES = 65_000
# Stands in a message for eight digits that differ in each.
NUMBER = b"@NUMBER@"


def begin(channel, window=WIDE):
    """Another session of a connection."""
    return frame(described(wire.BEGIN, NULL, uint(0), uint(window), uint(WIDE)), channel=channel)


def map_of(*pairs):
    """A map; keys and values encoded."""
    body = b"".join(key + value for key, value in pairs)
    return b"\xd1" + struct.pack(">II", len(body) + 4, 2 * len(pairs)) + body


def selecting(selector):
    """The filter of a source."""
    value = b"\x00\x80" + struct.pack(">Q", SELECTOR_CODE) + text(selector)
    return map_of((symbol(SELECTOR), value))


def consumer(handle, queue, selector=None, browse=False, in_advance=False, channel=0):
    """Attach a link that gets, without credit. `queue` None: a queue of its own, which goes with the connection."""
    source = described(wire.SOURCE, NULL if queue is None else text(queue), NULL, NULL, NULL,
                       TRUE if queue is None else FALSE, NULL, symbol("copy") if browse else NULL,
                       selecting(selector) if selector else NULL)
    mode = ubyte(1) if in_advance else NULL
    return frame(described(wire.ATTACH, text(f"get-{channel}-{handle}"), uint(handle), TRUE, mode, NULL, source,
                           described(wire.TARGET)), channel=channel)


def producer(handle, queue, channel=0):
    """Attach a link that puts to a queue."""
    return frame(described(wire.ATTACH, text(f"put-{channel}-{handle}"), uint(handle), FALSE, NULL, NULL,
                           described(wire.SOURCE), described(wire.TARGET, text(queue)), NULL, NULL, uint(0)),
                 channel=channel)


def credit(handle, delivered, count, drain=False, window=WIDE, channel=0):
    """Credit for so many messages behind `delivered`. The window counts from the first transfer."""
    return frame(described(wire.FLOW, NULL, uint(window), uint(0), uint(WIDE), uint(handle), uint(delivered),
                           uint(count), NULL, TRUE if drain else FALSE), channel=channel)


def detach(handle, channel=0):
    """Close a link."""
    return frame(described(wire.DETACH, uint(handle), TRUE), channel=channel)


def settle(first, last, outcome, unit=None, settled=True):
    """An outcome (a code) for deliveries that came to us, in a unit of work or by itself."""
    state = described(wire.TRANSACTIONAL, binary(unit), described(outcome)) if unit else described(outcome)
    return frame(described(wire.DISPOSITION, TRUE, uint(first), uint(last), TRUE if settled else FALSE, state))


def discharge(handle, delivery, unit, fail):
    """End a unit of work: commit, or roll back."""
    transfer = described(wire.TRANSFER, uint(handle), uint(delivery), binary(struct.pack(">I", delivery)), uint(0),
                         FALSE, FALSE)
    value = described(DISCHARGE, binary(unit), TRUE if fail else FALSE)
    return frame(transfer + b"\x00\x53" + bytes([VALUE]) + value)


def section(code, encoded):
    """A section of a message."""
    return b"\x00\x53" + bytes([code]) + encoded


def message(body, persistent=False, correlation=None, expires_ms=None, properties=()):
    """A message as bytes. `properties`: pairs of a name and a text."""
    raw = described(HEADER, TRUE) if persistent else b""
    if correlation is not None or expires_ms is not None:
        key = NULL if correlation is None else b"\xb1" + struct.pack(">I", len(correlation)) + correlation
        expiry = NULL if expires_ms is None else b"\x83" + struct.pack(">q", expires_ms)
        raw += described(PROPERTIES, NULL, NULL, NULL, NULL, NULL, key, NULL, NULL, expiry)
    if properties:
        raw += section(APPLICATION_PROPERTIES, map_of(*((text(name), text(value)) for name, value in properties)))
    return raw + section(DATA, binary(body))


def transfer(handle, delivery, payload, settled=False, unit=None, more=False, channel=0):
    """A transfer that begins a message."""
    state = described(wire.TRANSACTIONAL, binary(unit)) if unit else NULL
    fields = described(wire.TRANSFER, uint(handle), uint(delivery), binary(struct.pack(">I", delivery)), uint(0),
                       TRUE if settled else FALSE, TRUE if more else FALSE, NULL, state)
    return frame(fields + payload, channel=channel)


def large(handle, delivery, payload):
    """A message of several frames: a list of bytes."""
    view = memoryview(payload)
    pieces = [view[at:at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]
    first = transfer(handle, delivery, bytes(pieces[0]), more=len(pieces) > 1)
    more = described(wire.TRANSFER, uint(handle), NULL, NULL, NULL, FALSE, TRUE)
    last = described(wire.TRANSFER, uint(handle), NULL, NULL, NULL, FALSE, FALSE)
    heads = [*[more] * (len(pieces) - 2), last]
    return [first, *(frame(head + bytes(piece)) for head, piece in zip(heads, pieces[1:]))]


class Batch:
    """Transfers of one link, encoded once: each time it is sent, only the numbers in it are written anew."""

    def __init__(self, handle, payload, count, settled=True, unit=None, channel=0):
        self.count = count
        one = transfer(handle, 0, payload, settled, unit, channel=channel)
        self.size = len(one)
        self.raw = bytearray(one * count)
        # Frame head, descriptor, list head, handle, and the code before the delivery id; then code and length of the
        # tag.
        self.delivery_at = 8 + 3 + 9 + 5 + 1
        self.tag_at = self.delivery_at + 4 + 5
        self.number_at = one.find(NUMBER)

    def numbered(self, first, count, number=0):
        """The bytes of `count` transfers from delivery `first` on; `number` is that of the first message."""
        raw, size, put = self.raw, self.size, struct.pack_into
        for index in range(count):
            at = index * size
            put(">I", raw, at + self.delivery_at, first + index)
            put(">I", raw, at + self.tag_at, first + index)
            if self.number_at >= 0:
                put("8s", raw, at + self.number_at, b"%08d" % (number + index))
        return memoryview(raw)[:count * size]


class Tally:
    """Counts frames by performative without decoding them: what a client does that only takes."""

    def __init__(self):
        self.rest = b""
        self.headers = 2
        self.counts = {}

    def feed(self, received):
        """Counts what is complete now; how many transfers were among it."""
        raw = self.rest + received if self.rest else received
        at, end, counts, before = 0, len(raw), self.counts, self.counts.get(wire.TRANSFER, 0)
        unpack = struct.Struct(">IB").unpack_from
        while end - at >= 8:
            if self.headers and raw[at:at + 4] == b"AMQP":
                self.headers -= 1
                at += 8
                continue
            size, words = unpack(raw, at)
            if end - at < size:
                break
            start = at + 4 * words
            if size > 4 * words:
                code = raw[start + 2]
                counts[code] = counts.get(code, 0) + 1
            at += size
        self.rest = bytes(raw[at:])
        return counts.get(wire.TRANSFER, 0) - before
