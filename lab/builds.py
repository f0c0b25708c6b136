#!/usr/bin/env python3
"""Two builds of ours, alternating: is the newer one as fast?

Each round drives both builds with the same loads, the older one first in every other round, each time
on a fresh queue manager. One table: medians of the rates and of the server's processor time for an
operation, and their ratios (new / old). On a small, shared machine a rate of one round says nothing
below a factor of two; processor time and the medians of several rounds say more. It asserts nothing.

Not here: other products (compare.py), restart (restart.py) and failover (failover.py), which take a
build each.
"""

import argparse
import json
import statistics
import sys

from bars import Manager

SIZE = ["--size", "2048"]
PERSISTENT = [*SIZE, "--persistent"]
LOADS = {
    "pairs, 1 client": ["requester", "--clients", "1", "--prefetch", "0", *PERSISTENT],
    "pairs, 1 client, standing credit": ["requester", "--clients", "1", "--prefetch", "1", *PERSISTENT],
    "pairs, 50 clients": ["requester", "--clients", "50", "--prefetch", "0", *PERSISTENT],
    "pairs, 50 clients, standing credit": ["requester", "--clients", "50", "--prefetch", "1", *PERSISTENT],
    "stream, 1 and 1": ["stream", "--producers", "1", "--consumers", "1", *PERSISTENT],
    "stream, 8 and 8": ["stream", "--producers", "8", "--consumers", "8", *PERSISTENT],
    "stream, not persistent, 8 and 8": ["stream", "--producers", "8", "--consumers", "8", *SIZE, "--non-persistent"],
    "units of 10, 8 clients": ["transaction", "--batch", "10", "--clients", "8", *PERSISTENT],
}


def rate(report):
    """Operations a second: a pair, or a message put and got."""
    rates = [report[way]["per_second"] for way in ("puts", "gets") if report.get(way, {}).get("per_second")]
    return min(rates) if rates else 0.0


def measure(binary, load, seconds):
    manager = Manager(binary)
    try:
        report = manager.load(*load, "--queue", "QA", "--seconds", str(seconds))
    finally:
        manager.stop()
    return {"per_second": rate(report), "cpu_us": report["server"]["cpu_us_per_operation"]}


def rows(results):
    """One row a load: name, medians of old and new, ratios new / old."""
    table = []
    for name, both in results.items():
        row = {"load": name}
        for figure in ("per_second", "cpu_us"):
            old, new = (statistics.median(found[figure] for found in both[build]) for build in ("old", "new"))
            row[figure] = {"old": old, "new": new, "ratio": new / old if old else None}
        table.append(row)
    return table


def shown(table):
    lines = ["| load | old /s | new /s | new / old | old us | new us | new / old |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in table:
        speed, cost = row["per_second"], row["cpu_us"]
        ratio = [f"{figure['ratio']:.2f}" if figure["ratio"] else "-" for figure in (speed, cost)]
        lines.append(f"| {row['load']} | {speed['old']:,.0f} | {speed['new']:,.0f} | {ratio[0]} "
                     f"| {cost['old']:.1f} | {cost['new']:.1f} | {ratio[1]} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--old", required=True, help="the older build of towline")
    parser.add_argument("--new", required=True, help="the newer one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", help="loads whose name holds this")
    parser.add_argument("--json", action="store_true", help="all samples instead of the table")
    args = parser.parse_args()
    wanted = {name: load for name, load in LOADS.items() if args.only is None or args.only in name}
    results = {name: {"old": [], "new": []} for name in wanted}
    for turn in range(args.rounds):
        for name, load in wanted.items():
            for build in ("old", "new") if turn % 2 == 0 else ("new", "old"):
                results[name][build].append(measure(getattr(args, build), load, args.seconds))
            print(f"round {turn + 1}: {name}", file=sys.stderr)
    table = rows(results)
    print(json.dumps({"rows": table, "samples": results}, indent=1) if args.json else shown(table))


if __name__ == "__main__":
    main()
