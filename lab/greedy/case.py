"""One case of `make lab-neighbours`: what a greedy client does, as a function that stops once before it does it.

The function is given a bench. What it does before its `yield` is preparation; then the idle neighbour is measured, then
the rest is done while the probes run. It may return figures of its own (a dict).
"""

import dataclasses
import functools
import typing



@dataclasses.dataclass(frozen=True)
class Case:
    """`name`: what ONLY selects; `what`: words in which {depth}, {many} and {megabytes} are filled in."""

    name: str
    what: str
    run: typing.Callable
    # Options of `towline run`, or a function that starts another queue manager on a bench.
    options: tuple = ()
    start: typing.Callable | None = None
    # More than one connection, or messages that stay in memory: then there is no bar for memory. In words.
    why_memory: str = ""
    # The persistent probe waits for the same slow disk. In words.
    why_persistent: str = ""
    # About seconds beside the two measurements, at full size.
    weight: float = 8

    def words(self, args):
        return self.what.format(depth=f"{args.depth:,}", many=f"{args.many:,}", megabytes=args.megabytes,
                                temporary=f"{temporary(args.many):,}", part=f"{part(args.depth):,}",
                                few=f"{few(args.depth):,}")


def temporary(many):
    """Clients with a queue of their own: 4,000 of 10,000."""
    return max(1, many * 2 // 5)


def part(depth):
    """Large messages: 300,000 of 1,000,000."""
    return max(1, depth * 3 // 10)


def few(depth):
    """Messages of which each is much work: 1,000 of 1,000,000."""
    return max(1, depth // 1000)


def both(name, what, run, **facts):
    """The case with messages that are not persistent, and with persistent ones."""
    return [Case(name, f"{what}, not persistent", functools.partial(run, persistent=False), **facts),
            Case(f"{name}-persistent", f"{what}, persistent", functools.partial(run, persistent=True), **facts)]
