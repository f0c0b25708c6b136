"""Many connections at once from one thread: they come, wait, and go together.

A connection that is refused or closed while it comes is tried again, as clients do. Not here: what they are for.
"""

import errno
import resource
import selectors
import socket
import time

from greedy import frames
from towlab import wire
from towlab.getter import Broken, address_of

PATIENCE_S = 120
AGAIN_S = 0.2
# Besides sockets.
FILES = 200
# A client has an address of its own, as in the field: those that wait to log in are bounded by address.
ADDRESS = "127.0.0.2"
# The port is chosen when the connection is made, for its far end. Chosen when the address is bound, it must be free for
# every far end, and those of 10,000 closed connections are not, for a minute (Linux 4.2; socket has the name in 3.12).
IP_BIND_ADDRESS_NO_PORT = 24


def allow(count):
    """Lets this process, and those that it begins, have so many files open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        if limit < wanted:
            raise Broken(f"{wanted} files at once are not allowed here, only {limit} (ulimit -n)")


class Crowd:
    """Connections that each send the same bytes and are there when they got one frame of a kind."""

    def __init__(self, url, count, name="crowd", more=b"", until=wire.BEGIN):
        self.address, self.code = address_of(url), until
        self.name, self.more = name, more
        self.count, self.tries = count, 0
        self.here = []

    def come(self):
        """Connects all at once; the seconds until the last one is there."""
        allow(self.count)
        began, again = time.monotonic(), []
        with selectors.EpollSelector() as poll:
            for _ in range(self.count):
                self.dial(poll)
            while len(self.here) < self.count:
                if time.monotonic() - began > PATIENCE_S:
                    raise Broken(f"{len(self.here)} of {self.count} connections are there after {PATIENCE_S} s")
                for key, events in poll.select(AGAIN_S):
                    if not self.turn(poll, key, events):
                        again.append(time.monotonic() + AGAIN_S)
                while again and again[0] <= time.monotonic():
                    again.pop(0)
                    self.dial(poll)
        return time.monotonic() - began

    def dial(self, poll):
        self.tries += 1
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        one.bind((ADDRESS, 0))
        if one.connect_ex(self.address) not in (0, errno.EINPROGRESS):
            raise Broken(f"cannot connect to {self.address}")
        poll.register(one, selectors.EVENT_WRITE, frames.Tally())

    def turn(self, poll, key, events):
        """Goes on with one connection; false when it was lost."""
        one, tally = key.fileobj, key.data
        try:
            if events & selectors.EVENT_WRITE:
                # A fresh socket takes the few bytes at once.
                one.sendall(wire.hello(f"{self.name}-{one.fileno()}", frames.WIDE) + self.more)
                poll.modify(one, selectors.EVENT_READ, tally)
                return True
            received = one.recv(1 << 16)
        except OSError:
            received = b""
        if not received:
            poll.unregister(one)
            one.close()
            return False
        tally.feed(received)
        if tally.counts.get(self.code):
            poll.unregister(one)
            self.here.append(one)
        return True

    def go(self):
        """Closes all at once, without a word."""
        for one in self.here:
            one.close()
        self.here = []
