"""AMQP 1.0 frames as bytes: only what the lab's own small clients send and read.

Written for clients that must not cost time of their own: whole conversations are encoded before they are
needed, and sent in one piece. It is no AMQP library: no reconnecting, no TLS, no checking of what the peer says.
"""

import struct

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ACCEPTED, SOURCE, TARGET, COORDINATOR, DECLARE, DECLARED, TRANSACTIONAL = 0x24, 0x28, 0x29, 0x30, 0x31, 0x33, 0x34
SASL_INIT, SASL_OUTCOME = 0x41, 0x44
NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"


def uint(value):
    """An unsigned integer of 32 bits."""
    return b"\x70" + struct.pack(">I", value)


def ubyte(value):
    """An unsigned integer of 8 bits."""
    return b"\x50" + bytes([value])


def text(value):
    """A string."""
    raw = value.encode()
    return b"\xb1" + struct.pack(">I", len(raw)) + raw


def symbol(value):
    """A symbol."""
    raw = value.encode()
    return b"\xb3" + struct.pack(">I", len(raw)) + raw


def binary(raw):
    """Bytes."""
    return b"\xb0" + struct.pack(">I", len(raw)) + raw


def described(code, *fields):
    """A described list, such as a performative: its code and its fields, encoded."""
    body = b"".join(fields)
    return b"\x00\x53" + bytes([code]) + b"\xd0" + struct.pack(">II", len(body) + 4, len(fields)) + body


def frame(body, sasl=False, channel=0):
    """A frame."""
    return struct.pack(">IBBH", len(body) + 8, 2, 1 if sasl else 0, channel) + body


def hello(container, window=1 << 20):
    """Log in without a name, open, and begin a session: bytes to send at once, without waiting for answers."""
    login = SASL_HEADER + frame(described(SASL_INIT, symbol("ANONYMOUS")), sasl=True)
    opened = frame(described(OPEN, text(container), text("localhost"), uint(1 << 20), NULL, uint(600_000)))
    begun = frame(described(BEGIN, NULL, uint(0), uint(window), uint(window)))
    return login + AMQP_HEADER + opened + begun


def receiver(handle, queue, credit):
    """Attach a link that gets from a queue, with credit: its deliveries wait for our settlement."""
    attach = described(ATTACH, text(f"get-{handle}-{queue}"), uint(handle), TRUE, NULL, NULL,
                       described(SOURCE, text(queue)), described(TARGET))
    return frame(attach) + more_credit(handle, 0, credit, known=False)


def more_credit(handle, delivered, credit, window=1 << 20, known=True):
    """Credit for so many messages beyond `delivered`; not `known`: sent before the peer's `begin` was read (2.7.4)."""
    return frame(described(FLOW, uint(0) if known else NULL, uint(window), uint(0), uint(window), uint(handle),
                           uint(delivered), uint(credit)))


def sender(handle, queue):
    """Attach a link that puts to a queue."""
    attach = described(ATTACH, text(f"put-{handle}-{queue}"), uint(handle), FALSE, NULL, NULL,
                       described(SOURCE), described(TARGET, text(queue)), NULL, NULL, uint(0))
    return frame(attach)


def coordinator(handle):
    """Attach the link over which units of work are declared."""
    attach = described(ATTACH, text(f"units-{handle}"), uint(handle), FALSE, NULL, NULL, described(SOURCE),
                       described(COORDINATOR), NULL, NULL, uint(0))
    return frame(attach)


def declare(handle, delivery):
    """Declare a unit of work."""
    transfer = described(TRANSFER, uint(handle), uint(delivery), binary(struct.pack(">I", delivery)), uint(0), FALSE,
                         FALSE)
    return frame(transfer + b"\x00\x53\x77" + described(DECLARE, NULL))


def put(handle, delivery, body, unit=None):
    """A durable message, in a unit of work or by itself."""
    state = described(TRANSACTIONAL, binary(unit)) if unit else NULL
    transfer = described(TRANSFER, uint(handle), uint(delivery), binary(struct.pack(">I", delivery)), uint(0), FALSE,
                         FALSE, NULL, state)
    return frame(transfer + described(0x70, TRUE) + b"\x00\x53\x75" + binary(body))


def accept(first, last, settled):
    """Accept deliveries that came to us."""
    return frame(described(DISPOSITION, TRUE, uint(first), uint(last), TRUE if settled else FALSE,
                           described(ACCEPTED)))


class Frames:
    """Cuts what a socket gives into performatives: pairs of a code and its fields."""

    def __init__(self):
        self.rest = b""
        self.headers = 2

    def feed(self, received):
        """All performatives that are complete now."""
        self.rest += received
        found, at = [], 0
        while len(self.rest) - at >= 8:
            if self.headers and self.rest[at:at + 4] == b"AMQP":
                self.headers -= 1
                at += 8
                continue
            size = struct.unpack_from(">I", self.rest, at)[0]
            if len(self.rest) - at < size:
                break
            start = at + 4 * self.rest[at + 4]
            if size > start - at:
                (code, fields), _ = decode(self.rest, start)
                found.append((code, fields))
            at += size
        self.rest = self.rest[at:]
        return found


FIXED = {0x40: 0, 0x41: 0, 0x42: 0, 0x43: 0, 0x44: 0, 0x45: 0, 0x50: 1, 0x51: 1, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1,
         0x56: 1, 0x60: 2, 0x61: 2, 0x70: 4, 0x71: 4, 0x72: 4, 0x73: 4, 0x80: 8, 0x81: 8, 0x82: 8, 0x83: 8, 0x98: 16}
CONSTANT = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}


def decode(raw, at):
    """The value at a place, and where it ends. Maps, arrays and what is not a number come as bytes."""
    code = raw[at]
    at += 1
    if code == 0:
        (descriptor, at) = decode(raw, at)
        (value, at) = decode(raw, at)
        return (descriptor, value), at
    if code in CONSTANT:
        return CONSTANT[code], at
    if code in FIXED:
        end = at + FIXED[code]
        return int.from_bytes(raw[at:end], "big"), end
    wide = code & 0xf0 in (0xb0, 0xd0, 0xf0)
    width = 4 if wide else 1
    size = int.from_bytes(raw[at:at + width], "big")
    at += width
    end = at + size
    if code in (0xc0, 0xd0):
        count = int.from_bytes(raw[at:at + width], "big")
        at += width
        values = []
        for _ in range(count):
            value, at = decode(raw, at)
            values.append(value)
        return values, end
    return raw[at:end], end


def field(fields, index):
    """A field of a performative; fields at the end may be left out."""
    return fields[index] if index < len(fields) else None
