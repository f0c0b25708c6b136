"""One run of a lab program, from its first piece to the published page. It goes on where an earlier run was ended.

Not here: what is measured (the steps), and what is published (the report).
"""

import hashlib
import pathlib
import shutil
import signal
import sys

from towlab import machine
from towlab.pieces import Pieces
from towlab.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def digest(program):
    """Stands for a program in settings: results of another one are void."""
    return hashlib.sha256(pathlib.Path(program).read_bytes()).hexdigest()[:16]


class Campaign:
    """A run under the name of its options, with a folder of its own below `root`/lab/.cache."""

    def __init__(self, args, root=ROOT):
        # An order to end runs what stands under `finally`.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; the same command goes on"))
        self.args, self.root, self.pieces = args, root, None
        self.work = root / "lab" / ".cache" / args.name
        self.work.mkdir(parents=True, exist_ok=True)

    def load(self, settings):
        """Finds the pieces of an earlier run with these settings, and copies the program.

        The copy is what is measured: a build meanwhile must not change it.
        """
        self.pieces = Pieces(self.work / "pieces.json", settings)
        self.args.towline = shutil.copy2(self.args.towline, self.work / "towline")

    def measure(self, steps, announce=lambda progress, name: None):
        """Does the steps (name, weight, function) that have no piece yet."""
        progress = Progress(sum(weight for _, weight, _ in steps))
        try:
            for name, weight, measure in steps:
                skipped = name in self.pieces
                if not skipped:
                    progress.say(name)
                    announce(progress, name)
                    with machine.Others() as others:
                        result = measure()
                    self.pieces.put(name, {**(result or {}), "others": others.processors})
                progress.step(weight, name, skipped)
        finally:
            progress.end()

    def publish(self, report, remark="", **described):
        """Writes the page with the machine and what is `described` besides, prints the table, and drops the pieces."""
        folder = self.root / "lab" / "results"
        folder.mkdir(parents=True, exist_ok=True)
        described = {**machine.describe(self.work), "command": " ".join(sys.argv),
                     "binary": self.pieces.settings["binary"], **described}
        rows = report(self.args, self.pieces.done, described, folder)
        print("\n".join(rows.table()))
        if remark:
            print(f"\n{remark}")
        print(f"{folder / self.args.name}.json, {folder / self.args.name}.html")
        if not self.args.keep:
            self.pieces.forget()
            shutil.rmtree(self.work, ignore_errors=True)
