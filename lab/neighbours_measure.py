"""One case of the neighbours experiment: the probes beside a greedy client that waits, and beside what it does.

Both in the same run, on the same queue manager with the same messages. Not here: what a case does (greedy/), and what
the figures mean (neighbours_report.py).
"""

import subprocess
import time

from greedy.bench import Bench
from greedy.cases import chosen
from towlab.getter import Broken
from towlab.probe import LAST, Probes, niceness
from towlab.queue_manager import Failed

# About seconds of a case beside its two measurements and its own weight: start, end, the probes' connections.
AROUND_S = 4
REST_S = 1


def name_of(case, turn):
    """Name of a piece."""
    return f"{case.name} #{turn + 1}"


class Lab:
    """Measures cases below a folder."""

    def __init__(self, args, work):
        self.args, self.work = args, work
        self.say = lambda text: None

    def steps(self):
        """All steps in order: name, weight (about seconds), function that gives a JSON object."""
        size = max(0.1, self.args.depth / 1e6)
        return [(name_of(case, turn), AROUND_S + 2 * self.args.seconds + case.weight * size,
                 lambda case=case: self.measured(case))
                for case in chosen(self.args.only) for turn in range(self.args.rounds)]

    def measured(self, case):
        """What was found; of a case that did not go through, why."""
        try:
            with Bench(self.args, self.work / "now", lambda text: self.say(text)) as bench:
                return self.beside(case, bench)
        except (Failed, Broken, OSError, subprocess.SubprocessError) as error:
            return {"failed": f"{type(error).__name__}: {error}"}

    def beside(self, case, bench):
        if case.start:
            case.start(bench)
        else:
            bench.start(case.options)
        if self.args.apart:
            bench.start_apart()
        act = case.run(bench)
        with niceness(LAST):
            next(act)
        self.say("beside an idle neighbour")
        # What the preparation left to do in the background is not the idle neighbour's.
        time.sleep(min(REST_S, self.args.seconds / 2))
        idle, _ = self.window(bench, lambda: None)
        self.say("beside what it does")
        beside, (took_s, own) = self.window(bench, lambda: finish(act))
        if not all(manager.running for manager in (bench.manager, bench.apart) if manager):
            raise Failed("the queue manager has ended")
        return {"idle": idle, "beside": beside, "took_s": took_s, "own": own or {}}

    def window(self, bench, act):
        """Probes from before `act` until after it, for the seconds of a measurement at least."""
        # A folder of which each operation is slow is not where answers of the queue manager are timed.
        probes = Probes(bench.apart or bench.manager, control=bench.apart or not bench.has_slow_folder)
        try:
            began = time.monotonic()
            with niceness(LAST):
                own = act()
            took_s = time.monotonic() - began
            time.sleep(max(0.0, self.args.seconds - took_s))
            probes.until_calm()
            return probes.end(), (took_s, own)
        finally:
            probes.kill()


def finish(act):
    """Does the rest of a case; what it returns."""
    try:
        next(act)
    except StopIteration as end:
        return end.value
    raise AssertionError("a case stops once")
