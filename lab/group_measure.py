"""One piece of what a group costs: a load on a single instance, a group, a distant group, or a group of somebody else.

Each piece starts what it measures and ends it, so that nothing else runs meanwhile. Not here: what the figures mean
(group_report.py).
"""

import json
import shutil
import subprocess
import time

from peers import pairs
from peers.nats import Nats
from peers.rabbitmq import RabbitMQ
from towlab import recovery
from towlab.distant import Distant
from towlab.group import Native
from towlab.queue_manager import Failed, QueueManager

PARTS = ("single", "distance", "peers", "kill")
CLIENTS = {"single": (50, 200), "distance": (64, 512), "peers": (50, 200)}
# Half of a millisecond on each way.
DISTANCES = {"local": None, "proxies": 0, "+1 ms": 500}
WARMUP_S = 2.0
KILL_CLIENTS, KILL_STEADY_S, KILL_AFTER_S = 200, 2.5, {"Towline": 4.0, "RabbitMQ": 8.0, "NATS": 14.0}


class Towline(Native):
    """The group as one of the brokers that are compared."""

    title = "Towline group"
    kind, address = "amqp", "lab"

    def leader(self):
        return self.active()


BROKERS = {"Towline": Towline, "RabbitMQ": RabbitMQ, "NATS": Nats}


class Lab:
    """Measures pieces below a folder."""

    def __init__(self, args, work):
        self.args, self.work = args, work

    def steps(self):
        """All steps in order: name, weight (about seconds), function that gives a JSON object."""
        out = []
        for part in PARTS:
            if part in self.args.only:
                for turn in range(self.args.rounds):
                    out += [(f"{part} {who} #{turn + 1}", weight, measure) for who, weight, measure in self.turn(part)]
        return out

    def turn(self, part):
        """What is measured one after the other in one round, so that all meet the same machine."""
        run = WARMUP_S + self.args.seconds
        if part == "single":
            return [("single", 2 * run + 1, self.single), ("group", 2 * run + 2, self.group)]
        if part == "distance":
            return [(name, 2 * run + 2, lambda delay=delay: self.distant(delay)) for name, delay in DISTANCES.items()]
        if part == "peers":
            return [(name, 2 * run + 12, lambda name=name: self.peer(name)) for name in BROKERS]
        return [(name, KILL_STEADY_S + KILL_AFTER_S[name] + 8, lambda name=name: self.kill(name)) for name in BROKERS]

    def folder(self):
        folder = self.work / "now"
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def delay(self):
        return ("--log-sync-delay-us", str(int(self.args.sync_delay_ms * 1000)))

    def load(self, url, clients):
        """`towline load`, pairs; its report."""
        done = subprocess.run(
            [self.args.towline, "load", "requester", "--clients", str(clients), "--queue", "LAB", "--size", "2048",
             "--persistent", "--warmup", str(WARMUP_S), "--seconds", str(self.args.seconds), "--quiet", "--json", "-",
             "--url", url], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        report = json.loads(done.stdout) if done.stdout.strip() else {}
        if not report.get("passed"):
            raise Failed(f"towline load, {clients} clients: {done.stderr.strip()[-500:]}")
        return report["pairs"]["per_second"]

    def single(self):
        folder = self.folder()
        folder.mkdir(parents=True)
        manager = QueueManager(self.args.towline, folder / "data", folder / "log", more=self.delay())
        try:
            return {str(clients): {"pairs": self.load(manager.url, clients)} for clients in CLIENTS["single"]}
        finally:
            manager.kill()

    def group(self):
        return self.group_load(Native(self.args.towline, self.folder(), more=self.delay()), CLIENTS["single"])

    def distant(self, delay_us):
        folder = self.folder()
        group = (Native(self.args.towline, folder) if delay_us is None else
                 Distant(self.args.towline, folder, self.args.slow_net, delay_us))
        return self.group_load(group, CLIENTS["distance"])

    def group_load(self, group, ladder):
        """Pairs per second, and processor time of the replicas (their mean) for each second of the active one."""
        found = {}
        try:
            active = group.start_all()
            for clients in ladder:
                before = group.cpu_s()
                rate = self.load(group.url(active), clients)
                cpu = {name: after - before[name] for name, after in group.cpu_s().items()}
                others = [seconds for name, seconds in cpu.items() if name != active]
                found[str(clients)] = {"pairs": rate, "replica": sum(others) / len(others) / max(cpu[active], 0.01)}
            if group.active() != active:
                raise Failed("another instance became active meanwhile")
            return found
        finally:
            group.close()

    def broker(self, name):
        made = BROKERS[name]
        return made(self.args.towline, self.folder()) if name == "Towline" else made(self.folder())

    def peer(self, name):
        """Pairs per second of a broker, processor time of all its nodes for each pair, latencies."""
        broker, found = self.broker(name), {}
        try:
            broker.start_all()
            for clients in CLIENTS["peers"]:
                with pairs.under_way(broker, clients, self.args.seconds, "-warmup", WARMUP_S) as running:
                    time.sleep(WARMUP_S)
                    before = sum(broker.cpu_s().values())
                    time.sleep(self.args.seconds)
                    cpu = sum(broker.cpu_s().values()) - before
                    said = pairs.report(running, self.args.seconds)
                if said["errors"] or not said["pairs"]:
                    raise Failed(f"{broker.title}: {said['errors']} errors, {said['last_error']}")
                found[str(clients)] = {"pairs": said["pairs_per_s"], "cpu_us": cpu * 1e6 / said["pairs"],
                                       "generator_us": said["generator_cpu_s"] * 1e6 / said["pairs"],
                                       "p50_ms": said["p50_ms"], "p99_ms": said["p99_ms"]}
            return found
        finally:
            broker.close()

    def kill(self, name):
        """kill -9 of the active one or leader under paced puts: the longest time without a confirmed one, all back."""
        broker, events, after = self.broker(name), self.work / "events.csv", KILL_AFTER_S[name]
        try:
            broker.start_all()
            leader = broker.leader()
            seconds = KILL_STEADY_S + after + 1
            with pairs.under_way(broker, KILL_CLIENTS, seconds, "-puts", "-rate", 1, "-events", events) as running:
                time.sleep(KILL_STEADY_S)
                at = time.time()
                broker.kill(leader)
                pairs.report(running, seconds)
            found = recovery.figures(recovery.read(events), at, at, 1.0, after)
            return {key: found[key] for key in ("gap_s", "clients_back_s", "not_back")}
        finally:
            broker.close()
