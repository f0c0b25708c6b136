"""Rows and charts of what a second region costs, from the results of its pieces. Bars are those of the promise. Not here: measuring.

Ratios are made within a round, whose two pieces ran one after the other; their median counts.
"""

from crr_measure import (LINE_BITS_PER_S, LINE_OVER, LINE_SIZE, LINE_UNDER, MODES, PAYLOADS, RPO_S, SHARE, SIZES, SYNC,
                         SYNC_CLIENTS, SYNC_MODES, SYNC_RTT_MS, backlog_name, fixed_name, ladder_name, sync_name)
from crr_mirror import KB, mirror_rows
from crr_published import BACKLOG_MB, BY, RATIO, SAMPLE, unit
from towlab import chart
from towlab.page import page
from towlab.rows import Rows, plain

LATENCIES = ("put", "pair")
RATIO_BAR, CPU_BAR, OUTSIDE_BAR, LINE_BAR = (">=", 0.99), ("<=", 1.06), ("<=", 0), (">=", 0.9)
WORDS = {"defaults": "defaults: a report within a round trip or 1 MiB", "published": "StatusInterval 10 s, StatusCommitThreshold 0",
         "tuned": "StatusInterval 10 s, StatusCommitThreshold 1 MiB"}


class Results:
    """The results of the pieces; rounds that are not complete count where they can."""

    def __init__(self, rounds, done):
        self.rounds, self.done = rounds, done

    def fixed(self, size, payload, mode, value):
        """A value of each round."""
        found = (self.done.get(fixed_name(size, payload, mode, turn)) for turn in range(self.rounds))
        return [value(one) for one in found if one]

    def ratios(self, size, payload, value):
        """The value with replication for each of it without, in each round that has both."""
        both = ([self.done.get(fixed_name(size, payload, mode, turn)) for mode in MODES] for turn in range(self.rounds))
        return [value(one) / value(other) for one, other in both if one and other]

    def others(self, size, payload):
        return max(self.fixed(size, payload, "with", lambda one: one["others"]) +
                   self.fixed(size, payload, "without", lambda one: one["others"]), default=None)


def rungs(ladder):
    """Clients and what they reached, in order."""
    return sorted((int(clients), rung) for clients, rung in (ladder or {}).items() if clients.isdigit())


def ladder_rows(rows, results):
    for size in SIZES:
        for payload in PAYLOADS:
            test = f"ladder, {KB[size]} {payload}"
            found = {mode: dict(rungs(results.done.get(ladder_name(size, payload, mode)))) for mode in MODES}
            for clients in found["with"]:
                for mode in MODES:
                    if clients in found[mode]:
                        rows.add(test, f"{mode}, {clients} clients: pairs", found[mode][clients]["pairs"], "/s")
                if clients in found["without"]:
                    rows.add(test, f"with : without, {clients} clients",
                             found["with"][clients]["pairs"] / found["without"][clients]["pairs"], "", RATIO, BY,
                             note="closed loop: where the processors are used up, all six instances share them")


def fixed_rows(rows, results):
    for size in SIZES:
        for payload in PAYLOADS:
            test = f"{SHARE:.0%} of saturation, {KB[size]} {payload}".replace("%", " %")
            others = results.others(size, payload)
            offered = results.fixed(size, payload, "with", lambda one: one["offered"])
            clients = results.fixed(size, payload, "with", lambda one: one["clients"])
            rows.add(test, "offered pairs", offered[:1], "/s",
                     note=f"{clients[0]} clients; of the saturation that is less, with or without" if clients else "")
            for mode in MODES:
                rows.add(test, f"{mode}: pairs", results.fixed(size, payload, mode, lambda one: one["pairs"]), "/s",
                         others=others)
            rows.add(test, "pairs, with : without", results.ratios(size, payload, lambda one: one["pairs"]), "", RATIO, BY,
                     bar=RATIO_BAR)
            rows.add(test, "CPU of the live active, with : without",
                     results.ratios(size, payload, lambda one: one["processors"]["active"]), "", bar=CPU_BAR, others=others)
            for part, words in (("active", "live active"), ("replicas", "both live replicas"),
                                ("recovery", "all of recovery"), ("network", "the network between them")):
                for mode in MODES:
                    rows.add(test, f"{mode}: CPU of {words}",
                             results.fixed(size, payload, mode, lambda one, part=part: one["processors"][part]), "cores")
            latency_rows(rows, results, test, size, payload)
            rows.add(test, "backlog at the end", results.fixed(size, payload, "with", lambda one: one["backlog"] / 1e6), "MB")
            ratio = results.fixed(size, payload, "with", lambda one: one["log"] / max(1, one["wire"]))
            rows.add(test, "compression, log : link", ratio, ": 1", 41, BY,
                     note="bytes of log for each byte over the link; nothing is known of the published payload but this")


def latency_rows(rows, results, test, size, payload):
    """What a client waits; of an open loop: from when it was due."""
    for name in LATENCIES:
        for part in ("p50", "p99"):
            for mode in MODES:
                found = results.fixed(size, payload, mode, lambda one, name=name, part=part: one["latencies"][name][part])
                rows.add(test, f"{mode}: {name}, {part}", [value / 1000 for value in found], "ms")


def sample_rows(rows, results, backlogs):
    """The published table, at the first backlog run that there is."""
    name = next((backlog_name(*key) for key in backlogs if backlog_name(*key) in results.done), None)
    if not name:
        return
    for figure, value in results.done[name]["interval"].items():
        test, published = "one sample, 20 KB text, defaults", SAMPLE[figure]
        text = isinstance(published, str)
        note = (f"ours {value}, published {published}" if text else
                "" if value is not None else "the status of this version does not say it")
        rows.add(test, figure, [] if text or value is None else float(value), unit(figure),
                 None if text else published, BY, note=note)
        if figure == "Log bytes sent" and value is not None:
            seconds = results.done[name]["interval"]["interval"]
            rows.add(test, "Log bytes sent, each second", value / seconds, "B/s", 62_033_510, BY)


def backlog_rows(rows, results, backlogs):
    for settings, size, payload, seconds in backlogs:
        found = results.done.get(backlog_name(settings, size, payload, seconds))
        if not found:
            continue
        test = f"backlog, {KB[size]} {payload}, {WORDS[settings]}"
        published = BACKLOG_MB.get(settings) if size == 20480 else None
        mb = 1e6
        rows.add(test, "reported, most", found["reported_max"] / mb, "MB", published, BY if published else None)
        rows.add(test, "true, most", found["true_max"] / mb, "MB")
        rows.add(test, "apart, most", found["apart_max"] / mb, "MB",
                 note=f"{found['samples']} samples; allowed up to {plain(found['allowed'] / mb)} MB; the two questions of a "
                      f"sample leave open at most {plain(found['unsure_max'] / mb)} MB")
        bar = OUTSIDE_BAR if settings == "defaults" else None
        rows.add(test, "samples farther apart than 1 MiB or a round trip", found["outside"], "", bar=bar,
                 others=found["others"])
        rows.add(test, "samples reported lower than that", found["below"], "", bar=OUTSIDE_BAR)
        rows.add(test, "log", found["rate"] / mb, "MB/s")


def line_rows(rows, results):
    found = results.done.get("line")
    if not found:
        return
    full, cut, line = found["full"], found["cut"], f"line of {LINE_BITS_PER_S // 1_000_000} Mbit/s, 20 KB random"
    test = f"{line}, {LINE_OVER:g} of it offered"
    rows.add(test, "used by compressed log", full["compressed"], "", bar=LINE_BAR, others=found["others"],
             note="frames as recovery counts them, without TLS")
    rows.add(test, "used", full["line"], "", note="with TLS, without the headers of TCP and IP")
    rows.add(test, "pairs at live", full["pairs"], "/s", note=f"offered {LINE_OVER * LINE_BITS_PER_S / 8 / LINE_SIZE:.0f} /s")
    test = f"{line}, {LINE_UNDER:g} of it offered, cut for {cut['seconds']:.0f} s"
    rows.add(test, "backlog at the most", cut["worst"] / 1e6, "MB",
             note=f"{cut['puts']} puts, {cut['removals']} removals, the oldest {cut['age_s']:.1f} s old")
    rows.add(test, "until live said that there is no link", cut["noticed_s"], "s")
    rows.add(test, "until there was a link again", cut["link_s"], "s", note="defaults; a dial that waits at the cut goes on when it is healed")
    rows.add(test, "until the backlog was gone after that", cut["drain_s"], "s")
    rows.add(test, "line used meanwhile", cut["line"], "", bar=LINE_BAR)
    rows.add(test, "roles or histories changed", int(cut["changed"]), "", bar=("<=", 0), note="nothing is promoted by itself")
    for what, words in (("raised", f"RPO alarm ({RPO_S} s) rose after the cut"), ("cleared", "RPO alarm cleared after the cut")):
        at = cut["alarm"][what]
        rows.add(test, words, at if at is not None else [], "s", note="" if at is not None else "it did not")
    both = all(at is not None for at in cut["alarm"].values())
    rows.add(test, "RPO alarm rose and cleared", int(both), "", bar=(">=", 1))


def sync_rows(rows, results):
    """What it costs that replies wait for recovery."""
    for rtt in SYNC_RTT_MS:
        for clients in SYNC_CLIENTS:
            found = {mode: [one for turn in range(results.rounds)
                            if (one := results.done.get(sync_name(rtt, clients, mode, turn)))] for mode in SYNC_MODES}
            if not any(found.values()):
                continue
            test = f"sync_replication, {rtt} ms, {clients} clients, 2 KB random"
            for mode, rounds in found.items():
                rows.add(test, f"{mode}: commits", [one["commits"] for one in rounds], "/s",
                         others=max((one["others"] for one in rounds), default=None))
                for part in ("p50", "p99"):
                    rows.add(test, f"{mode}: commit, {part}", [one[part] / 1000 for one in rounds], "ms")
            strict = found["strict"]
            ratios = [one["commits"] / other["commits"] for one, other in zip(strict, found["off"])]
            rows.add(test, "commits, strict : off", ratios, "")
            rows.add(test, "commit p50, strict less off",
                     [(one["p50"] - other["p50"]) / 1000 for one, other in zip(strict, found["off"])], "ms",
                     note=f"the round trip is {rtt} ms")
            rows.add(test, "a reply waited for recovery", [one["mean_wait_us"] / 1000 for one in strict], "ms",
                     note="mean, as the status says")
            rows.add(test, "not in step at the end, or alone meanwhile",
                     sum(one["state"] != "in step" or one["alone"] > 0 for one in strict), "", bar=("<=", 0))


def charts(only, results, backlogs):
    out, done = [], results.done
    for size in SIZES:
        for payload in PAYLOADS:
            lines = [(f"{mode} replication", [(clients, rung["pairs"]) for clients, rung in
                                              rungs(done.get(ladder_name(size, payload, mode)))], False) for mode in MODES]
            if any(points for _, points, _ in lines) and "ladder" in only:
                out.append(chart.lines(f"{KB[size]} {payload}, growing number of clients", "clients", "pairs/s", lines))
    if "fixed" in only:
        names = [(f"{KB[size]} {payload}", size, payload) for size in SIZES for payload in PAYLOADS]
        for title, part in (("Processors of the live active at the fixed rate", "active"),
                            ("Processors of all three of recovery at the fixed rate", "recovery")):
            out.append(chart.bars(title, "cores", [
                (name, {mode: middle(results.fixed(size, payload, mode, lambda one, part=part: one["processors"][part]))
                        for mode in MODES}) for name, size, payload in names]))
    for key in backlogs:
        found = done.get(backlog_name(*key))
        if found:
            settings, size, payload, _ = key
            out.append(chart.lines(f"Backlog, {KB[size]} {payload}, {settings}", "s", "MB", [
                (what, [(one["second"], one[what] / 1e6) for one in found["points"]], False)
                for what in ("reported", "true")], marks=False))
    if "line" in done:
        out.append(chart.lines("A line of 50 Mbit/s that is cut for a while", "s since the cut", "MB", [
            (what, [(max(0.0, one["second"]), one[what] / 1e6) for one in done["line"]["cut"]["points"]], False)
            for what in ("reported", "true")], marks=False))
    return out


def middle(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def report(args, done, machine, folder):
    """Writes NAME.json and NAME.html into the folder; the rows."""
    rows, results, backlogs = Rows(), Results(args.rounds, done), args.backlogs
    if "fixed" in args.only:
        fixed_rows(rows, results)
    if "ladder" in args.only:
        ladder_rows(rows, results)
    if "backlog" in args.only:
        sample_rows(rows, results, backlogs)
        backlog_rows(rows, results, backlogs)
    if "line" in args.only:
        line_rows(rows, results)
    if SYNC in args.only:
        sync_rows(rows, results)
    if "artemis" in args.only:
        mirror_rows(rows, args.rounds, done)
    again = {name: piece["again"] for name, piece in done.items() if "again" in piece}
    rows.add("all pieces", "measured once more because they failed", len(again), "",
             note="; ".join(f"{name}: {why}" for name, why in again.items()))
    words = ["Two groups of three in two regions: west serves clients, east is its recovery group. TLS 1.3 in the groups and "
             "between them, LZ4 from 64 bytes on in both, an image after 128 MiB of log (two extents; 3 % of the log's 4 GiB, "
             "published 25 %), 40 ms round trip between the regions (a proxy of the test kit delays each way by 20 ms). All six instances, the "
             "proxy and all clients share this machine (see below). *Without* is the same six processes with "
             "`enabled = false`: recovery is up, and idle.".replace("*", ""),
             "A pair: put one persistent message, wait until it is confirmed, get one, accept it; one operation in flight for "
             "each client, one queue, clients at the active instance (`towline load requester --prefetch 0`). `text`: words "
             "in random order; `random`: bytes that do not compress; what became of it is in the rows.",
             f"The fixed rate is {SHARE:.0%} of what the ladder reached, with or without replication, whichever is less. "
             f"Medians of {args.rounds} rounds of {args.seconds:g} s after 2 s of warm-up, both ways one after the other. The "
             "ladder is drawn once: where it is flat it measures the processors of this machine, which with replication carry "
             "three more instances.",
             "sync_replication: units of work of one message, put and got, with the replies of live waiting for recovery "
             "(strict) and not, at other round trips; both settings one after the other in each round.",
             "Backlogs: what live's status says, and what is true: the position that live committed less the position that "
             "recovery has on the disks of its majority, both from the status of their own group, by one clock."]
    if set(args.only) == {"artemis"}:
        words = ["One Artemis broker in each of two regions, 40 ms apart (the proxy of the test kit), with and without an "
                 "asynchronous, durable mirror from the live one to the other; both are up in either case, without TLS, "
                 "without replicas, journals forced to disk. Brokers, proxy and clients share this machine. The same pairs, "
                 f"and the same share of saturation ({SHARE:.0%}) as with Towline; each product is compared with itself."]
    rows.write(folder / f"{args.name}.json")
    (folder / f"{args.name}.html").write_text(
        page("What a second region costs", words, charts(args.only, results, backlogs), rows.rows, machine))
    return rows
