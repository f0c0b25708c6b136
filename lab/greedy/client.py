"""One greedy client: a connection that asks for much and takes, leaves or returns what comes.

Not here: many connections at once (crowd), the encoding (frames).
"""

import collections
import contextlib
import socket
import struct
import time

from greedy import frames
from towlab import wire
from towlab.getter import Broken, Peer, address_of, answered

PATIENCE_S = 300


class Greedy(Peer):
    """A connection with a session that can take everything, unless another window is given."""

    def __init__(self, url, name, window=frames.WIDE):
        super().__init__(address_of(url), name)
        self.socket.settimeout(PATIENCE_S)
        self.tally, self.deliveries = None, 0
        self.send(wire.hello(f"greedy-{name}", window))
        self.until(wire.BEGIN)

    def consume(self, queue, credit, handle=0, drain=False, **options):
        """Attaches a link that gets, and gives it credit; waits for the answer to the attach."""
        self.send(frames.consumer(handle, queue, **options))
        fields = self.until(wire.ATTACH)
        if credit:
            self.send(frames.credit(handle, 0, credit, drain))
        return fields

    def number(self, count=1):
        """The first of so many new numbers of deliveries that we send: they are counted by session."""
        self.deliveries += count
        return self.deliveries - count

    def until_looked(self):
        """Waits until the drain of the only link is answered: everything was looked at."""
        while True:
            fields = self.until(wire.FLOW)
            if wire.field(fields, 4) is not None and not wire.field(fields, 6):
                return

    def gather(self, count, patience=PATIENCE_S):
        """Takes so many transfers without decoding them; how many came before nothing did for `patience`."""
        self.tally = self.tally or self.begin_tally()
        buffer = memoryview(bytearray(1 << 20))
        taken = self.tally.counts.get(wire.TRANSFER, 0)
        self.socket.settimeout(patience)
        with contextlib.suppress(TimeoutError):
            while taken < count:
                size = self.socket.recv_into(buffer)
                if not size:
                    raise Broken(f"{self.name}: the connection was closed")
                self.tally.feed(buffer[:size].tobytes())
                taken = self.tally.counts.get(wire.TRANSFER, 0)
        self.socket.settimeout(PATIENCE_S)
        return taken

    def begin_tally(self):
        """From here on frames are counted; what was read and not looked at yet counts too."""
        tally = frames.Tally()
        tally.headers = 0
        tally.counts = dict(collections.Counter(code for code, _ in self.unread))
        self.unread.clear()
        tally.feed(self.frames.rest)
        return tally

    def until_counted(self, code, count):
        """Takes frames until so many of this kind came; refusals are counted and not raised."""
        self.tally = self.tally or self.begin_tally()
        while self.tally.counts.get(code, 0) < count:
            received = self.socket.recv(1 << 20)
            if not received:
                raise Broken(f"{self.name}: the connection was closed")
            self.tally.feed(received)

    def until_settled(self, count):
        """Waits until so many deliveries were settled by the other side."""
        while count > 0:
            count -= answered(self.until(wire.DISPOSITION))

    def large(self, queue, body, persistent, handle=0):
        """Prepares the put of one message of several frames. What comes back puts it and waits for `accepted`."""
        self.send(frames.producer(handle, queue))
        self.until(wire.FLOW)
        pieces = frames.large(handle, self.number(), frames.message(body, persistent))

        def put():
            self.send_all(pieces)
            self.until_settled(1)
        return put

    def send_all(self, pieces):
        for piece in pieces:
            self.send(piece)

    def abort(self):
        """Gone without a word: the socket is reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


class Unit:
    """Units of work of one connection, one after the other, over a coordinator at handle 9."""

    HANDLE = 9

    def __init__(self, peer):
        self.peer, self.unit = peer, None
        peer.send(wire.coordinator(self.HANDLE))
        peer.until(wire.FLOW)

    def declare(self):
        self.peer.send(wire.declare(self.HANDLE, self.peer.number()))
        self.unit = wire.field(self.peer.until(wire.DISPOSITION), 4)[1][0]
        return self.unit

    def end(self, fail):
        """Commits or rolls back, and waits until that is done."""
        delivery = self.peer.number()
        self.peer.send(frames.discharge(self.HANDLE, delivery, self.unit, fail))
        while True:
            fields = self.peer.until(wire.DISPOSITION)
            if wire.field(fields, 1) == delivery:
                state = wire.field(fields, 4)
                if state and state[0] == frames.REJECTED:
                    raise Broken(f"{self.peer.name}: the unit was not ended: {state}")
                return


def until(what, holds, limit=PATIENCE_S, every=0.05):
    """Waits until a condition gives something, which is returned."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(every)
    raise Broken(f"waited {limit} s in vain for: {what}")
