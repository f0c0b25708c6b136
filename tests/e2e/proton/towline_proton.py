"""What the Proton scenarios share: how one is chosen, checks, and a blocking connection.

A scenario is a function marked with @scenario; it runs as `python SCRIPT.py NAME URL ARGUMENTS...`
and ends with exit code 0 when all was as it should be.
"""

import sys
import traceback

from proton.utils import BlockingConnection

PATIENCE = 20.0
"""Seconds. Answers come within milliseconds; this is for a busy machine."""

NOTHING = 0.3
"""Seconds for which "nothing comes" is watched."""

_scenarios = {}


def scenario(function):
    """Makes a function callable by its name from the command line."""
    _scenarios[function.__name__] = function
    return function


def connect(url, **options):
    """A blocking connection without a login."""
    return BlockingConnection(url, timeout=PATIENCE, allowed_mechs="ANONYMOUS", **options)


def check(condition, words):
    """Ends the scenario with these words unless the condition holds."""
    if not condition:
        raise AssertionError(words)


def equal(expected, seen, words):
    """Ends the scenario unless both are equal."""
    check(expected == seen, f"{words}: expected {expected!r}, but saw {seen!r}")


def fails(kind, act):
    """Expects an exception of this kind, and gives it back."""
    try:
        act()
    except kind as failure:
        return failure
    raise AssertionError(f"expected {kind.__name__}, but nothing failed")


def say(line):
    """Tells the test what was reached."""
    print(line, flush=True)


def hear():
    """Waits until the test says a line."""
    return sys.stdin.readline()


def main():
    """Runs the scenario that the command line names."""
    name, url, *arguments = sys.argv[1:]
    try:
        _scenarios[name](url, *arguments)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    say(f"passed {name}")
    sys.exit(0)
