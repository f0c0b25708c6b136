"""One line that says how far a run is: a bar on a terminal, a line for each step elsewhere (standard error)."""

import sys
import time

WIDTH = 30


class Progress:
    """Steps with weights (about seconds); what is left is estimated from those done."""

    def __init__(self, total):
        self.total, self.done, self.spent = max(total, 1e-9), 0.0, 0.0
        self.skipped = 0.0
        self.began = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def say(self, text):
        """What is being done."""
        if self.terminal:
            filled = int(WIDTH * min(1.0, self.done / self.total))
            bar = "#" * filled + "." * (WIDTH - filled)
            line = f"[{bar}] {100 * self.done / self.total:3.0f} % {self.left():>9}  {text}"
            print(f"\r\033[K{line[:180]}", end="", file=sys.stderr, flush=True)

    def left(self):
        """Time left, in words."""
        worked = self.done - self.skipped
        if worked <= 0:
            return ""
        seconds = (time.monotonic() - self.began) * (self.total - self.done) / worked
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"

    def step(self, weight, text, skipped=False):
        """A step is done; `skipped` when an earlier run did it."""
        self.done += weight
        self.skipped += weight if skipped else 0
        if self.terminal:
            self.say(text)
        elif not skipped:
            elapsed = time.monotonic() - self.began
            print(f"{100 * self.done / self.total:3.0f} % {elapsed:6.0f} s  {text}", file=sys.stderr, flush=True)

    def end(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
