#!/usr/bin/env python3
"""How long a queue manager takes to come back after kill -9, however deep its queues (`make lab-restart`).

Repeats the report "Queue Manager Restart Times in V9.1.1": the same states, killed, page cache dropped, started;
timed from exec to `ready` and to the first message got from every queue. A table and lab/results/restart.json with
the published figures beside ours, lab/results/restart.html with charts. It asserts nothing: a bar that is not kept
is shown as such. Needs root (page cache, FUSE). What was measured is kept under lab/.cache/restart until the run is
complete: the same command goes on where it was ended.
"""

import argparse
import os
import shutil
import statistics
import sys
import time

from restart_measure import Lab
from restart_report import report
from towlab.campaign import Campaign, digest
from towlab.slow_disk import take_away_left_over
from towlab.stage import end_left_over


def numbers(kind):
    """`0,100000` as a list."""
    return lambda text: [kind(part) for part in text.replace(" ", ",").split(",") if part]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", required=True, help="the binary to measure")
    parser.add_argument("--slow-disk", help="the binary of tests/e2e that delays file operations; none: no delays")
    parser.add_argument("--depths", type=numbers(int), default=[0, 100_000, 500_000, 1_000_000],
                        help="messages in each queue")
    parser.add_argument("--queues", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5, help="each value is the median of so many")
    parser.add_argument("--size", type=int, default=2048, help="bytes of a body; random, so nothing compresses")
    parser.add_argument("--delays", type=numbers(float), default=[0, 1, 2],
                        help="ms added to each file operation; 0: through FUSE without delay")
    parser.add_argument("--tail", type=int, default=10_000, help="messages committed after the image")
    parser.add_argument("--uncommitted", type=int, default=400_000, help="messages in open units at the kill")
    parser.add_argument("--load-seconds", type=int, default=12, help="of 2,500 round trips/s before the kill")
    parser.add_argument("--image-seconds", type=int, default=10, help="of load with images, and without")
    parser.add_argument("--image-depth", type=int, default=100_000, help="messages in each queue meanwhile")
    parser.add_argument("--grow-gb", type=float, default=10, help="put into one queue that only grows")
    parser.add_argument("--one-queue-depth", type=int, default=1_000_000, help="beside peers")
    parser.add_argument("--only", type=numbers(str), default=["kill", "load", "undo", "images", "grow", "one"],
                        help="kinds of test: kill, load, undo, images, grow, one")
    parser.add_argument("--keep", action="store_true", help="keep data folders and pieces at the end")
    parser.add_argument("--name", default="restart", help="lab/results/NAME.json and NAME.html")
    args = parser.parse_args()
    args.depths.sort()
    return args


def settings(args):
    """What results depend on: another binary or another option makes them void."""
    kept = {name: value for name, value in vars(args).items() if name not in ("keep", "only", "towline", "slow_disk")}
    kept["binary"] = digest(args.towline)
    return kept


def check_room(args, work):
    """Ends with a sentence when the deepest queues would not fit on the disk."""
    messages = max(max(args.depths) * args.queues if "kill" in args.only else 0, args.one_queue_depth, args.uncommitted)
    wanted = max(messages * args.size, args.grow_gb * 1e9 if "grow" in args.only else 0) * 1.15 + 4e9
    # What an ended run left is used again, or removed first.
    left = sum(path.stat().st_blocks * 512 for path in work.rglob("*/log/*") if path.is_file())
    free = shutil.disk_usage(work).free + left
    if free < wanted:
        sys.exit(f"{work} has {free / 1e9:.0f} GB free; this run needs {wanted / 1e9:.0f} GB (knobs: DEPTHS, QUEUES, SIZE)")


def busy_words(pieces):
    """How much else ran on the machine while it was measured."""
    others = [result["others"] for result in pieces.done.values()]
    return f"{statistics.median(others):.2f} processors (median of the pieces), {max(others):.2f} at most"


def main():
    args = arguments()
    if os.geteuid() != 0:
        sys.exit("needs root: the page cache is dropped before each start, and delays are mounted with FUSE")
    campaign = Campaign(args)
    work = campaign.work
    end_left_over(work)
    take_away_left_over(work / "mount")
    check_room(args, work)
    campaign.load(settings(args))
    if args.slow_disk:
        args.slow_disk = shutil.copy2(args.slow_disk, work / "slow-disk")
    lab = Lab(args, work)

    def announce(progress, name):
        lab.say = lambda text: progress.say(f"{name}: {text}")

    keep = True
    try:
        campaign.measure(lab.steps(), announce)
        keep = args.keep
    finally:
        # A run that was ended keeps its data: the next one goes on with it.
        lab.close(keep)
    busy = busy_words(campaign.pieces)
    campaign.publish(report, f"Other work on the machine: {busy}.", **{"other work meanwhile": busy})


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
