"""Rows, charts and the table of the neighbours experiment, from the results of its pieces.

Bars are those of the promise. What a put waits *more* is its p99.9 beside the greedy client less that beside the same
client while it waits; both are of the same round. Not here: measuring.
"""

import re

from greedy.cases import THEMES, chosen
from neighbours_measure import name_of
from towlab import chart
from towlab.page import page
from towlab.probe import KINDS, RATE, SIZE_BYTES
from towlab.rows import Rows, plain

MIB = 2**20
PUT_BAR, STATUS_BAR, MEMORY_BAR, SHARE_BAR = ("<=", 20.0), ("<=", 0.2), ("<=", 64.0), (">=", 0.45)
WAYS = {"control": "control socket", "amqp": "a new AMQP connection"}
LOGIN = "login over TCP, longest"
MORE = {kind: f"{kind} put, p99.9: waits more" for kind in KINDS}
LONGEST = {kind: f"{kind} put, longest" for kind in KINDS}
STATUS = {way: f"status, longest answer, {words}" for way, words in WAYS.items()}
MEMORY, HARM, TOOK, SHARE = "memory grows by", "refused, lost, unanswered", "it took", "share of the one link"
FAILED = "went through"
WRONG = ("refused", "lost", "reconnects", "unfinished")
HEAD = "| case | persistent put, ms more | non-persistent put, ms more | status, s | memory, MiB |"
TABLE = re.compile(r"(<!-- table -->\n).*?(<!-- end of table -->)", re.DOTALL)


class Results:
    """The pieces of one case."""

    def __init__(self, args, done, case):
        found = [done.get(name_of(case, turn)) for turn in range(args.rounds)]
        self.failed = [one["failed"] for one in found if one and "failed" in one]
        self.rounds = [one for one in found if one and "failed" not in one]
        self.others = max((one["others"] for one in found if one), default=None)

    def more_ms(self, kind):
        return [one["beside"][kind]["p999_ms"] - one["idle"][kind]["p999_ms"] for one in self.rounds]

    def status_s(self, way, window="beside"):
        found = (one[window]["status"].get(way) for one in self.rounds)
        return [max(answers) for answers in found if answers]

    def memory_mib(self):
        found = (one["beside"]["status"] for one in self.rounds)
        return [(status["resident_most"] - status["resident_first"]) / MIB for status in found
                if status["resident_first"] is not None]

    def harm(self):
        """Puts that were refused or lost, connections that were lost, answers that did not come."""
        return [sum(one["beside"][kind][what] for kind in KINDS for what in WRONG) +
                len(one["beside"]["status"]["failures"]) for one in self.rounds]


def put_note(results, kind):
    """The latencies behind the difference, of the last round."""
    idle, beside = (results.rounds[-1][window][kind] for window in ("idle", "beside"))
    return (f"idle p99.9 {plain(idle['p999_ms'])}, longest {plain(idle['max_ms'])}; beside p50 {plain(beside['p50_ms'])}, "
            f"p99 {plain(beside['p99_ms'])}, p99.9 {plain(beside['p999_ms'])} ms of {beside['count']:,} puts")


def case_rows(rows, args, done, case):
    """All rows of a case."""
    results, test = Results(args, done, case), case.name
    if results.failed:
        rows.add(test, FAILED, len(results.rounds), "rounds", bar=(">=", args.rounds), note=results.failed[-1],
                 others=results.others)
    if not results.rounds:
        return
    for kind in KINDS:
        free = case.why_persistent if kind == "persistent" else ""
        notes = "; ".join(part for part in (free and f"no bar: {free}", put_note(results, kind)) if part)
        rows.add(test, MORE[kind], results.more_ms(kind), "ms", bar=None if free else PUT_BAR, note=notes,
                 others=results.others)
        rows.add(test, LONGEST[kind], [one["beside"][kind]["max_ms"] for one in results.rounds], "ms")
    # Through a slow folder it cannot be asked.
    for way in [way for way in WAYS if results.status_s(way)]:
        idle = max(results.status_s(way, "idle"), default=None)
        rows.add(test, STATUS[way], results.status_s(way), "s", bar=STATUS_BAR, note=f"idle {plain(idle)} s")
    rows.add(test, LOGIN, results.status_s("login"), "s",
             note=f"idle {plain(max(results.status_s('login', 'idle'), default=None))} s")
    rows.add(test, MEMORY, results.memory_mib(), "MiB", bar=None if case.why_memory else MEMORY_BAR,
             note=f"no bar: {case.why_memory}" if case.why_memory else "")
    failures = [failure for one in results.rounds for failure in one["beside"]["status"]["failures"]]
    rows.add(test, HARM, results.harm(), "", bar=("<=", 0), note=failures[-1] if failures else "")
    own_rows(rows, results, case.words(args), test)


def own_rows(rows, results, words, test):
    """What the case itself found, and how long it took."""
    own = {name: [one["own"][name] for one in results.rounds] for name in results.rounds[-1]["own"]}
    share = own.pop("share", None)
    if share:
        rows.add(test, SHARE, share, "", bar=SHARE_BAR, note="0.5 is fair")
    rows.add(test, TOOK, [one["took_s"] for one in results.rounds], "s",
             note="; ".join([words, *(f"{name} {plain(found[-1])}" for name, found in own.items())]))


def charts(args, rows, cases):
    """One chart for each thing that is promised, all cases below each other."""
    def level(title, unit, metrics, bar):
        lines = [(case.name, {name: rows.value(case.name, metric) for name, metric in metrics.items()})
                 for case in cases]
        return chart.levels(title, unit, lines, bar[1])
    return [level("A put on another queue waits more, p99.9", "ms (logarithmic)", {kind: MORE[kind] for kind in KINDS},
                  PUT_BAR),
            level("Longest put on another queue", "ms (logarithmic)", {kind: LONGEST[kind] for kind in KINDS}, PUT_BAR),
            level("Longest answer with the status", "s (logarithmic)", {WAYS[way]: STATUS[way] for way in WAYS},
                  STATUS_BAR),
            level("Memory of the queue manager grows by", "MiB (logarithmic)", {"growth": MEMORY}, MEMORY_BAR)]


def report(args, done, machine, folder):
    """Writes NAME.json and NAME.html into the folder; the rows."""
    rows, cases = Rows(), chosen(args.only)
    for case in cases:
        case_rows(rows, args, done, case)
    words = [f"Each case on a queue manager of its own. {RATE} persistent and {RATE} non-persistent puts a second of "
             f"{SIZE_BYTES:,} bytes to two other queues, each timed from when it was due; a status every 250 ms, over the "
             "control socket and over a new AMQP connection, and a login over TCP; resident memory every 20 ms. First "
             f"beside the greedy client while it waits, then beside what it does, {args.seconds:g} s each at least.",
             "`waits more`: p99.9 beside what it does, less p99.9 beside the idle one. The probes are `towline load` and a "
             "process of their own. Probes, queue manager and greedy clients share this machine: where `others` in the "
             "JSON is above 0.2, something else did as well, and the run has to be repeated."]
    if args.apart:
        words.insert(0, "A control: the greedy client is at another queue manager on the same machine. What is waited here "
                        "is waited for processors and disk, not for anything in the queue manager.")
    rows.write(folder / f"{args.name}.json")
    (folder / f"{args.name}.html").write_text(page("One client never hurts another", words, charts(args, rows, cases),
                                                   rows.rows, machine))
    return rows


# The table of the page.


def cell(value, bar):
    """A value of the table; bold where it is above its bar."""
    if value is None:
        return "-"
    missed = bar and (value > bar[1] if bar[0] == "<=" else value < bar[1])
    return f"**{plain(value)}**" if missed else plain(value)


def table(args, done):
    """Lines of Markdown: one for each case, by theme."""
    rows, lines = Rows(), []
    names = {case.name for case in chosen(args.only)}
    for theme, cases in THEMES.items():
        shown = [case for case in cases if case.name in names]
        if not shown:
            continue
        lines += [f"### {theme}", "", HEAD, "|---|---|---|---|---|"]
        for case in shown:
            case_rows(rows, args, done, case)
            lines.append(line(rows, args, case, Results(args, done, case)))
        lines.append("")
    return lines


def line(rows, args, case, results):
    """The line of a case."""
    if not results.rounds:
        why = "did not go through" if results.failed else "not measured"
        return f"| `{case.name}`: {case.words(args)} | {why} | | | |"
    test = case.name
    status = [rows.value(test, STATUS[way]) for way in WAYS]
    cells = [cell(rows.value(test, MORE["persistent"]), None if case.why_persistent else PUT_BAR),
             cell(rows.value(test, MORE["non-persistent"]), PUT_BAR),
             cell(max((value for value in status if value is not None), default=None), STATUS_BAR),
             cell(rows.value(test, MEMORY), None if case.why_memory else MEMORY_BAR)]
    share = rows.value(test, SHARE)
    more = f"; share of the one link: {cell(share, SHARE_BAR)}" if share is not None else ""
    return f"| `{case.name}`: {case.words(args)}{more} | {' | '.join(cells)} |"


def write_page(args, done, path):
    """Puts the table between the marks of a page, in place of the one before."""
    text = path.read_text()
    fresh = "\n".join(["", *table(args, done)])
    if not TABLE.search(text):
        raise SystemExit(f"{path} has no place for a table: <!-- table --> and <!-- end of table -->")
    path.write_text(TABLE.sub(lambda found: found[1] + fresh + found[2], text))
