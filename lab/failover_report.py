"""Rows and charts of the fail-over experiment, from the results of its rounds.

Bars are those of the promise. Not here: measuring.
"""

import failover_published as published
from failover_measure import TESTS, TOPOLOGIES, tests_of
from towlab import chart
from towlab.page import page
from towlab.rows import Rows

HEARTBEAT_TIMEOUT_S = 2.0
ACTIVE, FIRST = "until another instance is active", "until the first confirmed put"
BACK, ALL = "until every client is back", "until all clients are back at their previous rate"
BARS = {("S1000", ACTIVE): 0.15, ("S1000", ALL): 1.0, ("kill", FIRST): 0.3,
        ("FN500U", FIRST): HEARTBEAT_TIMEOUT_S + 0.3, ("SIGSTOP", FIRST): HEARTBEAT_TIMEOUT_S + 0.3,
        ("power", FIRST): HEARTBEAT_TIMEOUT_S + 0.3}
# A standby waits for its lease instead, and what the group promises is not promised there.
WITHOUT_BARS = ("shared",)
LEASE_S = 2.5
COLUMNS = ((ACTIVE, "active_s"), (FIRST, "first_put_s"), (BACK, "clients_back_s"), (ALL, "all_back_s"))


def title(topology, name):
    return f"{TOPOLOGIES[topology].title}: {name}"


def rounds_of(args, done, topology, name):
    found = (done.get(f"{topology} {name} #{turn + 1}") for turn in range(args.rounds))
    return [one for one in found if one]


def bar_of(topology, name, metric):
    return None if topology in WITHOUT_BARS else BARS.get((name, metric))


def published_for(topology, name, metric):
    if metric == ALL and name in published.MQ:
        by = published.BESIDE[topology]
        return published.MQ[name][by], by
    if metric == FIRST and name == "kill":
        peer = "RabbitMQ 4.0 quorum"
        return published.PEERS_KILL[peer][0], f"{peer}, its best"
    return None, None


def note_for(topology, name, metric, missing):
    words = []
    if missing:
        words.append(f"in {missing} of the rounds it did not come about while it was looked at")
    if metric == ALL and published.others(topology, name):
        words.append(published.others(topology, name))
    if metric == FIRST and name == "kill":
        words += [f"{peer} {low:g} to {high:g} s" for peer, (low, high) in published.PEERS_KILL.items()]
    if metric == FIRST and (name, metric) in BARS and name != "kill":
        words.append(f"HeartbeatTimeout is {HEARTBEAT_TIMEOUT_S:g} s, the default" if topology not in WITHOUT_BARS else
                     f"a standby takes over when it saw no renewal of the lease for {LEASE_S:g} s, the default")
    return "; ".join(words)


def test_rows(rows, args, done, topology, name):
    found = rounds_of(args, done, topology, name)
    if not found:
        return
    test = title(topology, name)
    others = max(one["others"] for one in found)
    for metric, key in COLUMNS:
        samples = [one[key] for one in found if one.get(key) is not None]
        bar = bar_of(topology, name, metric)
        value, by = published_for(topology, name, metric)
        missing = len(found) - len(samples)
        # One that never came is worse than any that did.
        rows.add(test, metric, [] if missing * 2 > len(found) else samples + [float(TESTS[name].after)] * missing, "s",
                 value, by, ("<=", bar) if bar else None, note_for(topology, name, metric, missing), others)
    for metric, key in (("messages lost", "lost"), ("messages duplicated", "duplicated")):
        # Puts outside of units of work are never put again: the generator does not.
        rows.add(test, metric, max(one[key] for one in found), "", bar=("<=", 0), note="the worst round")
    rows.add(test, "puts", [one["puts_per_s"] for one in found], "/s",
             note=f"{TESTS[name].words}; over the whole run, the time without an active one among it")
    rows.add(test, "clients not back", max(one["not_back"] for one in found), "", bar=("<=", 0), note="the worst round")
    rows.add(test, "time that the rounds took", sum(one["took_s"] for one in found), "s", note=f"{len(found)} rounds")


def charts(args, rows):
    out = []
    for topology in args.topologies:
        groups = [(name, {metric: rows.value(title(topology, name), metric) for metric, _ in COLUMNS})
                  for name in tests_of(topology, args.only)]
        out.append(chart.bars(f"{TOPOLOGIES[topology].title}: medians", "s (logarithmic)", groups, log=True))
    named = [name for name in args.only if name in published.MQ]
    ours = {name: {TOPOLOGIES[topology].title: rows.value(title(topology, name), ALL) for topology in args.topologies}
            for name in named}
    out.append(chart.bars("Until all clients are back at their previous rate", "s (logarithmic)",
                          [(name, {**ours[name], **published.MQ[name]}) for name in named], log=True) if named else "")
    if "kill" in args.only:
        measured = {TOPOLOGIES[topology].title: rows.value(title(topology, "kill"), FIRST)
                    for topology in args.topologies}
        peers = {peer: high for peer, (_, high) in published.PEERS_KILL.items()}
        out.append(chart.bars("kill -9 of the active: first confirmed put", "s (logarithmic)",
                              [("200 clients x 1 put/s; peers: their worst try", {**measured, **peers})], log=True))
    return out


def report(args, done, machine, folder):
    """Writes NAME.json and NAME.html into the folder; the rows."""
    rows = Rows()
    for topology in args.topologies:
        for name in tests_of(topology, args.only):
            test_rows(rows, args, done, topology, name)
    words = ["; ".join(f"{TOPOLOGIES[topology].title}: {TOPOLOGIES[topology].words}" for topology in args.topologies) + ".",
             f"Medians of {args.rounds} rounds. All instances and all clients share this machine (see below); messages "
             "of 2,048 random bytes, persistent. Times begin at the order to switch, or at the fault. A client is back "
             "when its puts come no later than its rate wants them again (with no rate: when its first put is confirmed) over "
             "a connection that stands from then on; the rate is back when half a second has 90 % of the puts that it "
             "had before.",
             "Packets are dropped with nftables between network namespaces: nobody is told, no connection is closed. "
             "There and at SIGSTOP clients give a connection up after 2 s of silence (their idle time-out).",
             "Published figures are from other machines, those of peers from this one on another day: they show the "
             "order of magnitude. Where `others` in the JSON is above 0.2, other work ran on the machine: repeat it."]
    rows.write(folder / f"{args.name}.json")
    (folder / f"{args.name}.html").write_text(page("Switch-over and fail-over", words, charts(args, rows), rows.rows,
                                                   machine))
    return rows
