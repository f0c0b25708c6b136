"""Large messages, and units of work of many messages. Not here: units beside selectors (selecting)."""

import functools
import os

from greedy import frames
from greedy.bench import DEEP, SIZE_BYTES
from greedy.case import Case, both
from greedy.client import Unit, until
from greedy.producer import Producer

STAYS = "the message stays in memory"
RAISED = "MAXUMSGS is raised: some 200 bytes for each put of a unit that commits"
# What a connection may have at most with its default memory (64 MiB) is some 190,000.
UNSETTLED = 150_000


def large(bench, persistent):
    """One message of the greatest length."""
    peer = bench.peer("large")
    put = peer.large(DEEP, os.urandom(bench.large_bytes), persistent)
    yield
    put()


def unit(bench, persistent, fail):
    """A unit of `depth` puts ends."""
    bench.mqsc("ALTER QMGR MAXUMSGS(999999999)")
    peer = bench.peer("unit")
    one = Unit(peer)
    one.declare()
    bench.say(f"puts {bench.depth:,} messages in a unit")
    Producer(peer, DEEP, frames.message(bytes(SIZE_BYTES), persistent), unit=one.unit).put(bench.depth)
    until(f"{bench.depth:,} uncommitted messages", lambda: bench.uncommitted_in(DEEP) == bench.depth)
    yield
    one.end(fail)


def unit_under_way(bench):
    """The puts of such a unit, and its commit."""
    bench.mqsc("ALTER QMGR MAXUMSGS(999999999)")
    peer = bench.peer("unit")
    one = Unit(peer)
    one.declare()
    yield
    Producer(peer, DEEP, frames.message(bytes(SIZE_BYTES), persistent=True), unit=one.unit).put(bench.depth)
    one.end(False)


def lost(bench, persistent):
    """A connection with unsettled messages is reset."""
    bench.fill(persistent=persistent)
    peer = bench.peer("lost")
    count = min(bench.depth, UNSETTLED)
    peer.consume(DEEP, count)
    bench.say("gets them")
    peer.gather(count)
    yield
    peer.abort()


CASES = [
    *both("large", "one put of {megabytes} MB", large, why_memory=STAYS),
    *both("commit", "a commit of {depth} puts", functools.partial(unit, fail=False), weight=20,
          why_memory=RAISED),
    *both("rollback", "a roll-back of {depth} puts", functools.partial(unit, fail=True), weight=20),
    Case("unit", "a unit of {depth} persistent puts, from the first to its commit", unit_under_way, weight=20,
         why_memory="256 bytes for each put of an open unit"),
    *both("lost", f"a connection with {UNSETTLED:,} unsettled messages is reset", lost, weight=15),
]
