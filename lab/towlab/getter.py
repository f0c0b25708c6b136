"""Small clients that already run when the queue manager comes back, and clients that leave units of work open.

A getter's bytes are encoded beforehand and sent when the listener is there: what is timed is the queue manager.
Not here: filling queues fast (`towline load`).
"""

import collections
import os
import select
import socket
import struct
import time

from towlab import wire

PATIENCE_S = 600


class Broken(Exception):
    """The queue manager said something else than was expected, or nothing."""


class Peer:
    """One connection, blocking unless `turn` is used."""

    def __init__(self, address, name):
        self.socket = opened(address)
        self.frames = wire.Frames()
        self.name = name
        self.unread = collections.deque()

    def send(self, raw):
        self.socket.sendall(raw)

    def receive(self):
        """What came, at least one byte's worth."""
        received = self.socket.recv(1 << 20)
        if not received:
            raise Broken(f"{self.name}: the connection was closed")
        found = self.frames.feed(received)
        for code, fields in found:
            if code in (wire.DETACH, wire.END, wire.CLOSE):
                raise Broken(f"{self.name}: refused with {fields}")
        return found

    def next(self):
        """The next performative: code and fields."""
        while not self.unread:
            self.unread.extend(self.receive())
        return self.unread.popleft()

    def until(self, code):
        """Steps on to the next performative of this kind; its fields."""
        while True:
            found, fields = self.next()
            if found == code:
                return fields

    def close(self):
        self.socket.close()


def opened(address):
    """A socket to host and port, or to the path of a local socket."""
    if isinstance(address, str):
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(PATIENCE_S)
        made.connect(address)
        return made
    made = socket.create_connection(address, timeout=PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def address_of(url):
    """Host and port of `amqp://host:port`."""
    host, port = url.removeprefix("amqp://").rsplit(":", 1)
    return host, int(port)


class Getters:
    """One getter for each queue. `wake` is called as soon as the queue manager is there."""

    def __init__(self, queues):
        self.queues = queues
        self.bytes = [wire.hello(f"lab-get-{queue}") + wire.receiver(0, queue, 1) for queue in queues]
        self.peers = []

    def wake(self, url):
        """Connects all and waits for the first message of each queue; when each came, by `perf_counter`."""
        address = address_of(url)
        poll = select.poll()
        by_number = {}
        for queue, raw in zip(self.queues, self.bytes):
            peer = connect(address, queue)
            peer.send(raw)
            self.peers.append(peer)
            by_number[peer.socket.fileno()] = peer
            poll.register(peer.socket, select.POLLIN)
        came = {}
        while len(came) < len(self.queues):
            ready = poll.poll(PATIENCE_S * 1000)
            if not ready:
                missing = set(self.queues) - set(came)
                raise Broken(f"no message came from {sorted(missing)}")
            for number, _ in ready:
                peer = by_number[number]
                if any(code == wire.TRANSFER for code, _ in peer.receive()):
                    came.setdefault(peer.name, time.perf_counter())
        return came

    def accept(self):
        """Accepts what came, so that it is gone, and waits until that is durable."""
        for peer in self.peers:
            peer.send(wire.accept(0, 0, settled=False))
        for peer in self.peers:
            peer.until(wire.DISPOSITION)
        self.close()

    def close(self):
        for peer in self.peers:
            peer.close()
        self.peers = []


def connect(address, name):
    """Connects, and tries again each millisecond while nobody listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Peer(address, name)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def drain(url, counts):
    """Gets exactly so many messages from each queue (a dict), oldest first."""
    for queue, count in counts.items():
        peer, left = Peer(address_of(url), queue), count
        peer.send(wire.hello(f"lab-drain-{queue}") + wire.receiver(0, queue, 0))
        done = 0
        while left:
            part = min(left, 1000)
            peer.send(wire.more_credit(0, done, part))
            came = 0
            while came < part:
                fields = peer.until(wire.TRANSFER)
                # A large message is several transfers.
                came += not wire.field(fields, 5)
            peer.send(wire.accept(done, done + part - 1, settled=False))
            settled = 0
            while settled < part:
                settled += answered(peer.until(wire.DISPOSITION))
            done += part
            left -= part
        peer.close()


def answered(disposition):
    """How many deliveries a disposition is about."""
    first, last = wire.field(disposition, 1), wire.field(disposition, 2)
    return 1 if last is None else last - first + 1


class Units:
    """Units of work that are left open: puts of random bodies that nobody commits."""

    def __init__(self, url, queues, units_each, messages_each, size):
        self.peers = []
        noise = os.urandom((1 << 20) + size)
        for queue in queues:
            peer = Peer(address_of(url), queue)
            self.peers.append(peer)
            peer.send(wire.hello(f"lab-unit-{queue}") + wire.coordinator(0) + wire.sender(1, queue))
            putter = Putter(peer, noise, size)
            for _ in range(units_each):
                putter.declare()
                putter.put(messages_each)

    def close(self):
        for peer in self.peers:
            peer.close()
        self.peers = []


class Putter:
    """Puts on link 1 in the units of link 0, with at most a hundred messages under way."""

    def __init__(self, peer, noise, size):
        self.peer, self.noise, self.size = peer, noise, size
        self.delivery = 0
        self.put_count = 0
        self.limits = {}
        self.unit = None

    def step(self):
        """Takes the next performative: notes credit, gives back a disposition."""
        code, fields = self.peer.next()
        if code == wire.FLOW and wire.field(fields, 4) is not None:
            self.limits[fields[4]] = (wire.field(fields, 5) or 0) + (wire.field(fields, 6) or 0)
        return fields if code == wire.DISPOSITION else None

    def declare(self):
        """Begins a unit of work."""
        while not self.limits.get(0):
            self.step()
        self.peer.send(wire.declare(0, self.delivery))
        self.delivery += 1
        while (fields := self.step()) is None:
            pass
        self.unit = wire.field(fields, 4)[1][0]

    def put(self, count):
        """Puts so many messages in the unit, and waits until all were taken."""
        end = self.put_count + count
        while self.put_count < end:
            while (room := self.limits.get(1, 0) - self.put_count) <= 0:
                self.step()
            part = min(100, end - self.put_count, room)
            self.peer.send(b"".join(self.message(self.delivery + number) for number in range(part)))
            self.delivery += part
            self.put_count += part
            waiting = part
            while waiting > 0:
                fields = self.step()
                waiting -= answered(fields) if fields else 0

    def message(self, number):
        """A message of noise: no two alike, nothing to compress."""
        place = (number * 7919) % (1 << 20)
        body = struct.pack(">Q", number) + self.noise[place:place + self.size - 8]
        return wire.put(1, number, body, self.unit)
