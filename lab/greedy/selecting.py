"""Clients that have the queue manager look for their messages, and what wakes them again. Not here: browsing (reading)."""

from greedy import frames
from greedy.bench import DEEP
from greedy.case import Case, both, few
from greedy.client import Unit
from greedy.producer import Producer
from towlab import wire

NOTHING = "color = 'none'"
CONSUMERS = 10
RETURNS = 20
UNIT_GETS = 500
LONG_BYTES = 60_000
WAITERS_PART = 10
HANDLES = 1000
KEY = b"the-key"
KEYED = 200


def look(bench, consumers, persistent):
    """So many consumers attach; each looks at the whole queue."""
    bench.fill(persistent=persistent)
    peers = [bench.peer(f"selector-{number}") for number in range(consumers)]
    yield
    for peer in peers:
        peer.consume(DEEP, 10, drain=True, selector=NOTHING)
    for peer in peers:
        peer.until_looked()


def one(bench, persistent):
    yield from look(bench, 1, persistent)


def ten(bench, persistent):
    yield from look(bench, CONSUMERS, persistent)


def waiting(bench, persistent):
    """Consumers that have looked at everything and wait."""
    bench.fill(persistent=persistent)
    for number in range(CONSUMERS):
        peer = bench.peer(f"selector-{number}")
        peer.consume(DEEP, 10, drain=True, selector=NOTHING)
        peer.until_looked()
        # A drain took the credit: with this they wait.
        peer.send(frames.credit(0, 10, 10))


def release(bench, persistent):
    """The first message is taken and released, again and again."""
    waiting(bench, persistent)
    peer = bench.peer("releases")
    peer.consume(DEEP, 0)
    yield
    for number in range(RETURNS):
        peer.send(frames.credit(0, number, 1))
        fields = peer.until(wire.TRANSFER)
        delivery = wire.field(fields, 1)
        peer.send(frames.settle(delivery, delivery, frames.RELEASED, settled=False))
        peer.until_settled(1)


def roll_back(bench, persistent):
    """Messages are got in a unit of work that is rolled back, again and again."""
    waiting(bench, persistent)
    peer = bench.peer("rolls-back")
    unit = Unit(peer)
    peer.consume(DEEP, 0)
    gets = min(UNIT_GETS, bench.depth)
    yield
    for turn in range(RETURNS // 4):
        peer.send(frames.credit(0, turn * gets, gets))
        deliveries = [wire.field(peer.until(wire.TRANSFER), 1) for _ in range(gets)]
        peer.send(frames.settle(deliveries[0], deliveries[-1], wire.ACCEPTED, unit.declare()))
        unit.end(fail=True)


def keyed(bench, persistent, again=False):
    """The first get by correlation id; `again`: the first after a restart."""
    bench.fill_with(frames.message(bytes(64), persistent, correlation=frames.NUMBER))
    if again:
        bench.say("starts again")
        bench.restart()
    peer = bench.peer("keyed")
    yield
    peer.consume(DEEP, 1, selector=f"JMSCorrelationID = '{bench.depth - 1:08d}'")
    peer.until(wire.TRANSFER)


def keyed_again(bench):
    yield from keyed(bench, True, again=True)


def long_properties(bench):
    """A selector that walks through long properties and matches none of them."""
    text = "ab" * (LONG_BYTES // 2)
    bench.fill_with(frames.message(b"", properties=[("p", text)]), few(bench.depth))
    peer = bench.peer("walks")
    yield
    peer.consume(DEEP, 10, drain=True, selector="p LIKE '%a%b%a%c%' OR p LIKE '%b%a%b%c%'")
    peer.until_looked()


def keyed_waiters(bench):
    """Links that wait for the same key, and messages that have it."""
    peer, putter = bench.peer("waiters"), bench.peer("puts")
    count = max(1, bench.many // WAITERS_PART)
    attaches = [frames.consumer(handle, DEEP, selector=f"JMSCorrelationID = '{KEY.decode()}'", in_advance=True)
                for handle in range(1, min(count, HANDLES) + 1)]
    peer.send_all(attaches)
    peer.until_counted(wire.ATTACH, len(attaches))
    peer.send_all([frames.credit(handle + 1, 0, 1000) for handle in range(len(attaches))])
    yield
    Producer(putter, DEEP, frames.message(b"", correlation=KEY)).put(KEYED)
    peer.gather(KEYED)


CASES = [
    *both("selector", "a consumer with a selector that matches nothing, {depth} messages", one),
    *both("selector-ten", "ten such consumers, {depth} messages", ten, why_memory="ten connections"),
    *both("selector-release", "a message released 20 times beside ten selector consumers that wait, {depth} messages",
          release),
    *both("selector-rollback", "500 gets rolled back 5 times beside ten selector consumers that wait, {depth} messages",
          roll_back),
    *both("keyed", "the first get by correlation id, {depth} messages", keyed),
    Case("keyed-restart", "the same, persistent, after a restart", keyed_again),
    Case("selector-long", "a selector that walks through 60 KB of properties of each of {few} messages", long_properties),
    Case("keyed-waiters", "a thousand links that wait for one key, and 200 messages that have it", keyed_waiters),
]
