"""A group of three instances of ours as processes: start, ask, switch, and the things that go wrong.

On loopback (addresses of its own below 127.0.0.0/8) or on a `Lan`, one machine each. When an instance became active
is read from its own messages (TWL4203I), so nobody has to poll while it is measured. Not here: clients.
"""

import datetime
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import zlib

from towlab.queue_manager import Failed

NAMES = ("a", "b", "c")
CLIENTS_PORT, LINKS_PORT = 5672, 5700
ACTIVE = "TWL4203I"
ANSWER_S = 5


class Native:
    """The topology: three instances that replicate their log, clients with a list of all addresses."""

    title, words = "native", "three instances, a log each, clients with a list of all addresses"
    # Names of tests that say nothing of this topology, and whether it works only on machines of its own.
    lacks = ()
    needs_machines = False

    # Name of the group, which its certificates have too.
    group = "LAB"

    def __init__(self, binary, folder, lan=None, more=()):
        self.binary, self.folder, self.lan, self.more = str(binary), pathlib.Path(folder), lan, tuple(more)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes = {}
        papers = self.folder / "papers"
        subprocess.run([self.binary, "group", "certificates", "--out", str(papers), "--name", "LAB", "--group", self.group,
                        "--instances", ",".join(NAMES)], check=True, stdout=subprocess.DEVNULL)
        for name in NAMES:
            (self.folder / f"{name}.toml").write_text(self.config(name, papers))

    def host(self, name):
        # Of its folder: labs of two checkouts run side by side.
        net = zlib.crc32(bytes(self.folder.resolve())) % 250
        return self.lan.address(name) if self.lan else f"127.78.{net}.{NAMES.index(name) + 1}"

    def config(self, name, papers):
        members = "".join(f'\n[[group.member]]\nname = "{other}"\naddress = "{self.link(name, other)}"\n'
                          for other in NAMES)
        # Off loopback, on the lab's own bridge, nobody logs in.
        return (f'[[listener]]\naddress = "{self.host(name)}:{CLIENTS_PORT}"\nallow_plaintext = true\n'
                f'allow_anonymous = true\n[group]\nname = "LAB"\ninstance = "{name}"\n'
                f'certificate = "{papers}/{name}.pem"\nprivate_key = "{papers}/{name}-key.pem"\n'
                f'authorities = "{papers}/authority.pem"\n{members}')

    def link(self, _name, other):
        """Where an instance finds another one, or takes links itself."""
        return f"{self.host(other)}:{LINKS_PORT}"

    def url(self, name):
        return f"amqp://{self.host(name)}:{CLIENTS_PORT}"

    def urls(self):
        """The active one first: there most clients are, as in the published tests."""
        active = self.active()
        return [self.url(name) for name in sorted(NAMES, key=lambda name: name != active)]

    def on(self, host):
        return self.lan.on(host) if self.lan else []

    def log_path(self, name):
        return self.folder / f"{name}.log"

    def start(self, name):
        command = [*self.on(name), self.binary, "run", "LAB", "--data", str(self.folder / name), "--config",
                   str(self.folder / f"{name}.toml"), "--auto-define", "*", *self.more]
        with open(self.log_path(name), "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                    stderr=log, process_group=0)

    def start_all(self):
        for name in NAMES:
            self.start(name)
        return self.until_whole()

    def ask(self, name, order):
        """What an instance answers on its control socket; None when it does not."""
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(ANSWER_S)
                asking.connect(str(self.folder / name / "towline-control.sock"))
                asking.sendall(json.dumps(order).encode() + b"\n")
                with asking.makefile("rb") as lines:
                    return json.loads(lines.readline() or b"{}").get("ok")
        except (OSError, ValueError):
            return None

    def status(self, name):
        return (self.ask(name, {"do": "status"}) or {}) if self.running(name) else {}

    def running(self, name):
        return name in self.processes and self.processes[name].poll() is None

    def active(self):
        """The active instance of the newest term; None when there is none."""
        said = ((name, self.status(name).get("group") or {}) for name in NAMES)
        found = [(group["term"], name) for name, group in said if group.get("role") == "active"]
        return max(found)[1] if found else None

    def until(self, what, holds, limit=120):
        """Waits until a condition gives something, which is returned."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            found = holds()
            if found:
                return found
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if ended:
                raise Failed(f"{' and '.join(ended)} ended; see {self.folder}")
            time.sleep(0.05)
        raise Failed(f"waited {limit} s in vain for: {what}; see {self.folder}")

    def until_whole(self):
        """Waits until all are in sync; the active one."""
        def whole():
            active = self.active()
            group = (self.status(active).get("group") or {}) if active else {}
            return active if group.get("in_sync_count") == len(NAMES) and group.get("serving") else None
        return self.until("three instances in sync", whole)

    def until_connected(self, clients):
        """Waits until the active one has so many connections."""
        def connected():
            active = self.active()
            status = (self.status(active).get("status") or {}) if active else {}
            return status.get("connections", 0) >= clients
        self.until(f"{clients} clients", connected)

    def became_active(self, since):
        """Unix time at which the first instance became active after `since`; None when none did."""
        moments = []
        for name in NAMES:
            for line in self.log_path(name).read_text(errors="replace").splitlines():
                if ACTIVE in line:
                    moments.append(datetime.datetime.fromisoformat(line.split()[0]).timestamp())
        return min((moment for moment in moments if moment >= since), default=None)

    # What goes wrong. Each gives back what undoes it.

    def pid(self, name):
        """Of the instance itself: `ip netns exec` becomes what it runs."""
        return self.processes[name].pid

    def switch(self, active):
        other = next(name for name in NAMES if name != active)
        # Asked through another one, which stays there to answer.
        asked = self.ask(other, {"do": "switch", "to": None})
        if asked is None:
            raise Failed("no switch")
        return lambda: None

    def kill(self, active):
        self.processes[active].kill()
        self.processes[active].wait()
        return lambda: self.start(active)

    def stand_still(self, active):
        self.processes[active].send_signal(signal.SIGSTOP)
        return lambda: self.processes[active].send_signal(signal.SIGCONT)

    def network_drop(self, active):
        self.lan.drop(active)
        return lambda: self.lan.heal(active)

    def power_loss(self, active):
        """The machine is gone: its process, and nobody is told."""
        self.lan.drop(active)
        self.kill(active)

        def back():
            self.lan.heal(active)
            self.start(active)
        return back

    def cpu_s(self):
        """CPU seconds of each instance so far; a new term may begin by exec, which keeps them."""
        ticks = os.sysconf("SC_CLK_TCK")
        found = {}
        for name, process in self.processes.items():
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            found[name] = (int(fields[11]) + int(fields[12])) / ticks
        return found

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
