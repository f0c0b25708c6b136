"""Multi-instance mode as processes: two on one data folder, one active and one standing by, and what goes wrong.

On loopback, an address each; clients have both. The folder is one of this machine: what a file system of another
machine adds is not here. When one became active is read from its own messages (TWL1002I).
"""

import contextlib
import datetime
import json
import pathlib
import signal
import subprocess
import time

from towlab.queue_manager import Failed

NAMES = ("a", "b")
READY = "TWL1002I"
CLIENTS_PORT = 5672
STATUS_S = 10


class Shared:
    """The topology: two processes, one folder, a lease. Its methods are those of `towlab.group.Native`."""

    title = "multi-instance"
    words = "two processes on one folder of this machine, clients with both addresses; its switch is an orderly end"
    # With a folder that both reach, packets that only clients miss end no lease.
    lacks = ("FN500U", "power")
    needs_machines = False

    def __init__(self, binary, folder, _lan=None):
        self.binary, self.folder = str(binary), pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes = {}

    def url(self, name):
        return f"amqp://127.78.1.{NAMES.index(name) + 1}:{CLIENTS_PORT}"

    def urls(self):
        active = self.active()
        return [self.url(name) for name in sorted(NAMES, key=lambda name: name != active)]

    def on(self, _host):
        return []

    def log_path(self, name):
        return self.folder / f"{name}.log"

    def start(self, name):
        address = self.url(name).removeprefix("amqp://")
        command = [self.binary, "run", "LAB", "--data", str(self.folder / "data"), "--listen", address, "--standby",
                   "--auto-define", "*"]
        with open(self.log_path(name), "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                    stderr=log, process_group=0)

    def start_all(self):
        for name in NAMES:
            self.start(name)
        return self.until_whole()

    def status(self):
        """What the active one says of itself; nothing when there is none."""
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
            done = subprocess.run([self.binary, "status", "--json", "--data", str(self.folder / "data")],
                                  capture_output=True, text=True, timeout=STATUS_S, check=False)
            return json.loads(done.stdout) if done.returncode == 0 else {}
        return {}

    def active(self):
        pid = self.status().get("pid")
        return next((name for name, process in self.processes.items() if process.pid == pid), None)

    def until(self, what, holds, limit=120):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            found = holds()
            if found:
                return found
            time.sleep(0.05)
        raise Failed(f"waited {limit} s in vain for: {what}; see {self.folder}")

    def until_whole(self):
        """Waits until one is active and the other stands by, which is started again when it ended; the active one."""
        def whole():
            for name in NAMES:
                if self.processes[name].poll() is not None:
                    self.start(name)
            status = self.status()
            return self.active() if len(status.get("shared", {}).get("standbys", [])) == 1 else None
        return self.until("one active and one standing by", whole)

    def until_connected(self, clients):
        self.until(f"{clients} clients", lambda: self.status().get("connections", 0) >= clients)

    def became_active(self, since):
        """Unix time at which the first one was ready after `since`; None when none was."""
        moments = []
        for name in NAMES:
            for line in self.log_path(name).read_text(errors="replace").splitlines():
                if READY in line:
                    moments.append(datetime.datetime.fromisoformat(line.split()[0]).timestamp())
        return min((moment for moment in moments if moment >= since), default=None)

    # What goes wrong. Each gives back what undoes it.

    def switch(self, active):
        """The planned switch of this topology: the active one is told to end, in order."""
        self.processes[active].send_signal(signal.SIGTERM)
        return lambda: None

    def kill(self, active):
        self.processes[active].kill()
        self.processes[active].wait()
        return lambda: None

    def stand_still(self, active):
        self.processes[active].send_signal(signal.SIGSTOP)

        def back():
            self.processes[active].send_signal(signal.SIGCONT)
            # It finds that its lease has run out.
            self.processes[active].wait(60)
        return back

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
