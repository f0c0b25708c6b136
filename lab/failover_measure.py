"""One round of a fail-over test: clients at work, a fault, clients back, the group whole again.

Not here: what the rounds mean (failover_report.py).
"""

import json
import random
import shutil
import subprocess
import time

from towlab import recovery
from towlab.floating import Floating
from towlab.group import Native
from towlab.lan import Lan
from towlab.queue_manager import Failed
from towlab.shared import Shared

QUEUES = ("--queue", "L%d", "--queues", "10", "--size", "2048", "--persistent")


class Test:
    """What clients do, what goes wrong, and how long is looked."""

    def __init__(self, words, fault, mode, clients, rate=0, after=3.0, undo=1.5, machines=False, idle_s=None):
        self.words, self.fault, self.mode, self.clients, self.rate = words, fault, mode, clients, rate
        # Seconds after the fault: how long clients are looked at, and when the fault is taken back.
        self.after, self.undo, self.machines, self.idle_s = after, undo, machines, idle_s

    @property
    def period(self):
        return self.clients / self.rate if self.rate else 0


# Nothing is heard of a fault for HeartbeatTimeout; then clients come back within seconds.
DARK = {"after": 6.5, "undo": 4.0, "idle_s": 2}
TESTS = {
    "S1000": Test("planned switch, 1,000 clients x 1 put + get per s in units of work", "switch", "transaction", 1000,
                  rate=1000, after=4.0),
    "S500U": Test("planned switch, 500 clients unrated in units of work", "switch", "transaction", 500,
                  after=4.0),
    "FN500U": Test("network of the active drops all packets, 500 clients unrated in units of work", "network_drop",
                   "transaction", 500, machines=True, **DARK),
    "kill": Test("kill -9 of the active, 200 clients x 1 put per s", "kill", "put", 200, rate=200),
    "SIGSTOP": Test("the active is stopped for 4 s, 200 clients x 1 put per s", "stand_still", "put", 200, rate=200,
                    **DARK),
    "power": Test("the active's machine is gone without a word, 200 clients x 1 put per s", "power_loss", "put", 200,
                  rate=200, machines=True, **DARK),
}
# Before the fault, at the least: what "previous rate" means is measured in it. The moment itself is random, against
# everything that is periodic.
STEADY_S = recovery.BEFORE_S
# The moment is somewhere in so much more; beside all of it, so much is spent until all is whole again.
RANDOM_S, WHOLE_S = 0.5, 1.5
TOPOLOGIES = {"native": Native, "shared": Shared, "floating": Floating}


def tests_of(topology, only):
    """The names of `only` that say something of a topology."""
    return [name for name in only if name not in TOPOLOGIES[topology].lacks]


class Lab:
    """Holds the group that is in use; one at a time."""

    def __init__(self, args, work):
        self.args, self.work = args, work
        self.group, self.kind, self.lan = None, None, None
        self.say = lambda text: None

    def steps(self):
        """All steps in order: name, weight (about seconds), function that gives a JSON object."""
        return [(f"{topology} {name} #{turn + 1}", STEADY_S + RANDOM_S + TESTS[name].after + WHOLE_S,
                 lambda topology=topology, name=name: self.round(topology, name))
                for topology in self.args.topologies for name in tests_of(topology, self.args.only)
                for turn in range(self.args.rounds)]

    def use(self, topology, test):
        machines = test.machines or TOPOLOGIES[topology].needs_machines
        kind = (topology, machines)
        if self.kind != kind:
            self.close()
            if machines:
                self.lan = Lan(["a", "b", "c", "client"])
            folder = self.work / f"{topology}-{'machines' if machines else 'loopback'}"
            shutil.rmtree(folder, ignore_errors=True)
            self.group = TOPOLOGIES[topology](self.args.towline, folder, self.lan)
            self.kind = kind
            self.group.start_all()
        return self.group

    def close(self):
        if self.group is not None:
            self.group.close()
        if self.lan is not None:
            self.lan.close()
        self.group, self.kind, self.lan = None, None, None

    def begin_load(self, group, name, seconds):
        test = TESTS[name]
        on = self.lan.on("client") if self.lan else []
        command = [*on, self.args.towline, "load", test.mode, "--clients", str(test.clients), *QUEUES, "--seconds",
                   str(seconds), "--events", str(self.work / f"events-{name}.csv"), "--quiet", "--json", "-",
                   "--verify-drain", "--reconnect"]
        command += ["--rate", str(test.rate)] if test.rate else []
        command += ["--idle-timeout", str(test.idle_s)] if test.idle_s else []
        for url in group.urls():
            command += ["--url", url]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, process_group=0)

    def round(self, topology, name):
        test = TESTS[name]
        group = self.use(topology, test)
        group.until_whole()
        began = time.monotonic()
        until_fault = STEADY_S + RANDOM_S * random.random()
        # What connecting takes is on top; a longer run only costs time.
        load = self.begin_load(group, name, until_fault + test.after + 0.5)
        undo = lambda: None
        try:
            group.until_connected(test.clients)
            active = group.active()
            time.sleep(until_fault)
            if active is None:
                raise Failed("no active instance before the fault")
            at = time.time()
            undo = getattr(group, test.fault)(active)
            time.sleep(max(0.0, at + test.undo - time.time()))
            undo()
            undo = lambda: None
            out, errors = load.communicate(timeout=240)
        finally:
            undo()
            if load.poll() is None:
                load.kill()
                load.communicate()
        report = json.loads(out) if out.strip() else {}
        if not report:
            raise Failed(f"towline load {name}: {errors.strip()[-500:]}")
        active_at = group.became_active(at)
        events = recovery.read(self.work / f"events-{name}.csv")
        found = recovery.figures(events, at, active_at, test.period, test.after)
        verdict = report["verdict"]
        group.until_whole()
        return {**found, "active_s": active_at and active_at - at, "lost": verdict["lost"],
                "duplicated": verdict["duplicated"], "in_doubt": verdict["in_doubt"],
                "unfinished": report["unfinished"], "puts_per_s": report["puts"]["per_second"],
                "reconnects": report["reconnects"], "took_s": time.monotonic() - began}
