"""Two Artemis brokers, of which one mirrors to the other through proxies that delay: what Artemis has for a second region.

Settings of each broker are those of artemis.py (NIO journal, forced to disk before an acknowledgement). The mirror is
asynchronous (`sync="false"`) and durable, over plain AMQP: Artemis has neither replicas inside a region nor compression
in this set-up, so absolute figures are not compared, only each product with itself. Not here: clients.
"""

import os
import re
import shutil
import signal
import subprocess
import time

from peers import artemis
from towlab.process import group_cpu_s, until_listens
from towlab.queue_manager import Failed
from towlab.slow_net import SlowNet

ROLES = ("live", "copy")
HEAP = "2G"
EACH_WAY_US = 20_000
# Headers, open, begin and attach are more; measured 2,771 bytes, with the queues that are there.
ATTACHED_BYTES = 1500
MARK = "<broker-connections>.*?</broker-connections>\n?"


class Mirrored:
    """Both brokers with empty journals; with `mirrors` the live one mirrors to the copy, else both are up."""

    def __init__(self, slow_net, mirrors):
        self.processes, self.ports, self.net = {}, {role: artemis.free_port() for role in ROLES}, None
        home, front = artemis.fetch(), artemis.free_port()
        try:
            for role in ROLES:
                artemis.create(home, self.ports[role], HEAP, folder(role))
                configure(role, self.ports[role], front if mirrors and role == "live" else None)
            self.net = SlowNet(slow_net, [(f"127.0.0.1:{front}", f"127.0.0.1:{self.ports['copy']}")])
            self.net.order(f"delay {EACH_WAY_US}")
            # The copy first: a mirror whose first connection ends before it is open does not try again.
            for role in ROLES[::-1]:
                self.start(role)
                until_listens("127.0.0.1", self.ports[role], 90)
            if mirrors:
                self.until_attached()
        except BaseException:
            self.close()
            raise
        self.url = f"amqp://127.0.0.1:{self.ports['live']}"

    def start(self, role):
        with open(artemis.CACHE / f"{role}.log", "ab") as log:
            self.processes[role] = subprocess.Popen([folder(role) / "bin" / "artemis", "run"], stdin=subprocess.DEVNULL,
                                                    stdout=log, stderr=log, process_group=0)

    def until_attached(self, limit=60):
        """Waits until the copy gave the mirror credit: some frames have gone there."""
        end = time.monotonic() + limit
        while self.net.passed([0]) < ATTACHED_BYTES:
            if time.monotonic() > end:
                raise Failed(f"Artemis does not mirror after {limit} s, see {artemis.CACHE}")
            time.sleep(0.1)

    def cpu_s(self):
        """CPU seconds so far of each broker, and of the network."""
        found = {role: group_cpu_s(process.pid) for role, process in self.processes.items()}
        return {**found, "network": self.net.cpu_s()}

    def until_quiet(self, limit=120, still_s=3.0):
        """Seconds until nothing more goes to the copy: how far it was behind when the clients ended."""
        began = grown = time.monotonic()
        passed = self.net.passed([0])
        while time.monotonic() - grown < still_s:
            time.sleep(0.05)
            now = self.net.passed([0])
            if now - passed > 4096:  # more than heartbeats
                passed, grown = now, time.monotonic()
            if time.monotonic() - began > limit:
                raise Failed(f"the mirror is not done after {limit} s")
        return grown - began

    def close(self):
        for process in self.processes.values():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        if self.net:
            self.net.close()


def folder(role):
    return artemis.CACHE / f"mirror-{role}"


def configure(role, port, mirror_port):
    """Port and mirror of a broker; its journal is emptied."""
    shutil.rmtree(folder(role) / "data", ignore_errors=True)
    path = folder(role) / "etc" / "broker.xml"
    text = artemis.replaced(path.read_text(), r"tcp://127\.0\.0\.1:\d+\?", f"tcp://127.0.0.1:{port}?")
    text = re.sub(MARK, "", text, flags=re.DOTALL)
    if mirror_port:
        # The proxy takes any address: what is cut off or delayed there is between the two.
        connection = (f'<broker-connections><amqp-connection uri="tcp://127.0.0.1:{mirror_port}" name="copy" '
                      'retry-interval="500"><mirror sync="false" durable="true"/></amqp-connection></broker-connections>\n')
        text = artemis.replaced(text, r"(<acceptors>)", connection.replace("\\", r"\\") + r"\1")
    path.write_text(text)
