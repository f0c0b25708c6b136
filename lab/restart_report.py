"""Rows and charts of the restart experiment, from the results of its pieces.

Bars are those of the promise: ready and first get under 1 s at every depth, deepest within 1.3 of empty, and so on.
Not here: measuring.
"""

import statistics

import restart_published as published
from restart_measure import name_of
from towlab import chart
from towlab.page import page
from towlab.rows import Rows

MIB = 2**20
FIRST = "exec to first message got from every queue"
READY = "exec to ready"


class Results:
    """The pieces that were measured, by what they are about."""

    def __init__(self, args, done):
        self.args, self.done = args, done

    def rounds(self, kind, depth, delay=None):
        found = [self.done.get(name_of(kind, depth, delay, turn)) for turn in range(self.args.rounds)]
        return [one for one in found if one]

    def samples(self, key, *which):
        """One value of each round; `key` may be a function."""
        take = key if callable(key) else lambda one: one.get(key)
        found = [take(one) for one in self.rounds(*which)]
        return [value for value in found if value is not None]


def others_of(rounds):
    return statistics.median(one["others"] for one in rounds) if rounds else None


def slow_words(delay):
    """How the disk of a test is called."""
    if delay is None:
        return ""
    return f", +{delay:g} ms a file operation" if delay else ", FUSE without delay"


def image_note(rounds):
    took = [one["image_s"] for one in rounds if one.get("image_s") is not None]
    if not took:
        return "no `towline image` in this binary: waited 3 s instead"
    return f"image taken in {statistics.median(took):.2f} s"


def times(rows, results, kind, test, depth, delay, figure, bar=None):
    """Rows for the two times of a start."""
    rounds = results.rounds(kind, depth, delay)
    if not rounds:
        return
    value, by = figure
    common = {"published": value, "published_by": by, "others": others_of(rounds)}
    rows.add(test, READY, results.samples("ready_s", kind, depth, delay), "s", bar=bar, note=image_note(rounds), **common)
    rows.add(test, FIRST, results.samples("first_s", kind, depth, delay), "s", bar=bar, **common)


def test_name(args, depth, delay):
    return f"{args.queues} queues x {depth:,}{slow_words(delay)}"


def depth_rows(rows, results):
    args = results.args
    for delay in [None, *args.delays]:
        for depth in args.depths:
            which = ("kill", depth, delay)
            if not results.rounds(*which):
                continue
            test = test_name(args, depth, delay)
            bar = ("<=", 1.0) if delay is None else None
            times(rows, results, *which[:1], test, depth, delay, published.mq(published.MQ_911, depth, delay), bar)
            missing = results.samples("missing", *which)
            note = "" if not any(missing) else f"above 0: lost; below 0: uncommitted ones that came back: {missing}"
            rows.add(test, "messages too few or too many after restart", max((abs(one) for one in missing), default=[]), "",
                     bar=("<=", 0), note=note)
            rows.add(test, "resident at ready", [value / MIB for value in results.samples("resident_at_ready", *which)],
                     "MiB", bar=("<=", 256))
            rows.add(test, "read from disk until first gets",
                     [value / MIB for value in results.samples(lambda one: one["read"]["disk_bytes"], *which)], "MiB",
                     note="of the process, the pages of its program among them; behind FUSE only those")
            operations_row(rows, results, test, which)
            phase_rows(rows, results, test, which)
            if delay is None:
                rows.add(test, "resident before the kill",
                         [value / MIB for value in results.samples("resident_before", *which)], "MiB",
                         bar=("<=", 512))
                rows.add(test, "log on disk", [value / 2**30 for value in results.samples("disk_bytes", *which)], "GiB")


def operations_row(rows, results, test, which):
    found = results.samples("operations", *which)
    if found:
        kinds = ("look", "open", "read", "write", "sync", "list", "other")
        last = ", ".join(f"{name} {found[-1][name]}" for name in kinds)
        rows.add(test, "file operations until first gets", [sum(one[kind] for kind in kinds) for one in found], "",
                 note=f"{last}; {found[-1]['read_bytes'] / MIB:.1f} MiB read")


def phase_rows(rows, results, test, which):
    """What the queue manager itself says of its start: every number below `restart` in its status."""
    phases = [one for one in results.samples("phases", *which) if isinstance(one, dict)]
    for name in phases[0] if phases else ():
        samples = [one[name] for one in phases if isinstance(one.get(name), (int, float))]
        unit = next((unit for unit in ("ms", "us", "s", "bytes") if name.endswith(f"_{unit}")), "")
        if samples:
            rows.add(test, f"status, restart.{name}", samples, unit)


def ratio(rows, test, metric, above, below, bar, note=""):
    """The quotient of two values that may be missing."""
    if above is not None and below:
        rows.add(test, metric, above / below, "x", bar=bar, note=note)


def depth_ratios(rows, results):
    args = results.args
    least, most = args.depths[0], args.depths[-1]
    if least != most:
        for metric in (READY, FIRST):
            ratio(rows, f"{args.queues} queues: {most:,} / {least:,}", metric,
                  rows.value(test_name(args, most, None), metric), rows.value(test_name(args, least, None), metric),
                  ("<=", 1.3))
    for delay in args.delays:
        for depth in args.depths if delay else []:
            for metric in (READY, FIRST):
                ratio(rows, f"{args.queues} queues x {depth:,}: +{delay:g} ms / no delay", metric,
                      rows.value(test_name(args, depth, delay), metric),
                      rows.value(test_name(args, depth, None), metric), ("<=", 2))
                ratio(rows, f"{args.queues} queues x {depth:,}: +{delay:g} ms / FUSE without delay", metric,
                      rows.value(test_name(args, depth, delay), metric), rows.value(test_name(args, depth, 0), metric),
                      ("<=", 2))


def load_rows(rows, results):
    for delay in [None, *results.args.delays]:
        rounds = results.rounds("load", 10, delay)
        if rounds:
            rate = statistics.median(one["rate"] for one in rounds)
            test = f"killed at {rate:,.0f} round trips/s{slow_words(delay)}"
            value = published.UNDER_LOAD_911.get(delay)
            figure = (value, f"IBM MQ 9.1.1, {published.ON.get(delay)}, 2,500 round trips/s")
            times(rows, results, "load", test, 10, delay, figure if value else (None, None))


def undo_rows(rows, results):
    count = results.args.uncommitted
    none, many = f"{results.args.queues} queues, nothing uncommitted", f"{count:,} uncommitted messages"
    times(rows, results, "undo", none, 0, None, (None, None))
    times(rows, results, "undo", many, count, None, (published.UNDO_S, "IBM MQ: 46-49 s, undo"))
    for metric in (READY, FIRST):
        ratio(rows, f"{many} / none", metric, rows.value(many, metric), rows.value(none, metric), ("<=", 1.1))


def image_rows(rows, results):
    rounds = results.rounds("images", results.args.image_depth)
    if not rounds:
        return
    test = f"images back to back, {results.args.queues} queues x {results.args.image_depth:,}"
    if any(one.get("no_image_command") for one in rounds):
        rows.add(test, "put p99, with / without", [], "x", bar=("<=", 2),
                 note="not measured: this binary has no `towline image`")
        return
    taken = [sum(one["with"]["image_s"]) / max(1, one["with"]["images"]) for one in rounds]
    rows.add(test, "one image takes", taken, "s", others=others_of(rounds),
             note=f"{sum(one['with']['images'] for one in rounds)} images in all")
    for kind, key in (("put", "put_p99_us"), ("get", "get_p99_us"), ("pair", "pair_p99_us")):
        pairs = [one for one in rounds if one["with"].get(key) and one["without"].get(key)]
        for side in ("without", "with"):
            rows.add(test, f"{kind} p99 {side}", [one[side][key] / 1000 for one in pairs], "ms")
        rows.add(test, f"{kind} p99, with / without", [one["with"][key] / one["without"][key] for one in pairs], "x",
                 bar=("<=", 2))
    for side in ("without", "with"):
        rows.add(test, f"pairs {side}", [one[side]["pairs_per_s"] for one in rounds], "/s")
    rows.add(test, "pairs, with / without",
             [one["with"]["pairs_per_s"] / one["without"]["pairs_per_s"] for one in rounds], "x", bar=(">=", 0.9))


def grow_rows(rows, results):
    found = results.done.get("grow")
    if not found or len(found["puts_per_s"]) < 2:
        return
    rates = found["puts_per_s"]
    part = 60 if len(rates) >= 180 else max(1, len(rates) // 10)
    named = "minute" if part == 60 else f"{part} s"
    first, last = statistics.mean(rates[:part]), statistics.mean(rates[-part:])
    test = f"one queue grows by {results.args.grow_gb:g} GB"
    rows.add(test, f"puts, first {named}", first, "/s", others=found["others"])
    rows.add(test, f"puts, last {named}", last, "/s")
    rows.add(test, f"last {named} / first", last / first, "x", bar=(">=", 0.9))
    rows.add(test, "resident at the end", found["resident"] / MIB, "MiB", bar=("<=", 512))
    rows.add(test, "resident at most", found["resident_max"] / MIB, "MiB")


def one_queue_rows(rows, results):
    for depth in (0, results.args.one_queue_depth):
        samples = results.samples("first_s", "one", depth)
        peers = [(figures[depth], peer) for peer, figures in published.PEERS.items() if depth in figures]
        for index, (value, peer) in enumerate((peers or [(None, None)]) if samples else ()):
            note = "peers: another day, not measured again" if index else image_note(results.rounds("one", depth))
            rows.add(f"one queue x {depth:,}", "exec to first message got", samples, "s", value, peer, note=note)


def charts(args, rows, results):
    def by_depth(metric, delay):
        return [(depth, rows.value(test_name(args, depth, delay), metric)) for depth in args.depths]

    def figures(table, delay):
        return [(depth, value) for (depth, on), value in table.items() if on == delay]

    depth_label = "messages in each queue"
    out = [chart.lines("Restart by depth", depth_label, "s (logarithmic)",
                       [("first message got from every queue", by_depth(FIRST, None), False),
                        ("ready", by_depth(READY, None), False),
                        ("IBM MQ 9.1.1, SAN", figures(published.MQ_911, None), True),
                        ("IBM MQ 9.1, SAN", figures(published.MQ_91, None), True),
                        ("promised", [(args.depths[0], 1.0), (args.depths[-1], 1.0)], True)], log=True),
           chart.lines("First get with a slow disk", depth_label, "s (logarithmic)",
                       [*((f"+{delay:g} ms" if delay else "FUSE, no delay", by_depth(FIRST, delay), False)
                          for delay in args.delays),
                        *((f"IBM MQ 9.1.1, {published.ON[delay]}", figures(published.MQ_911, delay), True)
                          for delay in args.delays if delay in published.ON)], log=True),
           chart.lines("Memory by depth", depth_label, "MiB resident",
                       [("before the kill", by_depth("resident before the kill", None), False),
                        ("at ready, before the first get", by_depth("resident at ready", None), False)]),
           chart.lines("Read from disk until the first gets", depth_label, "MiB",
                       [("disk", by_depth("read from disk until first gets", None), False)])]
    out.append(chart.bars("One queue: exec to first message got", "s (logarithmic)",
                          [(f"{depth:,} messages",
                            {"Towline": rows.value(f"one queue x {depth:,}", "exec to first message got"),
                             **{peer: known.get(depth) for peer, known in published.PEERS.items()}})
                           for depth in (0, args.one_queue_depth)], log=True))
    grown = results.done.get("grow")
    if grown:
        points = list(enumerate(grown["puts_per_s"], 1))
        out.append(chart.lines("One queue that only grows", "s", "puts/s", [("puts", points, False)], marks=False))
    rounds = [one for one in results.rounds("images", args.image_depth) if "with" in one]
    if rounds:
        out.append(chart.bars("While images are taken: p99", "ms", [
            (kind, {side: statistics.median(one[side][f"{kind}_p99_us"] or 0 for one in rounds) / 1000
                    for side in ("without", "with")}) for kind in ("put", "get", "pair")]))
    return out


def report(args, done, machine, folder):
    """Writes NAME.json and NAME.html into the folder; the rows."""
    results, rows = Results(args, done), Rows()
    for part in (depth_rows, depth_ratios, load_rows, undo_rows, image_rows, grow_rows, one_queue_rows):
        part(rows, results)
    words = [f"Killed with kill -9, page cache dropped, started again; medians of {args.rounds}. Messages of "
             f"{args.size:,} random bytes (nothing compresses), persistent. One uncommitted message in each queue, then "
             f"an image, then {args.tail:,} committed messages. Times begin at exec; the getters run already and connect "
             "when `ready` is said. Rounds are made equal by getting what is above the depth and preparing the kill again.",
             "Published figures are from other machines (IBM MQ) or another day (peers): they show the order of "
             "magnitude. Where `others` in the JSON is above 0.2, other work ran on the machine: repeat it."]
    rows.write(folder / f"{args.name}.json")
    (folder / f"{args.name}.html").write_text(page("Restart after kill -9", words, charts(args, rows, results), rows.rows,
                                                   machine))
    return rows
