"""A greedy producer: as many messages as its link credit lets it send, encoded once.

What is settled in advance brings no answers that would have to be read; else answers are counted. Not here: messages
(frames), units of work (client).
"""

from greedy import frames
from towlab import wire
from towlab.getter import answered

BATCH = 1000


class Producer:
    """A link that puts one kind of message."""

    def __init__(self, peer, queue, payload, handle=0, settled=True, unit=None):
        self.peer, self.settled = peer, settled
        self.batch = frames.Batch(handle, payload, BATCH, settled, unit)
        self.limit = self.sent = self.answered = 0
        peer.send(frames.producer(handle, queue))
        # Each side has its own number for a link.
        self.handle = wire.field(peer.until(wire.ATTACH), 1)
        while not self.limit:
            self.step()

    def step(self):
        """Takes the next performative: notes credit and answers."""
        code, fields = self.peer.next()
        if code == wire.FLOW and wire.field(fields, 4) == self.handle:
            self.limit = (wire.field(fields, 5) or 0) + (wire.field(fields, 6) or 0)
        if code == wire.DISPOSITION:
            self.answered += answered(fields)

    def put(self, count):
        """Sends so many, and waits for the answers, if any come."""
        end = self.sent + count
        while self.sent < end:
            while self.limit <= self.sent:
                self.step()
            part = min(BATCH, end - self.sent, self.limit - self.sent)
            self.peer.send(self.batch.numbered(self.peer.number(part), part, self.sent))
            self.sent += part
        while not self.settled and self.answered < self.sent:
            self.step()
