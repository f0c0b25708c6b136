"""What another client notices: puts at a low fixed rate to queues of its own, and the status, in processes of their own.

The puts are those of `towline load`, an open loop: each is due at a fixed time and is timed from then, so a stall
counts for all that were due in it. Not here: who is greedy meanwhile.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from towlab.queue_manager import Failed

LAB = pathlib.Path(__file__).resolve().parent.parent
RATE, SIZE_BYTES = 200, 1024
# Far more than is under way in any stall: no put waits for the answer to an earlier one.
WINDOW = 10_000
KINDS = ("persistent", "non-persistent")
END_S = 120
PUTS = re.compile(r"\bPUTS\((\d+)\)")
# The probes stand for clients on other machines: what shares this one makes way for them (root).
FIRST, USUAL, LAST = -10, 0, 10


@contextlib.contextmanager
def niceness(level):
    """What this thread does, and the processes that it begins, has this priority (root only)."""
    if os.geteuid() != 0:
        yield
        return
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, level)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


class Probes:
    """Under way from the first until `end`."""

    def __init__(self, manager, control=True):
        """`control`: whether the sockets in the data folder can be asked."""
        self.manager = manager
        self.puts, self.status = {}, None
        try:
            with niceness(FIRST):
                self.begin(str(manager.folder) if control else "-")
            self.until_put()
        except BaseException:
            # Also when the run is ended in this moment: nobody else knows of them yet.
            self.kill()
            raise

    def begin(self, folder):
        self.before = {kind: self.puts_of(kind) for kind in KINDS}
        for kind in KINDS:
            self.puts[kind] = self.put(kind)
        self.status = subprocess.Popen(
            [sys.executable, "-m", "towlab.status_probe", folder, self.manager.url, str(self.manager.process.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=LAB)

    def put(self, kind):
        command = [self.manager.binary, "load", "put", f"--{kind}", "--clients", "1", "--queue", queue_of(kind),
                   "--rate", str(RATE), "--window", str(WINDOW), "--size", str(SIZE_BYTES), "--seconds", "86400",
                   "--reconnect", "--quiet", "--json", "-", "--url", self.manager.url]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, process_group=0)

    def until_put(self, limit=60):
        """Waits until both have put something more than before: it is measured from then on."""
        end = time.monotonic() + limit
        for kind, process in self.puts.items():
            while self.puts_of(kind) <= self.before[kind]:
                if process.poll() is not None or time.monotonic() > end:
                    process.kill()
                    raise Failed(f"the {kind} probe puts nothing: {process.communicate()[1][-300:]}")
                time.sleep(0.02)

    def until_calm(self, limit=60):
        """Waits until puts go on: one that still waits at the end of a probe is not in its figures."""
        for _ in range(2):
            self.before = {kind: self.puts_of(kind) for kind in KINDS}
            self.until_put(limit)

    def puts_of(self, kind):
        """Puts to its queue since that was defined; 0 when it is not there yet."""
        asked = subprocess.run([self.manager.binary, "mqsc", "--data", str(self.manager.folder), "-c",
                                f"DISPLAY QSTATUS('{queue_of(kind)}') PUTS"], capture_output=True, text=True, check=False)
        found = PUTS.search(asked.stdout)
        return int(found[1]) if found else 0

    def end(self):
        """Ends the probes; what they found."""
        try:
            for process in self.puts.values():
                process.send_signal(signal.SIGINT)
            found = {kind: put_figures(kind, *process.communicate(timeout=END_S))
                     for kind, process in self.puts.items()}
            out, errors = self.status.communicate(timeout=END_S)
            if not out.strip():
                raise Failed(f"the status probe ended: {errors.strip()[-300:]}")
            return {**found, "status": json.loads(out)}
        except subprocess.TimeoutExpired as error:
            raise Failed(f"a probe did not end within {END_S} s") from error
        finally:
            self.kill()

    def kill(self):
        for process in filter(None, (*self.puts.values(), self.status)):
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
                pipe.close()


def queue_of(kind):
    return f"PROBE.{kind.upper()}"


def put_figures(kind, out, errors):
    """Latencies in ms of a report of `towline load`, and what went wrong."""
    report = json.loads(out) if out.strip() else {}
    found = [one for one in report.get("latencies_us", []) if one["of"] == "put"]
    if not found:
        raise Failed(f"the {kind} probe has no latencies: {errors.strip()[-300:]}")
    latencies = {f"{name}_ms": found[0][name] / 1000 for name in ("p50", "p99", "p999", "max")}
    return {**latencies, "count": found[0]["count"], "refused": report["refused"], "lost": report["verdict"]["lost"],
            "reconnects": report["reconnects"], "unfinished": report["unfinished"]}
