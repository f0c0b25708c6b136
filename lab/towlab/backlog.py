"""The reported backlog of a recovery group beside the true one, sample by sample, and the published figures of an interval.

The true backlog is what the live group committed and the recovery group has not on the disks of its majority: a
difference of two positions, each from the status of its own group. The two are not asked in one moment: recovery is asked
before live and after it, all by one clock (`time.monotonic`), and its position at live's moment lies between the two
answers. Not here: what is put meanwhile.
"""

import threading
import time

from towlab.group import NAMES
from towlab.regions import position

MIB = 1 << 20
RATE_HALF_S = 0.5
KEPT = ("backlog_bytes", "backlog_puts", "backlog_removals", "backlog_age_us", "round_trip_us", "log_bytes_sent",
        "wire_bytes_sent", "log_bytes_received", "wire_bytes_received", "rebases", "recovery_lsn", "misses_rpo", "connected",
        "is_known", "status", "interval")


class Watcher:
    """Asks both groups every so many seconds on a thread of its own, from `with` to its end."""

    def __init__(self, regions, active, every_s):
        self.regions, self.active, self.every_s = regions, active, every_s
        self.over, self.samples, self.silent = threading.Event(), [], 0
        self.relay = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def run(self):
        due = time.monotonic()
        while not self.over.is_set():
            self.look()
            due = max(due + self.every_s, time.monotonic())
            self.over.wait(due - time.monotonic())

    def look(self):
        before = self.recovery()
        began = time.monotonic()
        live = self.regions.west.of_group(self.active)
        ended = time.monotonic()
        after = self.recovery()
        seen = live.get("other_region")
        if not seen or not before or not after:
            self.silent += 1
            return
        at = (began + ended) / 2
        self.samples.append({"at": at, "asked_s": ended - began, "live": position(live["group_lsn"]),
                             "before": before[1], "after": after[1],
                             "recovery": between(before, after, at), **{key: seen[key] for key in KEPT if key in seen}})

    def recovery(self):
        """When recovery was asked, and up to where it said that its majority has the log."""
        for name in [self.relay, *NAMES] if self.relay else NAMES:
            began = time.monotonic()
            group = self.regions.east.of_group(name)
            is_relay = (group.get("other_region") or {}).get("connected")
            # Without a link the last relay goes on to be asked: it knows what its group has.
            if is_relay or (group and name == self.relay):
                self.relay = name
                return (began + time.monotonic()) / 2, position(group["group_lsn"])
        return None


def between(before, after, at):
    """The position at a moment between two answers (moment, position), as if it moved evenly."""
    (began, first), (ended, last) = before, after
    share = (at - began) / (ended - began) if ended > began else 0.0
    return first + (last - first) * min(1.0, max(0.0, share))


def judged(samples):
    """Reported and true backlog of each sample in bytes, how far they are apart, and how far they may be: a round trip
    of traffic at the rate of the second around it, or 1 MiB if that is more."""
    out, first, last = [], 0, 0
    for one in samples:
        while samples[first]["at"] < one["at"] - RATE_HALF_S:
            first += 1
        while last + 1 < len(samples) and samples[last + 1]["at"] <= one["at"] + RATE_HALF_S:
            last += 1
        elapsed = samples[last]["at"] - samples[first]["at"]
        rate = (samples[last]["live"] - samples[first]["live"]) / elapsed if elapsed > 0 else 0.0
        true = max(0.0, one["live"] - one["recovery"])
        out.append({"second": one["at"] - samples[0]["at"], "reported": one["backlog_bytes"], "true": true,
                    "apart": abs(one["backlog_bytes"] - true), "allowed": max(MIB, rate * one["round_trip_us"] / 1e6),
                    "unsure": (one["after"] - one["before"]) / 2, "rate": rate})
    return out


def weighted(samples, key):
    """Mean of a figure over the interval of the samples, each holding until the next."""
    pairs = list(zip(samples, samples[1:]))
    elapsed = sum(after["at"] - before["at"] for before, after in pairs)
    return sum(before[key] * (after["at"] - before["at"]) for before, after in pairs) / elapsed if elapsed else None


def interval(samples, seconds):
    """The published figures over the last `seconds` of samples, under the published names; None where the status does not
    say it. Averages for each frame are those of the last whole interval of the status."""
    last = samples[-1]
    own = last.get("interval") or {}
    first = max((one for one in samples if one["at"] <= last["at"] - seconds), key=lambda one: one["at"], default=samples[0])
    within = [one for one in samples if first["at"] <= one["at"] <= last["at"]]

    def grown(key):
        return last[key] - first[key] if key in last else None
    return {"interval": last["at"] - first["at"], "Log bytes sent": grown("log_bytes_sent"),
            "Backlog bytes": last["backlog_bytes"], "Backlog average bytes": weighted(within, "backlog_bytes"),
            "Average network round trip time": weighted(within, "round_trip_us"),
            "Compressed log bytes sent": grown("wire_bytes_sent"),
            "Log data average compression time": own.get("compression_average_us"),
            "Log bytes decompressed": grown("log_bytes_received"),
            "Log data average decompression time": own.get("decompression_average_us"),
            "Rebase count": last["rebases"], "Recovery log sequence number": last["recovery_lsn"]}
