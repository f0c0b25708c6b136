"""One piece of what a second region costs: a load on a live group of three, with and without its log on the way to a
recovery group of three.

Each piece starts its six processes and ends them, so that all of it meets the same machine and fresh logs. Without
replication the recovery group is up as well, and idle. Not here: what the figures mean (crr_report.py).
"""

import datetime
import json
import shutil
import signal
import subprocess
import sys
import time

from towlab.backlog import Watcher, interval, judged
from towlab.group import NAMES
from towlab.queue_manager import Failed
from towlab.regions import EAST, Regions

PARTS = ("ladder", "fixed", "backlog", "line")
SYNC = "sync"  # a part of its own: --only sync
SIZES = (2048, 20480)
# What `towline load --entropy` calls them.
PAYLOADS = ("text", "random")
MODES = ("with", "without")
LADDER, LADDER_QUICK = (1, 4, 16, 64, 128), (4, 32)
SHARE = 0.6  # of saturation
WARMUP_S = 2.0
# StatusInterval and StatusCommitThreshold: ours, those published, and as tuned in the report.
SETTINGS = {"defaults": {}, "published": {"status_interval_ms": 10_000, "status_commit_threshold_bytes": 0},
            "tuned": {"status_interval_ms": 10_000, "status_commit_threshold_bytes": 1 << 20}}
# (settings, bytes, payload, seconds): the published run had 20 KB; with the defaults all others too.
BACKLOGS = (("defaults", 20480, "text", 12), ("published", 20480, "text", 25), ("tuned", 20480, "text", 25),
            ("defaults", 20480, "random", 12), ("defaults", 2048, "text", 12), ("defaults", 2048, "random", 12))
WATCH_S, SAMPLE_S = 0.05, 10.0
LINE_BITS_PER_S, LINE_SIZE, LINE_CLIENTS = 50_000_000, 20480, 16
# What is offered to the line, as shares of it: more than it carries, and what leaves room for a backlog to drain.
LINE_OVER, LINE_UNDER = 1.5, 0.4
LINE_SETTLES_S, LINE_FULL_S, LINE_BEFORE_S = 6.0, 12.0, 5.0
RPO_S = 10
RAISED, CLEARED = "TWL4406W", "TWL4407I"
# Of a backlog that is gone while the load goes on: what is normal with the defaults.
GONE_BYTES = 1 << 20
POINTS = 240  # of a chart
# Replies that wait for recovery: round trips between the regions in ms, clients, and the settings side by side.
SYNC_RTT_MS, SYNC_CLIENTS, SYNC_SIZE = (1, 5, 40), (1, 64), 2048
SYNC_MODES = {"off": {}, "strict": {"sync_replication": "true", "sync_consistency": '"strict"'}}


class Lab:
    """Measures pieces below the folder of a campaign; later ones need what earlier ones found."""

    def __init__(self, args, campaign):
        self.args, self.campaign = args, campaign

    def steps(self):
        """All steps in order: name, weight (about seconds), function that gives a JSON object."""
        out = []
        wanted = set(self.args.only)
        if wanted & {"ladder", "fixed", "backlog"}:
            # Rates are shares of what the ladder finds.
            out += [(ladder_name(size, payload, mode), 22, lambda key=(size, payload, mode): self.ladder(*key))
                    for size in SIZES for payload in PAYLOADS for mode in MODES]
        if "fixed" in wanted:
            out += [step for turn in range(self.args.rounds) for step in self.turn(turn)]
        if "backlog" in wanted:
            out += [(backlog_name(*key), key[3] + 8, lambda key=key: self.backlog(*key)) for key in self.backlogs()]
        if "line" in wanted:
            out.append(("line", 2.2 * self.args.cut_seconds + 60, self.line))
        if SYNC in wanted:
            out += [(sync_name(*key), self.args.seconds + WARMUP_S + 8, lambda key=key: self.sync(*key))
                    for key in self.syncs()]
        return [(name, weight, lambda name=name, measure=measure: twice(name, measure)) for name, weight, measure in out]

    def syncs(self):
        """Round trip, clients, setting and round: both settings one after the other, in the other order in the next round."""
        modes = tuple(SYNC_MODES)
        return [(rtt, clients, mode, turn) for turn in range(self.args.rounds)
                for rtt in (SYNC_RTT_MS[-1:] if self.args.quick else SYNC_RTT_MS) for clients in SYNC_CLIENTS
                for mode in (modes if turn % 2 == 0 else modes[::-1])]

    def turn(self, turn):
        """One round: both ways one after the other, and in the other order in the next round."""
        order = MODES if turn % 2 == 0 else MODES[::-1]
        return [(fixed_name(size, payload, mode, turn), self.args.seconds + WARMUP_S + 4,
                 lambda key=(size, payload, mode): self.fixed(*key))
                for size in SIZES for payload in PAYLOADS for mode in order]

    def backlogs(self):
        return BACKLOGS[:3] if self.args.quick else BACKLOGS

    def regions(self, mode="with", recovery=None, **more):
        folder = self.campaign.work / "now"
        shutil.rmtree(folder, ignore_errors=True)
        return Regions(self.args.towline, folder, self.args.slow_net, mode == "with", recovery, **more)

    def begin_load(self, regions, active, size, payload, clients, seconds, rate=None):
        """`towline load`, pairs, under way."""
        rated = ["--rate", str(rate)] if rate else []
        return subprocess.Popen(
            [self.args.towline, "load", "requester", "--clients", str(clients), "--queue", "LAB", "--size", str(size),
             "--entropy", payload, "--persistent", "--prefetch", "0", "--warmup", str(WARMUP_S), "--seconds", str(seconds),
             *rated, "--quiet", "--json", "-", "--url", regions.west.url(active)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)

    def ladder(self, size, payload, mode):
        """Pairs per second by clients, each without a backlog when it begins."""
        regions, found = self.regions(mode), {}
        try:
            active = regions.start()
            for clients in LADDER_QUICK if self.args.quick else LADDER:
                said = report(self.begin_load(regions, active, size, payload, clients, self.args.ladder_seconds))
                seen = regions.seen(active)
                found[str(clients)] = {"pairs": said["pairs"]["per_second"], "backlog": seen.get("backlog_bytes", 0)}
                if mode == "with":
                    regions.until_towed(active)
            same(regions, active)
            return found
        finally:
            regions.close()

    def offered(self, size, payload):
        """Pairs per second to offer, and with how many clients: a share of the saturation with or without replication,
        whichever is less."""
        ladders = [self.campaign.pieces.get(ladder_name(size, payload, mode)) for mode in MODES]
        best = [max((rung["pairs"], int(clients)) for clients, rung in ladder.items() if clients.isdigit())
                for ladder in ladders]
        pairs, clients = min(best)
        return SHARE * pairs, clients

    def fixed(self, size, payload, mode):
        """The fixed rate: what came of it, latencies, and processors used by everyone."""
        (rate, clients), regions, load = self.offered(size, payload), self.regions(mode), None
        try:
            active = regions.start()
            before = regions.seen(active)
            load = self.begin_load(regions, active, size, payload, clients, self.args.seconds, rate)
            # Within what is measured, whatever it took to connect.
            time.sleep(WARMUP_S + 0.5)
            began, cpu = time.monotonic(), regions.cpu_s()
            time.sleep(max(0.5, self.args.seconds - 1.0))
            cpu = {name: seconds - cpu[name] for name, seconds in regions.cpu_s().items()}
            elapsed = time.monotonic() - began
            said = report(load)
            after = regions.seen(active)
            same(regions, active)
            found = {"offered": rate, "clients": clients, "pairs": said["pairs"]["per_second"],
                     "processors": by_part(cpu, active, elapsed),
                     "generator": said["generator"]["cpu_us_per_operation"],
                     "latencies": {one["of"]: {name: one[name] for name in ("p50", "p99")}
                                   for one in said["latencies_us"]}}
            if mode == "with":
                found |= {"backlog": after["backlog_bytes"], "log": after["log_bytes_sent"] - before["log_bytes_sent"],
                          "wire": after["wire_bytes_sent"] - before["wire_bytes_sent"]}
            return found
        finally:
            end(load)
            regions.close()

    def backlog(self, settings, size, payload, seconds):
        """Reported and true backlog at the fixed rate."""
        (rate, clients), load = self.offered(size, payload), None
        seconds = min(seconds, 12) if self.args.quick else seconds
        regions = self.regions("with", SETTINGS[settings])
        try:
            active = regions.start()
            load = self.begin_load(regions, active, size, payload, clients, seconds + 1.0, rate)
            time.sleep(WARMUP_S + 0.5)
            with Watcher(regions, active, WATCH_S) as watcher:
                time.sleep(seconds)
            said = report(load)
            same(regions, active)
            rows = judged(watcher.samples)
            return {"offered": rate, "pairs": said["pairs"]["per_second"], "silent": watcher.silent,
                    "asked_s": max(one["asked_s"] for one in watcher.samples),
                    "interval": interval(watcher.samples, SAMPLE_S), **figures(rows), "points": thinned(rows)}
        finally:
            end(load)
            regions.close()

    def sync(self, rtt, clients, mode, _turn):
        """Units of work of one message, put and got, as fast as they go: commits, and how long each takes."""
        regions, load = self.regions("with", SYNC_MODES[mode], each_way_us=rtt * 500), None
        try:
            active = regions.start()
            if mode != "off":
                regions.west.until("replies in step", lambda: regions.seen(active).get("sync", {}).get("state") == "in step")
            load = subprocess.Popen(
                [self.args.towline, "load", "transaction", "--clients", str(clients), "--queue", "LAB", "--size",
                 str(SYNC_SIZE), "--entropy", "random", "--persistent", "--warmup", str(WARMUP_S), "--seconds",
                 str(self.args.seconds), "--quiet", "--json", "-", "--url", regions.west.url(active)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
            said = report(load)
            sync = regions.seen(active).get("sync", {})
            same(regions, active)
            latency = next(one for one in said["latencies_us"] if one["of"] == "commit")
            replies = sync.get("replies", {})
            return {"commits": said["commits"]["per_second"], "p50": latency["p50"], "p99": latency["p99"],
                    "state": sync.get("state"), "alone": sync.get("times_alone", 0),
                    "mean_wait_us": replies.get("waited_us", 0) / max(1, replies.get("answered", 0))}
        finally:
            end(load)
            regions.close()

    def line(self):
        """A narrow line: how much of it is used by more than it carries, and a cut with what follows."""
        regions = self.regions("with", {"rpo_s": RPO_S})
        try:
            active = regions.start()
            regions.net.order(f"bandwidth {LINE_BITS_PER_S}")
            full = self.full_line(regions, active)
            regions.until_towed(active, 300)
            cut = self.cut_line(regions, active)
            same(regions, active)
            return {"full": full, "cut": cut}
        finally:
            regions.close()

    def line_rate(self, share):
        return share * LINE_BITS_PER_S / 8 / LINE_SIZE

    def full_line(self, regions, active):
        seconds = LINE_SETTLES_S + LINE_FULL_S
        load = self.begin_load(regions, active, LINE_SIZE, "random", LINE_CLIENTS, seconds, self.line_rate(LINE_OVER))
        try:
            time.sleep(WARMUP_S + LINE_SETTLES_S)
            first = self.passed(regions, active)
            time.sleep(LINE_FULL_S - 1.0)
            last = self.passed(regions, active)
            said = report(load)
        finally:
            end(load)
        elapsed = last["at"] - first["at"]

        def used(key):
            return (last[key] - first[key]) * 8 / elapsed / LINE_BITS_PER_S
        return {"pairs": said["pairs"]["per_second"], "line": used("line"), "compressed": used("wire"),
                "log": used("log"), "backlog": last["backlog"]}

    def passed(self, regions, active):
        """What went over the line so far: all of it, and compressed log as recovery counts it."""
        line = regions.net.passed(EAST)
        at, seen = time.monotonic(), regions.seen(active)
        return {"at": at, "line": line, "wire": seen["wire_bytes_received"], "log": seen["log_bytes_received"],
                "backlog": seen["backlog_bytes"]}

    def cut_line(self, regions, active):
        """Nothing passes for so long while clients go on; then the time until the backlog is gone, and the line's use."""
        cut_s, net, log = self.args.cut_seconds, regions.net, regions.west.log_path(active)
        roles = roles_of(regions)
        load = self.begin_load(regions, active, LINE_SIZE, "random", LINE_CLIENTS, 86_400, self.line_rate(LINE_UNDER))
        try:
            time.sleep(WARMUP_S + LINE_BEFORE_S)
            with Watcher(regions, active, 0.25) as watcher:
                began, began_at = time.monotonic(), time.time()
                for proxy in EAST:
                    net.order(f"{proxy}: cut")
                time.sleep(cut_s)
                for proxy in EAST:
                    net.order(f"{proxy}: heal")
                healed = time.monotonic()
                drained = self.drained(regions, active, healed + 6 * cut_s + 120)
                time.sleep(1.0)
            changed = roles != roles_of(regions)
            load.send_signal(signal.SIGINT)
            said = report(load)
        finally:
            end(load)
        samples = watcher.samples
        worst = max(samples, key=lambda one: one["backlog_bytes"])
        gone = next((one["at"] - began for one in samples if one["at"] > began and not one["connected"]), None)
        return {"seconds": healed - began, "noticed_s": gone, **drained, "pairs": said["pairs"]["per_second"],
                "worst": worst["backlog_bytes"], "puts": worst["backlog_puts"], "removals": worst["backlog_removals"],
                "age_s": worst["backlog_age_us"] / 1e6, "changed": changed,
                "alarm": {what: seconds_of(log, message, began_at) for what, message in
                          (("raised", RAISED), ("cleared", CLEARED))},
                "points": [{"second": one["at"] - began, "reported": one["backlog_bytes"],
                            "true": max(0.0, one["live"] - one["recovery"])} for one in every(samples, POINTS)]}

    def drained(self, regions, active, until):
        """Seconds from now until there is a link again, from there until the backlog is gone, and the line's use then."""
        healed, connected, first, last = time.monotonic(), None, None, None
        while time.monotonic() < until:
            seen = regions.seen(active)
            now = time.monotonic()
            if connected is None and seen.get("connected"):
                connected, first = now, self.passed(regions, active)
            elif connected is not None:
                last = self.passed(regions, active)
                if last["backlog"] <= GONE_BYTES:
                    return {"link_s": connected - healed, "drain_s": now - connected,
                            "line": (last["line"] - first["line"]) * 8 / (last["at"] - first["at"]) / LINE_BITS_PER_S}
            time.sleep(0.1)
        raise Failed(f"the backlog is not gone: {regions.seen(active)}")


def twice(name, measure):
    """A piece, once more if it fails: six instances and their clients on few processors may have an election. That it was
    so stays in the result."""
    try:
        return measure()
    except Failed as error:
        print(f"\n{name}: {error}; once more", file=sys.stderr)
        return {**measure(), "again": str(error)[:300]}


def ladder_name(size, payload, mode):
    return f"ladder {size} {payload} {mode}"


def fixed_name(size, payload, mode, turn):
    return f"fixed {size} {payload} {mode} #{turn + 1}"


def backlog_name(settings, size, payload, _seconds):
    return f"backlog {settings} {size} {payload}"


def sync_name(rtt, clients, mode, turn):
    return f"sync {rtt} ms {clients} {mode} #{turn + 1}"


def report(load):
    """What a load found, at its end."""
    out, errors = load.communicate()
    said = json.loads(out) if out.strip() else {}
    if not said.get("passed"):
        raise Failed(f"towline load: {errors.strip()[-500:]} {said.get('remarks', '')}")
    return said


def end(load):
    """Ends a load that a failure left behind."""
    if load is not None and load.poll() is None:
        load.kill()
        load.communicate()


def same(regions, active):
    if regions.west.active() != active:
        raise Failed("another instance became active meanwhile")


def by_part(cpu, active, elapsed):
    """Processors used by the active instance, the other two of west, all of east, and the network."""
    parts = {"active": [f"west {active}"], "replicas": [f"west {name}" for name in NAMES if name != active],
             "recovery": [f"east {name}" for name in NAMES], "network": ["network"]}
    return {part: sum(cpu[name] for name in names) / elapsed for part, names in parts.items()}


def figures(rows):
    """Of reported and true backlogs side by side."""
    return {"samples": len(rows), "reported_max": max(row["reported"] for row in rows),
            "true_max": max(row["true"] for row in rows), "apart_max": max(row["apart"] for row in rows),
            "unsure_max": max(row["unsure"] for row in rows),
            "allowed": max(row["allowed"] for row in rows),
            "outside": sum(row["apart"] > row["allowed"] for row in rows),
            # What is reported must not look better than it is, beyond what the two questions leave open.
            "below": sum(row["reported"] < row["true"] - row["unsure"] - row["allowed"] for row in rows),
            "rate": sum(row["rate"] for row in rows) / len(rows)}


def every(samples, points):
    """At most so many of them, evenly."""
    step = max(1, len(samples) // points)
    return samples[::step]


def thinned(rows):
    return [{key: round(row[key], 3) for key in ("second", "reported", "true", "allowed")} for row in every(rows, POINTS)]


def roles_of(regions):
    """What each of the six is, and how many histories its log has: a promotion changes one of them."""
    found = {}
    for group in regions.groups:
        for name in NAMES:
            status = group.status(name)
            found[f"{group.group} {name}"] = ((status.get("group") or {}).get("group_role"),
                                              (region_of(status)).get("histories"))
    return found


def region_of(status):
    """The histories in a status."""
    return status.get("region") or (status.get("status") or {}).get("region") or {}


def seconds_of(log, message, since):
    """Seconds after a Unix time at which an instance first said a message; None when it did not."""
    for line in log.read_text(errors="replace").splitlines():
        if message in line:
            at = datetime.datetime.fromisoformat(line.split()[0]).timestamp() - since
            if at >= 0:
                return at
    return None
