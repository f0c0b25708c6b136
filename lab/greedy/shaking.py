"""Clients that begin the handshake of TLS, get the answer of the queue manager, and go: the dear part of a login.

Each sends the same hello, made once. Not here: clients that go on.
"""

import errno
import selectors
import socket
import ssl
import time

from greedy.case import Case
from greedy.crowd import ADDRESS, IP_BIND_ADDRESS_NO_PORT, allow

NAME = "a"
AT_ONCE = 200
# Of a record with alert or handshake, of TLS 1.3.
HANDSHAKE = 22


def start(bench):
    """A queue manager with two listeners; the second has TLS."""
    papers = bench.folder / "papers"
    bench.towline("group", "certificates", "--out", str(papers), "--name", "LAB", "--instances", NAME)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bench.tls_address = free.getsockname()
    config = bench.folder / "towline.toml"
    config.write_text('[[listener]]\naddress = "127.0.0.1:0"\nallow_plaintext = true\nallow_anonymous = true\n'
                      f'[[listener]]\naddress = "127.0.0.1:{bench.tls_address[1]}"\n'
                      f'certificate = "{papers}/{NAME}.pem"\nprivate_key = "{papers}/{NAME}-key.pem"\n')
    bench.start(config=config, listen=None)


def hello():
    """What a client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    there = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), there).do_handshake()
    except ssl.SSLWantReadError:
        return there.read()
    raise AssertionError("a handshake needs an answer")


def dial(poll, address):
    one = socket.socket()
    one.setblocking(False)
    one.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    one.bind((ADDRESS, 0))
    if one.connect_ex(address) not in (0, errno.EINPROGRESS):
        one.close()
        return
    poll.register(one, selectors.EVENT_WRITE)


def turn(poll, key, events, said):
    """Goes on with one; true when it was answered, None when it was lost, false when it waits."""
    one, answered = key.fileobj, None
    try:
        if events & selectors.EVENT_WRITE:
            one.sendall(said)
            poll.modify(one, selectors.EVENT_READ)
            return False
        answered = one.recv(1 << 14)[:1] == bytes([HANDSHAKE]) or None
    except OSError:
        pass
    poll.unregister(one)
    one.close()
    return answered


def handshakes(bench):
    """So many at once, again and again."""
    allow(AT_ONCE)
    said = hello()
    yield
    end, answered, lost = time.monotonic() + bench.seconds, 0, 0
    with selectors.EpollSelector() as poll:
        while time.monotonic() < end:
            while len(poll.get_map()) < AT_ONCE:
                dial(poll, bench.tls_address)
            for key, events in poll.select(0.1):
                ended = turn(poll, key, events, said)
                answered += ended is True
                lost += ended is None
        for key in list(poll.get_map().values()):
            key.fileobj.close()
    return {"handshakes_per_s": answered / bench.seconds, "lost_per_s": lost / bench.seconds}


CASES = [Case("handshakes", f"{AT_ONCE} clients begin the handshake of TLS and go, again and again", handshakes, start=start)]
