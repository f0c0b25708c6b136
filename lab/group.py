#!/usr/bin/env python3
"""What a group costs: against a single instance, at a distance (`make lab-group`), beside peers (`make lab-group-peers`).

A table, lab/results/NAME.json, and lab/results/NAME.html with charts. It asserts nothing: a bar that is not kept is shown
as such. Peers need root, Go, and Debian's packages (fetched on first use). What was measured is kept under
lab/.cache/NAME until the run is complete: the same command goes on where it was ended.
"""

import argparse
import shutil
import sys
import time

from failover import names, settings
from group_measure import PARTS, Lab
from group_report import report
from peers import nats, pairs, rabbitmq
from towlab.campaign import Campaign


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", required=True, help="the binary to measure")
    parser.add_argument("--slow-net", help="the proxy for `distance`, a release build")
    parser.add_argument("--rounds", type=int, default=5, help="each value is the median of so many")
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--sync-delay-ms", type=float, default=5, help="of `single`, on both sides")
    parser.add_argument("--only", type=names(PARTS), default=list(PARTS), help=f"parts: {', '.join(PARTS)}")
    parser.add_argument("--keep", action="store_true", help="keep the pieces at the end")
    parser.add_argument("--name", default="group", help="lab/results/NAME.json and NAME.html")
    args = parser.parse_args()
    if "distance" in args.only and not args.slow_net:
        parser.error("distance needs --slow-net")
    return args


def fetch(args):
    """What is compared, and the generator, before anything is measured."""
    if {"peers", "kill"} & set(args.only):
        pairs.built()
        nats.fetch()
        rabbitmq.fetch()


def main():
    args = arguments()
    fetch(args)
    campaign = Campaign(args)
    campaign.load({**settings(args), "seconds": args.seconds, "delay": args.sync_delay_ms})
    try:
        campaign.measure(Lab(args, campaign.work).steps())
    finally:
        shutil.rmtree(campaign.work / "now", ignore_errors=True)
    campaign.publish(report, share="all instances and all clients on this machine")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
