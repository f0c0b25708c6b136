"""Clients that ask for much and read it slowly, not at all, or all of it; and what removes messages at once."""

import contextlib
import socket
import time

from greedy import frames
from greedy.bench import DEEP, SIZE_BYTES
from greedy.case import Case, both, part
from greedy.client import until
from towlab import wire

LARGE_BYTES = 2048
BROWSERS = 100
# Puts of one client in a second, at least: what an expiry must wait for.
PUTS_PER_S = 40_000
# From the idle measurement to the moment.
BEFORE_EXPIRY_S = 3


def window_zero(bench):
    """Link credit for everything, and a session that takes nothing."""
    count = part(bench.depth)
    bench.fill(count=count, persistent=True, size=LARGE_BYTES)
    peer = bench.peer("window-zero", window=0)
    yield
    peer.send(frames.consumer(0, DEEP))
    peer.until(wire.ATTACH)
    peer.send(frames.credit(0, 0, count, window=0))


def windows_zero(bench):
    """The same from many browsers, each of which is offered every message."""
    count = part(bench.depth)
    bench.fill(count=count, persistent=True, size=LARGE_BYTES)
    peers = [bench.peer(f"window-zero-{number}", window=0) for number in range(BROWSERS)]
    yield
    for peer in peers:
        peer.send(frames.consumer(0, DEEP, browse=True))
        peer.until(wire.ATTACH)
        peer.send(frames.credit(0, 0, count, window=0))


def unread(bench):
    """Everything is asked for, and the socket is never read."""
    bench.fill(persistent=True)
    peer = bench.peer("unread")
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    yield
    peer.consume(DEEP, bench.depth)


def read_all(name, **how):
    """All messages come, in one go."""
    def run(bench, persistent):
        bench.fill(persistent=persistent)
        peer = bench.peer(name)
        yield
        peer.consume(DEEP, bench.depth, **how)
        peer.gather(bench.depth)
    return run


def reject(bench):
    """Each message that comes is rejected, and there is no dead-letter queue."""
    bench.mqsc("ALTER QMGR DEADQ(' ')")
    bench.fill(count=max(1, bench.depth // 100))
    peer = bench.peer("rejects")
    yield
    peer.consume(DEEP, 0)
    peer.send(frames.credit(0, 0, 1 << 30))
    end, came = time.monotonic() + bench.seconds, 0
    while (left := end - time.monotonic()) > 0:
        # It may well be that what was rejected does not come again.
        peer.socket.settimeout(left)
        with contextlib.suppress(TimeoutError):
            delivery = wire.field(peer.until(wire.TRANSFER), 1)
            peer.send(frames.settle(delivery, delivery, frames.REJECTED))
            came += 1
    return {"rejected": came}


def expire(bench, persistent):
    """All messages expire in one moment."""
    wait = bench.depth / PUTS_PER_S + bench.seconds + BEFORE_EXPIRY_S
    moment = time.time() + wait
    bench.fill_with(frames.message(bytes(SIZE_BYTES), persistent, expires_ms=int(moment * 1000)))
    yield
    late = time.time() - moment
    time.sleep(max(0.0, -late))
    until("an empty queue", lambda: not bench.depth_of(DEEP), every=0.25)
    return {"before_it_expired_s": max(0.0, late)}


def command(text):
    """A command on a deep queue."""
    def run(bench, persistent):
        bench.fill(persistent=persistent)
        yield
        bench.mqsc(text)
    return run


def move(bench):
    """As many as one command moves, ten times."""
    bench.fill(persistent=True)
    bench.mqsc("DEFINE QLOCAL(OTHER)")
    yield
    for _ in range(10):
        bench.mqsc(f"MOVE QLOCAL({DEEP}) TOQLOCAL(OTHER) TYPE(ADD)")


CASES = [
    Case("window-zero", "credit for {part} messages of 2 KiB, and a session window of 0", window_zero),
    Case("window-zero-hundred", "the same from 100 browsers", windows_zero, why_memory="100 connections"),
    Case("unread", "credit for {depth} messages, and the socket is not read", unread),
    *both("browse", "a browse of {depth} messages", read_all("browses", browse=True)),
    *both("get", "a get of {depth} messages, settled in advance", read_all("gets", in_advance=True)),
    Case("reject", "every message is rejected, without a dead-letter queue", reject),
    *both("expiry", "{depth} messages expire in one moment", expire, weight=40),
    *both("clear", "CLEAR of {depth} messages", command(f"CLEAR QLOCAL({DEEP})")),
    *both("purge", "DELETE PURGE of {depth} messages", command(f"DELETE QLOCAL({DEEP}) PURGE")),
    Case("move", "MOVE of 10,000 messages, ten times, {depth} persistent messages", move),
]
