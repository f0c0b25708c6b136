"""The peer of the experiment with two regions: Artemis with and without its mirror, over the same proxy, by the same clients.

Pieces, and rows of them. Each product is compared with itself: Artemis has one broker for each region here, Towline three.
Bars are none. Not here: the brokers (peers/artemis_mirror.py).
"""

import subprocess
import time

from crr_measure import MODES, SHARE, SIZES, end, report
from peers.artemis_mirror import Mirrored

KB = {2048: "2 KB", 20480: "20 KB"}
CLIENTS = (16, 64)
# Code that was compiled is faster: the first piece of a broker is not measured.
WARMUP_S, SATURATION_S = 5.0, 4.0


class MirrorLab:
    """Measures pieces; those with a fixed rate need the saturation of both ways."""

    def __init__(self, args, campaign):
        self.args, self.campaign = args, campaign

    def steps(self):
        """Name, weight (about seconds), function that gives a JSON object."""
        run = len(SIZES) * (WARMUP_S + self.args.seconds + 3) + 12
        out = [(saturation_name(mode), 12 + len(SIZES) * len(CLIENTS) * 10, lambda mode=mode: self.saturation(mode))
               for mode in MODES]
        for turn in range(self.args.rounds):
            order = MODES if turn % 2 == 0 else MODES[::-1]
            out += [(piece_name(mode, turn), run, lambda mode=mode: self.fixed(mode)) for mode in order]
        return out

    def begin_load(self, brokers, size, clients, seconds, rate=None):
        rated = ["--rate", str(rate)] if rate else []
        return subprocess.Popen(
            [self.args.towline, "load", "requester", "--clients", str(clients), "--queue", "LAB", "--size", str(size),
             "--persistent", "--prefetch", "0", "--warmup", str(WARMUP_S), "--seconds", str(seconds), *rated, "--quiet",
             "--json", "-", "--url", brokers.url],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)

    def saturation(self, mode):
        """Pairs per second by size and clients."""
        brokers, found = Mirrored(self.args.slow_net, mode == "with"), {}
        try:
            for size in SIZES:
                found[str(size)] = {}
                for clients in CLIENTS:
                    said = report(self.begin_load(brokers, size, clients, SATURATION_S))
                    found[str(size)][str(clients)] = said["pairs"]["per_second"]
                    brokers.until_quiet()
            return found
        finally:
            brokers.close()

    def offered(self, size):
        """Pairs per second to offer, and with how many clients."""
        both = [self.campaign.pieces.get(saturation_name(mode))[str(size)] for mode in MODES]
        pairs, clients = min(max((pairs, int(clients)) for clients, pairs in one.items()) for one in both)
        return SHARE * pairs, clients

    def fixed(self, mode):
        """The fixed rate with each size: what came of it, processors, and how far the mirror was behind at the end."""
        brokers, found, load = Mirrored(self.args.slow_net, mode == "with"), {}, None
        try:
            for size in SIZES:
                rate, clients = self.offered(size)
                load = self.begin_load(brokers, size, clients, self.args.seconds, rate)
                time.sleep(WARMUP_S + 0.5)
                began, before = time.monotonic(), brokers.cpu_s()
                time.sleep(max(0.5, self.args.seconds - 1.0))
                cpu, elapsed = brokers.cpu_s(), time.monotonic() - began
                said = report(load)
                found[str(size)] = {
                    "offered": rate, "pairs": said["pairs"]["per_second"], "behind_s": brokers.until_quiet(),
                    "passed": brokers.net.passed([0]),
                    "processors": {role: (cpu[role] - before[role]) / elapsed for role in cpu}}
            return found
        finally:
            end(load)
            brokers.close()


def saturation_name(mode):
    return f"artemis saturation {mode}"


def piece_name(mode, turn):
    return f"artemis {mode} #{turn + 1}"


def mirror_rows(rows, rounds, done):
    """The same rows as those of Towline at the fixed rate."""
    for size in SIZES:
        test = f"Artemis 2.56, {SHARE:.0%} of saturation, {KB[size]} random".replace("%", " %")
        pieces = {mode: [done.get(piece_name(mode, turn)) for turn in range(rounds)] for mode in MODES}

        def values(mode, value, pieces=pieces, size=size):
            return [value(one[str(size)]) for one in pieces[mode] if one]

        def ratios(value, pieces=pieces, size=size):
            return [value(one[str(size)]) / value(other[str(size)]) for one, other in zip(*pieces.values()) if one and other]
        others = max((one["others"] for mode in MODES for one in pieces[mode] if one), default=None)
        rows.add(test, "offered pairs", values("with", lambda one: one["offered"])[:1], "/s")
        for mode in MODES:
            rows.add(test, f"{mode} mirror: pairs", values(mode, lambda one: one["pairs"]), "/s", others=others)
        rows.add(test, "pairs, with : without", ratios(lambda one: one["pairs"]), "")
        rows.add(test, "CPU of the live broker, with : without", ratios(lambda one: one["processors"]["live"]), "",
                 others=others)
        for mode in MODES:
            rows.add(test, f"{mode} mirror: CPU of the live broker", values(mode, lambda one: one["processors"]["live"]),
                     "cores")
        rows.add(test, "with mirror: CPU of the other broker", values("with", lambda one: one["processors"]["copy"]), "cores")
        rows.add(test, "with mirror: behind when clients ended", values("with", lambda one: one["behind_s"]), "s",
                 note="until nothing more went over the line")
