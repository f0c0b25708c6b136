"""Two clients of one queue, one of which has a thousand links, and clients at full speed. Not here: a single greedy one
that reads (reading).

The share of the client with one link is what counts: half of all is fair.
"""

import select
import time

from greedy import frames
from greedy.bench import SIZE_BYTES
from greedy.case import Case, both
from greedy.client import until
from towlab import wire
from towlab.getter import answered

LINKS = 1000
QUEUE = "SHARED"
CREDIT = 1 << 20
# Far less than anybody could take: who gets the next message is the queue manager's choice.
PUTS_PER_S = 2000
PRODUCER_BYTES = 4096


def consumers(bench):
    """Both wait for each message; who gets it?"""
    many, few = bench.peer("thousand-links"), bench.peer("one-link")
    for peer, links in ((many, LINKS), (few, 1)):
        for handle in range(links):
            peer.send(frames.consumer(handle, QUEUE, in_advance=True) + frames.credit(handle, 0, CREDIT))
        peer.until_counted(wire.ATTACH, links)
    yield
    bench.begin("load", "put", "--clients", "1", "--queue", QUEUE, "--rate", str(PUTS_PER_S), "--size", str(SIZE_BYTES),
                "--non-persistent", "--seconds", str(bench.seconds), "--quiet", "--url", bench.manager.url)
    counts = taken_by([many, few], bench.seconds)
    return {"share": counts[1] / max(1, sum(counts)), "messages": sum(counts)}


def taken_by(peers, seconds):
    """Transfers that came to each until the time is over."""
    end = time.monotonic() + seconds
    by_socket = {peer.socket: peer for peer in peers}
    while (left := end - time.monotonic()) > 0:
        for ready in select.select(list(by_socket), [], [], left)[0]:
            peer = by_socket[ready]
            peer.tally.feed(ready.recv(1 << 20))
    return [peer.tally.counts.get(wire.TRANSFER, 0) for peer in peers]


class Sender:
    """A connection of producers, each with as many messages under way as its credit lets it."""

    def __init__(self, peer, links):
        self.peer, self.settled, self.sent = peer, 0, [0] * links
        # Our number of a link by that of the other side; how many messages it may have been sent by ours.
        self.ours, self.limits = {}, {}
        # What the socket did not take yet.
        self.waiting = []
        payload = frames.message(bytes(PRODUCER_BYTES), persistent=True)
        self.batches = [frames.Batch(handle, payload, 16, settled=False) for handle in range(links)]
        peer.send_all([frames.producer(handle, QUEUE) for handle in range(links)])
        while len(self.limits) < links:
            self.take(peer.receive())
        peer.socket.setblocking(False)

    def take(self, found):
        for code, fields in found:
            if code == wire.ATTACH:
                self.ours[fields[1]] = int(fields[0].rsplit(b"-", 1)[1])
            elif code == wire.FLOW and (theirs := wire.field(fields, 4)) is not None:
                self.limits[self.ours[theirs]] = wire.field(fields, 5) + wire.field(fields, 6)
            elif code == wire.DISPOSITION:
                self.settled += answered(fields)

    def pieces(self):
        """Messages for all links in turn, sixteen at a time, while there is credit."""
        while True:
            moved = False
            for handle, batch in enumerate(self.batches):
                part = min(batch.count, self.limits[handle] - self.sent[handle])
                if part > 0:
                    self.sent[handle] += part
                    moved = True
                    yield bytes(batch.numbered(self.peer.number(part), part))
            if not moved:
                return

    def write(self):
        """Sends until the socket takes no more, or there is no credit; whether there is anything left to send."""
        source = self.pieces()
        while True:
            piece = self.waiting.pop() if self.waiting else next(source, None)
            if piece is None:
                return False
            try:
                done = self.peer.socket.send(piece)
            except BlockingIOError:
                done = 0
            if done < len(piece):
                self.waiting.append(piece[done:])
                return True


def producers(bench):
    """Both put as much as they are let."""
    senders = [Sender(bench.peer("thousand-links"), LINKS), Sender(bench.peer("one-link"), 1)]
    yield
    end = time.monotonic() + bench.seconds
    by_socket = {sender.peer.socket: sender for sender in senders}
    writers = list(by_socket)
    while (left := end - time.monotonic()) > 0:
        readable, writable, _ = select.select(list(by_socket), writers, [], left)
        for one in readable:
            by_socket[one].take(by_socket[one].peer.receive())
        for one in set(readable) | set(writable):
            more = by_socket[one].write()
            writers = [other for other in writers if other is not one] + ([one] if more else [])
    counts = [sender.settled for sender in senders]
    return {"share": counts[1] / max(1, sum(counts)), "messages": sum(counts)}


def flood(bench, persistent):
    """Producers and consumers at full speed, from one thread."""
    yield
    loading = bench.begin("load", "stream", "--producers", "8", "--consumers", "8", "--queue", QUEUE, "--size", "2048",
                          "--persistent" if persistent else "--non-persistent", "--seconds", str(bench.seconds),
                          "--allow-duplicates", "--quiet", "--url", bench.manager.url)
    until("the end of the load", lambda: loading.poll() is not None)


CASES = [
    Case("share-consumers", "1,000 consumers on one connection, and 1 on another, of one queue", consumers,
         why_memory="two connections"),
    Case("share-producers", "1,000 producers on one connection, and 1 on another, to one queue", producers,
         why_memory="two connections"),
    *both("flood", "8 producers and 8 consumers at full speed", flood, why_memory="16 connections", weight=4),
]
