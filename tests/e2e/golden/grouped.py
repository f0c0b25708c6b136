"""Puts lines as messages with a group, a number in it and a delivery time: grouped.py ADDRESS QUEUE
FIRST LAST. Bare AMQP, since `towline put` has no options for these.
"""
import socket
import struct
import sys

address, queue, first, last = sys.argv[1:]
host, port = address.rsplit(":", 1)
link = socket.create_connection((host, int(port)), 20)


def uint(value):
    return b"\x70" + struct.pack(">I", value)


def text(value, code=0xB1):
    return bytes([code]) + struct.pack(">I", len(value)) + value.encode()


def compound(code, fields):
    body = b"".join(fields)
    return bytes([code]) + struct.pack(">II", len(body) + 4, len(fields)) + body


def described(code, content):
    return b"\x00\x53" + bytes([code]) + content


def send(performative, payload=b"", kind=0):
    body = performative + payload
    link.sendall(struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body)


def take(count):
    taken = b""
    while len(taken) < count:
        more = link.recv(count - len(taken))
        if not more:
            sys.exit("the connection ended")
        taken += more
    return taken


def until(code):
    """Reads frames up to one with this performative."""
    while True:
        (size,) = struct.unpack(">I", take(4))
        body = take(size - 4)[4:]
        if body[:2] == b"\x00\x53" and body[2] == code:
            return body


NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
link.sendall(b"AMQP\x03\x01\x00\x00")
take(8)
until(0x40)
send(described(0x41, compound(0xD0, [text("ANONYMOUS", 0xB3), NULL])), kind=1)
until(0x44)
link.sendall(b"AMQP\x00\x01\x00\x00")
take(8)
send(described(0x10, compound(0xD0, [text("golden"), text("localhost")])))
until(0x10)
send(described(0x11, compound(0xD0, [NULL, uint(0), uint(2048), uint(2048)])))
until(0x11)
source = described(0x28, compound(0xD0, [text("golden")]))
target = described(0x29, compound(0xD0, [text(queue)]))
begun = [text("grouped"), uint(0), FALSE, b"\x50\x00", b"\x50\x00", source, target]
send(described(0x12, compound(0xD0, begun + [NULL, NULL, uint(0)])))
until(0x13)
for number in range(int(first), int(last) + 1):
    header = described(0x70, compound(0xD0, [TRUE]))
    # The end of the year 2099.
    due = b"\x83" + struct.pack(">q", 4_102_444_799_000)
    annotations = described(0x72, compound(0xD1, [text("x-opt-delivery-time", 0xB3), due]))
    group = [NULL] * 10 + [text(f"group {number % 3}"), uint(number)]
    properties = described(0x73, compound(0xD0, group))
    value = described(0x77, text(f"message {number}"))
    tag = b"\xa0\x04" + struct.pack(">I", number)
    sent = number - int(first)
    send(
        described(0x14, compound(0xD0, [uint(0), uint(sent), tag, uint(0), FALSE, FALSE])),
        header + annotations + properties + value,
    )
    if bytes([0x00, 0x53, 0x24]) not in until(0x15):
        sys.exit(f"message {number} was not accepted")
send(described(0x18, compound(0xD0, [])))
until(0x18)
