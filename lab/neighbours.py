#!/usr/bin/env python3
"""Whatever one client does, what does another one notice? (`make lab-neighbours`)

Each case is a greedy client; puts to other queues and the status are timed beside it, and beside the same client while
it waits. A table, lab/results/neighbours.json, and lab/results/neighbours.html with charts. It asserts nothing: a bar
that is not kept is shown as such. As root the probes run before everything else on the machine, for in the field
clients have machines of their own. What was measured is kept under lab/.cache/NAME until the run is complete: the same
command goes on where it was ended.
"""

import argparse
import os
import pathlib
import shutil
import sys
import time

from greedy.cases import ALL, chosen
from neighbours_measure import Lab
from neighbours_report import report, write_page
from towlab.campaign import Campaign, digest
from towlab.slow_disk import take_away_left_over
from towlab.stage import end_left_over


def words(text):
    return [part for part in text.replace(" ", ",").split(",") if part]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", help="the binary to measure")
    parser.add_argument("--slow-disk", help="the binary of tests/e2e for the case `slow-disk` (root); none: without it")
    parser.add_argument("--depth", type=int, default=1_000_000, help="messages of a deep queue")
    parser.add_argument("--many", type=int, default=10_000, help="connections, links, queues")
    parser.add_argument("--megabytes", type=int, default=100, help="of a large message")
    parser.add_argument("--seconds", type=float, default=10, help="of each of the two measurements of a case, at least")
    parser.add_argument("--rounds", type=int, default=1, help="each value is the median of so many")
    parser.add_argument("--only", type=words, default=[], help="cases, or the first words of their names; --list")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--page", help="write the table into this Markdown page, between its marks")
    parser.add_argument("--keep", action="store_true", help="keep the pieces at the end")
    parser.add_argument("--apart", action="store_true", help="the control: the probes use a second queue manager on this "
                        "machine, which shares no more than processors and disk with the greedy clients")
    parser.add_argument("--name", default="neighbours", help="lab/results/NAME.json and NAME.html")
    args = parser.parse_args()
    if not args.list and not args.towline:
        parser.error("--towline is missing")
    try:
        left_out = [] if args.slow_disk and os.geteuid() == 0 else ["slow-disk"]
        args.only = [case.name for case in chosen(args.only) if case.name not in left_out]
    except ValueError as error:
        parser.error(str(error))
    return args


def settings(args):
    """What results depend on: another binary or another option makes them void. A case is a piece of its own."""
    kept = {name: getattr(args, name) for name in ("depth", "many", "megabytes", "seconds", "rounds", "apart", "name")}
    return {**kept, "binary": digest(args.towline)}


def main():
    args = arguments()
    if args.list:
        print("\n".join(f"{case.name:22} {case.words(args)}" for case in ALL))
        return
    campaign = Campaign(args)
    end_left_over(campaign.work)
    take_away_left_over(campaign.work / "now" / "mount")
    campaign.load(settings(args))
    if args.slow_disk:
        args.slow_disk = shutil.copy2(args.slow_disk, campaign.work / "slow-disk")
    lab = Lab(args, campaign.work)

    def announce(progress, name):
        lab.say = lambda text: progress.say(f"{name}: {text}")

    try:
        campaign.measure(lab.steps(), announce)
    finally:
        shutil.rmtree(campaign.work / "now", ignore_errors=True)
    done = dict(campaign.pieces.done)
    campaign.publish(report, priorities="probes first, greedy clients last" if os.geteuid() == 0 else "all alike")
    if args.page:
        write_page(args, done, pathlib.Path(args.page))


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
