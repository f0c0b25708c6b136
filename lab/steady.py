#!/usr/bin/env python3
"""A group under full load for an hour, its instances stopped again and again for a moment: nobody may be elected (`make lab-steady`).

Three instances, clients at full rate; at random moments a random instance gets SIGSTOP for 0.1 s up to just under half of
HeartbeatTimeout (default settings). The term of all instances is watched: any change of it, any process that ended, any message
lost is a failure, and the exit status 1. lab/results/steady.json and .html. The seed is printed and taken back. A run that
was ended begins anew: an hour is one piece. After a failure the logs of the instances stay under lab/.cache/steady.
"""

import argparse
import csv
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from towlab import chart, machine
from towlab.group import NAMES, Native
from towlab.page import page
from towlab.progress import Progress
from towlab.queue_manager import Failed
from towlab.rows import Rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEARTBEAT_TIMEOUT_S = 2.0
STOP_LEAST_S, STOP_MOST_S = 0.1, 0.95 * HEARTBEAT_TIMEOUT_S / 2
BETWEEN_S = (0.2, 4.0)
CHART_S = 10


class Watch:
    """What was seen of terms and of the active part. Any change after the first look counts."""

    def __init__(self):
        self.term, self.active, self.changes, self.silent = None, None, [], 0

    def look(self, second, said):
        """`said`: for each instance that answered, its (term, role)."""
        if not said:
            self.silent += 1
            return
        term = max(term for term, _ in said.values())
        active = next((name for name, (at, role) in said.items() if role == "active" and at == term), None)
        if self.term is None:
            self.term, self.active = term, active
        elif term != self.term or active not in (None, self.active):
            self.changes.append({"second": round(second, 3), "from": self.term, "to": term, "active": active})
            self.term, self.active = term, active or self.active


def plan(chance):
    """The next stop: seconds to wait before it, name of the instance, seconds that it stands still."""
    return chance.uniform(*BETWEEN_S), chance.choice(NAMES), chance.uniform(STOP_LEAST_S, STOP_MOST_S)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", required=True, help="the binary to measure")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--sync-delay-ms", type=float, default=0, help="what each sync of a log takes longer")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--name", default="steady", help="lab/results/NAME.json and NAME.html")
    return parser.parse_args()


def begin_load(args, group, work, seconds):
    command = [group.binary, "load", "requester", "--clients", str(args.clients), "--queue", "STEADY", "--size", "2048",
               "--persistent", "--seconds", str(seconds), "--quiet", "--json", "-", "--csv", str(work / "rate.csv"),
               "--verify-drain", "--reconnect"]
    for url in group.urls():
        command += ["--url", url]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            process_group=0)


def terms(group):
    """Term and role of each instance that answers."""
    said = ((name, group.status(name).get("group")) for name in NAMES)
    return {name: (one["term"], one["role"]) for name, one in said if one}


def stop_one(group, name, seconds):
    """SIGSTOP for so long; how long it was really, on a busy machine."""
    process = group.processes[name]
    began = time.monotonic()
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGCONT)
    return time.monotonic() - began


def disturb(group, load, chance, seconds, progress):
    """Stops instances until the load has ended or `seconds` are over; what was done and seen."""
    watch, stops = Watch(), []
    began = time.monotonic()
    watch.look(0.0, terms(group))
    told = 0.0
    while load.poll() is None:
        wait, name, length = plan(chance)
        if time.monotonic() - began + wait + length > seconds:
            break
        time.sleep(wait)
        at = time.monotonic() - began
        was_active = name == watch.active
        stops.append({"second": round(at, 3), "instance": name, "active": was_active,
                      "seconds": stop_one(group, name, length)})
        now = time.monotonic() - began
        watch.look(now, terms(group))
        ended = [other for other in NAMES if not group.running(other)]
        if ended:
            raise Failed(f"{' and '.join(ended)} ended after {now:.0f} s; see {group.folder}")
        if now - told >= min(60.0, seconds / 10):
            progress.step(now - told, f"{len(stops)} stops, term {watch.term}, {len(watch.changes)} changes")
            told = now
    return watch, stops


def rates(path):
    """Pairs per second of the load, (second, mean over CHART_S)."""
    with open(path, encoding="ascii") as file:
        pairs = [float(row["pairs"]) for row in csv.DictReader(file)]
    return [(first, sum(part) / len(part)) for first in range(0, len(pairs), CHART_S)
            if (part := pairs[first:first + CHART_S])]


def measure(args, work, progress):
    chance = random.Random(args.seed)
    delay = ["--log-sync-delay-us", str(int(args.sync_delay_ms * 1000))] if args.sync_delay_ms else []
    group = Native(args.towline, work / "group", more=delay)
    load = None
    try:
        group.start_all()
        seconds = args.minutes * 60
        load = begin_load(args, group, work, int(seconds))
        group.until_connected(args.clients)
        before = group.cpu_s()
        with machine.Others() as others:
            watch, stops = disturb(group, load, chance, seconds, progress)
            out, errors = load.communicate(timeout=300)
        cpu = {name: after - before[name] for name, after in group.cpu_s().items()}
        watch.look(args.minutes * 60, terms(group))
    finally:
        if load is not None and load.poll() is None:
            load.kill()
            load.communicate()
        group.close()
    report = json.loads(out) if out.strip() else {}
    if not report:
        raise Failed(f"towline load: {errors.strip()[-500:]}")
    return {"watch": watch, "stops": stops, "report": report, "others": others.processors, "cpu": cpu,
            "rates": rates(work / "rate.csv")}


def rows_of(args, found):
    """All rows of the result; the bars are those that make it a failure."""
    rows, report, stops, watch = Rows(), found["report"], found["stops"], found["watch"]
    test = f"{args.minutes:g} min, {args.clients} clients at full rate, sync delay {args.sync_delay_ms:g} ms"
    lengths = [one["seconds"] for one in stops]
    beside = {"others": found["others"]}
    rows.add(test, "changes of term", len(watch.changes), "", bar=("<=", 0), note=json.dumps(watch.changes)[:2000], **beside)
    rows.add(test, "pairs", report["pairs"]["per_second"], "/s", note="seed " + str(args.seed), **beside)
    rows.add(test, "longest time without a confirmation", report["confirmation_gap_max_us"] / 1e6, "s")
    rows.add(test, "stops", len(stops), "", note=f"of the active one: {sum(one['active'] for one in stops)}")
    rows.add(test, "longest stop", max(lengths, default=0.0), "s",
             note=f"half of HeartbeatTimeout is {HEARTBEAT_TIMEOUT_S / 2:g} s; a busy machine may make a stop longer")
    rows.add(test, "messages lost", report["verdict"]["lost"], "", bar=("<=", 0))
    # Nothing may come twice while no connection is lost.
    rows.add(test, "messages duplicated", report["verdict"]["duplicated"], "", bar=("<=", 0))
    rows.add(test, "reconnects", report["reconnects"], "", bar=("<=", 0))
    rows.add(test, "looks that nobody answered", watch.silent, "")
    for name, seconds in found["cpu"].items():
        rows.add(test, f"CPU of {name}", seconds, "s", note="active at the end" if name == watch.active else "")
    return rows


def write(args, found, described, folder):
    rows = rows_of(args, found)
    rows.write(folder / f"{args.name}.json")
    shown = chart.lines("Pairs per second", "s", "pairs/s", [(f"mean of {CHART_S} s", found["rates"], False)], marks=False)
    words = ["Three instances and all clients share this machine. At random moments a random instance stands still "
             f"(SIGSTOP) for {STOP_LEAST_S:g} to {STOP_MOST_S:g} s; HeartbeatTimeout is {HEARTBEAT_TIMEOUT_S:g} s, the "
             "default. Nobody may be elected, and no client may lose its connection."]
    (folder / f"{args.name}.html").write_text(page("No election without a reason", words, [shown], rows.rows, described))
    return rows


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    args = arguments()
    args.seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed
    print(f"seed {args.seed}", file=sys.stderr, flush=True)
    work = ROOT / "lab" / ".cache" / args.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # A copy: a build meanwhile must not change what is measured.
    args.towline = shutil.copy2(args.towline, work / "towline")
    progress = Progress(args.minutes * 60)
    try:
        found = measure(args, work, progress)
    finally:
        progress.end()
    described = {**machine.describe(work), "command": " ".join(sys.argv), "seed": args.seed}
    folder = ROOT / "lab" / "results"
    folder.mkdir(exist_ok=True)
    rows = write(args, found, described, folder)
    print("\n".join(rows.table()))
    failed = [row for row in rows.rows if row["kept"] is False]
    for change in found["watch"].changes:
        print(f"term changed: {change}", file=sys.stderr)
    if failed:
        print(f"not kept: {', '.join(row['metric'] for row in failed)}; logs in {work}", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
