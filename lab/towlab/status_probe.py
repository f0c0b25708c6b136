"""Asks a queue manager for its status again and again, and looks at its memory, until standard input ends.

A process of its own (`python3 -m towlab.status_probe FOLDER URL PID`), so that nothing else in Python delays it. Three
ways: the control socket in the data folder; `$admin` over a fresh AMQP connection to the local socket there; and only a
login over TCP, where nobody may administer without a name. At the end it prints JSON: seconds of each answer by way,
answers that did not come, and resident bytes at first and at most.
"""

import contextlib
import json
import os
import pathlib
import socket
import sys
import threading
import time

from towlab import wire
from towlab.getter import Broken, Peer, address_of

EVERY_S = 0.25
MEMORY_EVERY_S = 0.02
# What `towline status` waits for an answer unless told otherwise.
PATIENCE_S = 30
CONTROL, LOCAL = "towline-control.sock", "towline.sock"
ADMIN, KIND = "$admin", "kind"


def by_control(folder):
    """One status over the control socket, where one line is asked and one is answered."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(PATIENCE_S)
        asking.connect(f"{folder}/{CONTROL}")
        asking.sendall(b'{"do":"status"}\n')
        with asking.makefile("rb") as lines:
            if not lines.readline().startswith(b'{"ok"'):
                raise Broken("no status")


def request():
    """A request for the status, as administration takes it."""
    properties = wire.described(0x73, *[wire.NULL] * 4, wire.text(ADMIN), wire.text("1"))
    pair = wire.text(KIND) + wire.text("status")
    kind = b"\x00\x53\x74\xd1" + (len(pair) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + pair
    transfer = wire.described(wire.TRANSFER, wire.uint(1), wire.uint(0), wire.binary(b"1"), wire.uint(0), wire.TRUE,
                              wire.FALSE)
    return wire.frame(transfer + properties + kind + b"\x00\x53\x77" + wire.text(""))


def by_login(url):
    """A connection that may begin to put and get."""
    with contextlib.closing(Peer(address_of(url), "login")) as peer:
        peer.socket.settimeout(PATIENCE_S)
        peer.send(wire.hello("lab-login"))
        peer.until(wire.BEGIN)


def by_amqp(folder):
    """One status over a connection of its own: the answer may be many frames long."""
    with contextlib.closing(Peer(f"{folder}/{LOCAL}", "status")) as peer:
        peer.socket.settimeout(PATIENCE_S)
        peer.send(wire.hello("lab-status") + wire.receiver(0, ADMIN, 10) + wire.sender(1, ADMIN))
        # Only the link to it is given credit.
        while not wire.field(peer.until(wire.FLOW), 6):
            pass
        peer.send(request())
        while wire.field(peer.until(wire.TRANSFER), 5):
            pass


class Probe:
    """Threads: one for each way to ask, and one for the memory."""

    def __init__(self, folder, url, pid):
        self.status = pathlib.Path(f"/proc/{pid}/status")
        self.over = threading.Event()
        self.failures, self.resident = [], []
        self.threads = [threading.Thread(target=self.watch)]
        ways = {"login": lambda: by_login(url)}
        if folder:
            ways |= {"control": lambda: by_control(folder), "amqp": lambda: by_amqp(folder)}
        self.answers = {name: [] for name in ways}
        for name, ask in ways.items():
            self.threads.append(threading.Thread(target=self.ask_again, args=(name, ask)))

    def ask_again(self, name, ask):
        """Each 250 ms, or when the answer before has come."""
        due = time.monotonic()
        while not self.over.is_set():
            began = time.monotonic()
            try:
                ask()
            except (OSError, Broken) as error:
                self.failures.append(f"{name}: {error}")
            self.answers[name].append(time.monotonic() - began)
            due = max(due + EVERY_S, time.monotonic())
            self.over.wait(due - time.monotonic())

    def watch(self):
        while not self.over.is_set():
            try:
                lines = self.status.read_text().splitlines()
            except OSError:
                return
            found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")]
            self.resident = [self.resident[0], max([self.resident[1], *found])] if self.resident else found * 2
            self.over.wait(MEMORY_EVERY_S)

    def run(self, until):
        """Asks until `until` comes back; what was found."""
        for thread in self.threads:
            thread.start()
        until()
        self.over.set()
        for thread in self.threads:
            thread.join()
        first, most = self.resident or (None, None)
        return {**self.answers, "failures": self.failures, "resident_first": first, "resident_most": most}


def main():
    folder, url, pid = sys.argv[1:]
    found = ""
    if folder != "-":
        # The path of a socket must be short: both are reached through the folder, which stays open.
        found = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}"
    print(json.dumps(Probe(found, url, pid).run(sys.stdin.read)))


if __name__ == "__main__":
    main()
