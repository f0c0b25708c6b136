"""Many connections, sessions, links and queues: that come, that are listed, that go. Not here: their messages."""

import contextlib
import socket
import time

from greedy import frames
from greedy.bench import SIZE_BYTES
from greedy.case import Case, temporary
from greedy.crowd import Crowd, allow
from towlab import wire
from towlab.getter import address_of

SESSIONS = 100
# Messages of one session in one turn: less than its link has credit for.
BATCH = 50
# handle-max of a session is 1,023.
LINKS_OF_SESSION = 1000
TURNS = 5
CROWD = "many connections"


def crowd(bench, count, **options):
    """Connections that are there."""
    found = Crowd(bench.manager.url, count, **options)
    bench.on_end(found.go)
    bench.say(f"connects {count:,} clients")
    found.come()
    return found


def come(bench):
    """All connect at once."""
    found = Crowd(bench.manager.url, bench.many)
    bench.on_end(found.go)
    allow(bench.many)
    yield
    return {"seconds_until_all_were_there": found.come(), "tries": found.tries}


def leave(bench):
    """All are gone at once."""
    found = crowd(bench, bench.many)
    yield
    found.go()


def leave_with_queues(bench):
    """The same, each with a queue of its own."""
    more = frames.consumer(0, None)
    found = crowd(bench, temporary(bench.many), more=more, until=wire.ATTACH)
    yield
    found.go()


def display_connections(bench):
    crowd(bench, bench.many)
    yield
    for _ in range(TURNS):
        bench.mqsc("DISPLAY CONN(*) ALL")


def sessions(bench):
    """Sessions of one connection that put and get as quickly as they can."""
    peer = bench.peer("sessions")
    for channel in range(1, SESSIONS):
        peer.send(frames.begin(channel))
    batches = []
    payload = frames.message(bytes(SIZE_BYTES))
    for channel in range(SESSIONS):
        peer.send(frames.producer(0, f"S{channel}", channel) +
                  frames.consumer(1, f"S{channel}", in_advance=True, channel=channel) +
                  frames.credit(1, 0, 1 << 30, channel=channel))
        batches.append(frames.Batch(0, payload, BATCH, channel=channel))
    peer.until_counted(wire.ATTACH, 2 * SESSIONS)
    yield
    end, turn, sent = time.monotonic() + bench.seconds, 0, 0
    while time.monotonic() < end:
        for number, batch in enumerate(batches, 1):
            peer.send(batch.numbered(turn * BATCH, BATCH))
            sent += BATCH
            # All of them are more than sockets hold: both sides would write, and neither read.
            if number % 10 == 0:
                peer.until_counted(wire.TRANSFER, sent)
        turn += 1
    return {"messages_per_s": sent / bench.seconds}


def links(bench):
    """Links of one connection that are attached at once, and detached at once."""
    peer = bench.peer("links")
    channels = -(-bench.many // LINKS_OF_SESSION)
    for channel in range(1, channels):
        peer.send(frames.begin(channel))
    places = [divmod(number, LINKS_OF_SESSION) for number in range(bench.many)]
    attaches = b"".join(frames.consumer(handle, "LINKS", channel=channel) +
                        frames.credit(handle, 0, 10, channel=channel) for channel, handle in places)
    detaches = b"".join(frames.detach(handle, channel) for channel, handle in places)
    yield
    for turn in range(1, TURNS + 1):
        peer.send(attaches)
        peer.until_counted(wire.ATTACH, turn * bench.many)
        peer.send(detaches)
        peer.until_counted(wire.DETACH, turn * bench.many)


def links_lost(bench):
    """A connection with as many links is reset."""
    peer = bench.peer("links")
    channels = -(-bench.many // LINKS_OF_SESSION)
    for channel in range(1, channels):
        peer.send(frames.begin(channel))
    for number in range(bench.many):
        channel, handle = divmod(number, LINKS_OF_SESSION)
        peer.send(frames.consumer(handle, "LINKS", channel=channel) + frames.credit(handle, 0, 10, channel=channel))
    peer.until_counted(wire.ATTACH, bench.many)
    yield
    peer.abort()


def queues(bench, ask):
    """Many queues, and somebody who asks for all of them."""
    bench.say(f"defines {bench.many:,} queues")
    bench.mqsc(*(f"DEFINE QLOCAL(Q{number})" for number in range(bench.many)))
    yield
    for _ in range(TURNS):
        ask(bench)


def queues_status(bench):
    yield from queues(bench, lambda bench: bench.towline("status", "--json", "--data", str(bench.data)))


def queues_display(bench):
    yield from queues(bench, lambda bench: bench.mqsc("DISPLAY QUEUE(*) ALL", "DISPLAY QSTATUS(*) ALL"))


def strangers(bench):
    """Clients that say something else than AMQP, again and again."""
    address = address_of(bench.manager.url)
    yield
    end, count = time.monotonic() + bench.seconds, 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(address, 5) as one:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")
            one.recv(100)
        count += 1
    return {"refused_per_s": count / bench.seconds}


CASES = [
    Case("connections", "{many} connections come at once", come, why_memory=CROWD, weight=12),
    Case("connections-leave", "{many} connections go at once", leave, why_memory=CROWD, weight=12),
    Case("temporary", "{temporary} clients with a temporary queue each go at once", leave_with_queues, why_memory=CROWD,
         weight=12),
    Case("display-conn", "DISPLAY CONN(*) ALL five times, {many} connections", display_connections, why_memory=CROWD,
         weight=12),
    Case("sessions", "100 sessions of one connection put and get", sessions),
    Case("links", "{many} links of one connection are attached and detached at once, five times", links),
    Case("links-lost", "a connection with {many} links is reset", links_lost),
    Case("status", "`towline status --json` five times, {many} queues", queues_status, weight=20),
    Case("display-queue", "DISPLAY QUEUE(*) ALL and QSTATUS(*) ALL five times, {many} queues", queues_display,
         weight=20),
    Case("strangers", "connections that do not speak AMQP, one after the other", strangers),
]
