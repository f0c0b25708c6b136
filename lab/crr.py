#!/usr/bin/env python3
"""What a second region costs: six instances, 40 ms apart, with and without the log on its way (`make lab-crr`).

Repeats the report "Performance overhead of NHA:CRR": the ladder of clients, a fixed rate, the sample table, reported
against true backlog; and adds a line of 50 Mbit/s and a cut. A table, lab/results/NAME.json, and lab/results/NAME.html
with charts. It asserts nothing: a bar that is not kept is shown as such. What was measured is kept under lab/.cache/NAME
until the run is complete: the same command goes on where it was ended.
"""

import argparse
import pathlib
import shutil
import sys
import time

from crr_measure import PARTS, SYNC, Lab
from crr_mirror import MirrorLab
from crr_report import report
from failover import names
from peers import artemis
from towlab.campaign import ROOT, Campaign, digest

PEER = "artemis"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", required=True, help="the binary to measure")
    parser.add_argument("--slow-net", help="the proxy between the regions, a release build [default: beside towline, or below target]")
    parser.add_argument("--rounds", type=int, help="of `fixed`; each value is their median [5, quick: 1]")
    parser.add_argument("--seconds", type=float, help="of each measurement of `fixed` [8, quick: 2]")
    parser.add_argument("--ladder-seconds", type=float, help="of each step of the ladder, after 2 s [3, quick: 2]")
    parser.add_argument("--cut-seconds", type=float, help="of the cut of `line` [60, quick: 15]")
    parser.add_argument("--only", type=names((*PARTS, SYNC, PEER)), default=list(PARTS),
                        help=f"parts: {', '.join(PARTS)}; `fixed` and `backlog` need the ladder, and measure it. Or {SYNC}: "
                             f"sync_replication against off at other round trips. Or {PEER}: Artemis with and without its mirror (Maven)")
    parser.add_argument("--quick", action="store_true", help="small: does it run at all; written to crr-quick")
    parser.add_argument("--keep", action="store_true", help="keep the pieces at the end")
    parser.add_argument("--name", help="lab/results/NAME.json and NAME.html [crr]")
    args = parser.parse_args()
    for name, usual, quick in (("rounds", 5, 1), ("seconds", 8.0, 2.0), ("ladder_seconds", 3.0, 2.0), ("cut_seconds", 60.0, 15.0),
                               ("name", "crr", "crr-quick")):
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else usual)
    args.slow_net = args.slow_net or proxy_beside(args.towline)
    if not args.slow_net:
        parser.error("no slow-net beside towline: name it with --slow-net (make lab-net builds it)")
    return args


def proxy_beside(towline):
    """The proxy where a build puts it."""
    places = (pathlib.Path(towline).parent / "slow-net", ROOT / "target" / "release" / "slow-net")
    return next((place for place in places if place.exists()), None)


def settings(args):
    """What results depend on: another binary or another option makes them void."""
    kept = {name: getattr(args, name) for name in ("seconds", "ladder_seconds", "cut_seconds", "quick")}
    return {**kept, "binary": digest(args.towline), "net": digest(args.slow_net)}


def main():
    args = arguments()
    campaign = Campaign(args)
    campaign.load(settings(args))
    args.slow_net = shutil.copy2(args.slow_net, campaign.work / "slow-net")
    lab = Lab(args, campaign)
    args.backlogs = lab.backlogs()
    steps = lab.steps()
    if PEER in args.only:
        artemis.fetch()
        steps += MirrorLab(args, campaign).steps()
    try:
        campaign.measure(steps)
    finally:
        shutil.rmtree(campaign.work / "now", ignore_errors=True)
    campaign.publish(report, share="all six instances, the network between them and all clients on this machine")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
