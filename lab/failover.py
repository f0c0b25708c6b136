#!/usr/bin/env python3
"""How long clients miss a queue manager of several instances when the active one goes (`make lab-failover`).

Repeats the report "Improved Switch/Fail-over times in MQ V9.1.2" with its three topologies: a group (native), two processes
on a shared folder, a group with a floating address; and adds kill -9, SIGSTOP and a machine that is gone.
A table and lab/results/failover.json with the published figures beside ours, lab/results/failover.html with charts.
It asserts nothing: a bar that is not kept is shown as such. Needs root, ip and nft for the tests with machines. What
was measured is kept under lab/.cache/failover until the run is complete: the same command goes on where it was ended.
"""

import argparse
import hashlib
import pathlib
import shutil
import signal
import sys
import time

from failover_measure import TESTS, TOPOLOGIES, Lab
from failover_report import report
from towlab import lan, machine
from towlab.pieces import Pieces
from towlab.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parent.parent


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
    return {"binary": hashlib.sha256(pathlib.Path(args.towline).read_bytes()).hexdigest()[:16]}


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
    # An order to end runs what stands under `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; the same command goes on"))
    args = arguments()
    check_machines(args)
    work = ROOT / "lab" / ".cache" / args.name
    work.mkdir(parents=True, exist_ok=True)
    pieces = Pieces(work / "pieces.json", settings(args))
    # A copy: a build meanwhile must not change what is measured.
    args.towline = shutil.copy2(args.towline, work / "towline")
    lab = Lab(args, work)
    steps = lab.steps()
    progress = Progress(sum(weight for _, weight, _ in steps))
    try:
        for name, weight, measure in steps:
            skipped = name in pieces
            if not skipped:
                progress.say(name)
                with machine.Others() as others:
                    result = measure()
                pieces.put(name, {**result, "others": others.processors})
            progress.step(weight, name, skipped)
    finally:
        lab.close()
        progress.end()
    folder = ROOT / "lab" / "results"
    folder.mkdir(exist_ok=True)
    described = {**machine.describe(work), "command": " ".join(sys.argv), "binary": pieces.settings["binary"],
                 "share": "all instances and all clients on this machine"}
    rows = report(args, pieces.done, described, folder)
    print("\n".join(rows.table()))
    print(f"{folder / args.name}.json, {folder / args.name}.html")
    if not args.keep:
        pieces.forget()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
