#!/usr/bin/env python3
"""How long clients miss a queue manager of several instances when the active one goes (`make lab-failover`).

Repeats the report "Improved Switch/Fail-over times in MQ V9.1.2" with its three topologies: a group (native), two processes
on a shared folder, a group with a floating address; and adds kill -9, SIGSTOP and a machine that is gone.
A table and lab/results/failover.json with the published figures beside ours, lab/results/failover.html with charts.
It asserts nothing: a bar that is not kept is shown as such. Needs root, ip and nft for the tests with machines. What
was measured is kept under lab/.cache/failover until the run is complete: the same command goes on where it was ended.
"""

import argparse
import sys
import time

from failover_measure import TESTS, TOPOLOGIES, Lab
from failover_report import report
from towlab import lan
from towlab.campaign import Campaign, digest


def names(known):
    """`a,b` as a list of known names."""
    def read(text):
        found = [part for part in text.replace(" ", ",").split(",") if part]
        wrong = [name for name in found if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]}: there are {', '.join(known)}")
        return found
    return read


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", required=True, help="the binary to measure")
    parser.add_argument("--rounds", type=int, default=10, help="each value is the median of so many")
    parser.add_argument("--only", type=names(TESTS), default=list(TESTS), help=f"tests: {', '.join(TESTS)}")
    parser.add_argument("--topologies", type=names(TOPOLOGIES), default=list(TOPOLOGIES),
                        help=f"topologies: {', '.join(TOPOLOGIES)}")
    parser.add_argument("--keep", action="store_true", help="keep data folders and pieces at the end")
    parser.add_argument("--name", default="failover", help="lab/results/NAME.json and NAME.html")
    return parser.parse_args()


def settings(args):
    """What results depend on: another binary makes them void."""
    return {"binary": digest(args.towline)}


def check_machines(args):
    """Leaves out what this machine cannot do, and says so."""
    apart = [name for name in args.topologies if TOPOLOGIES[name].needs_machines]
    if not apart and not any(TESTS[name].machines for name in args.only):
        return
    why = lan.why_not()
    if why:
        args.only = [name for name in args.only if not TESTS[name].machines]
        args.topologies = [name for name in args.topologies if name not in apart]
        print(f"without the tests that need machines of their own: {why}", file=sys.stderr)


def main():
    args = arguments()
    check_machines(args)
    campaign = Campaign(args)
    campaign.load(settings(args))
    lab = Lab(args, campaign.work)
    try:
        campaign.measure(lab.steps())
    finally:
        lab.close()
    campaign.publish(report, share="all instances and all clients on this machine")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
