"""Rows and charts of what a group costs, from the results of its pieces. Bars are those of the promise. Not here: measuring.

Ratios are made within a round, whose pieces met the same machine; their median counts.
"""

from group_measure import BROKERS, CLIENTS, DISTANCES, KILL_CLIENTS
from towlab import chart
from towlab.page import page
from towlab.rows import Rows

SINGLE_BAR, REPLICA_BAR, PEERS_BAR, KILL_BAR = (">=", 0.75), ("<=", 0.333), (">=", 3.0), ("<=", 0.3)
DISTANCE_BARS = {64: (">=", 0.5), 512: (">=", 0.9)}
# Measured on this kind of machine on another day, lower bounds; pairs per second, and (least, most) s after kill -9.
OTHER_DAY = {"RabbitMQ": {50: 1030, 200: 1178}, "NATS": {50: 1909, 200: 2489}}
OTHER_DAY_KILL = {"RabbitMQ": (0.19, 0.85), "NATS": (4.8, 7.1)}
BY = "another day"


class Results:
    """The results of the pieces; rounds that are not complete count where they can."""

    def __init__(self, rounds, done):
        self.rounds, self.done = rounds, done

    def piece(self, part, who, turn):
        return self.done.get(f"{part} {who} #{turn + 1}")

    def samples(self, part, who, clients, key):
        """A value of each round."""
        found = (self.piece(part, who, turn) for turn in range(self.rounds))
        return [one[str(clients)][key] for one in found if one]

    def ratios(self, part, who, beside, clients):
        """Pairs of one for each pair of the other, in each round that has both."""
        both = ((self.piece(part, who, turn), self.piece(part, beside, turn)) for turn in range(self.rounds))
        return [one[str(clients)]["pairs"] / other[str(clients)]["pairs"] for one, other in both if one and other]

    def others(self, part, who):
        found = (self.piece(part, who, turn) for turn in range(self.rounds))
        return max((one["others"] for one in found if one), default=None)


def single_rows(rows, results, delay_ms):
    for clients in CLIENTS["single"]:
        test = f"group and single instance, sync delay {delay_ms:g} ms, {clients} clients"
        for who in ("single", "group"):
            rows.add(test, f"{who}: pairs", results.samples("single", who, clients, "pairs"), "/s",
                     others=results.others("single", who))
        rows.add(test, "group : single", results.ratios("single", "group", "single", clients), "", bar=SINGLE_BAR)
        rows.add(test, "CPU replica : active", results.samples("single", "group", clients, "replica"), "",
                 bar=REPLICA_BAR, note="the mean of both replicas")


def distance_rows(rows, results):
    for clients in CLIENTS["distance"]:
        test = f"distance between instances, {clients} clients"
        for who in DISTANCES:
            rows.add(test, f"{who}: pairs", results.samples("distance", who, clients, "pairs"), "/s",
                     others=results.others("distance", who))
        rows.add(test, "+1 ms : local", results.ratios("distance", "+1 ms", "local", clients), "",
                 bar=DISTANCE_BARS[clients], note="1 ms is the round trip; the proxies' own processor time is part of it")
        rows.add(test, "+1 ms : proxies without delay", results.ratios("distance", "+1 ms", "proxies", clients), "")


def peer_rows(rows, results):
    for clients in CLIENTS["peers"]:
        test = f"peers, {clients} clients"
        for name, broker in BROKERS.items():
            before = OTHER_DAY.get(name, {}).get(clients)
            others = results.others("peers", name)
            rows.add(test, f"{broker.title}: pairs", results.samples("peers", name, clients, "pairs"), "/s", before,
                     BY if before else None, others=others)
            rows.add(test, f"{broker.title}: CPU of all nodes per pair", results.samples("peers", name, clients, "cpu_us"),
                     "us", others=others)
            rows.add(test, f"{broker.title}: CPU of the generator per pair",
                     results.samples("peers", name, clients, "generator_us"), "us",
                     note="it has the same processors as the brokers")
            rows.add(test, f"{broker.title}: p50", results.samples("peers", name, clients, "p50_ms"), "ms")
            rows.add(test, f"{broker.title}: p99", results.samples("peers", name, clients, "p99_ms"), "ms")
        for name in OTHER_DAY:
            rows.add(test, f"Towline : {name}", results.ratios("peers", "Towline", name, clients), "", bar=PEERS_BAR)


def kill_rows(rows, results):
    test = f"kill -9 of the leader, {KILL_CLIENTS} clients x 1 put/s"
    for name, broker in BROKERS.items():
        found = [one for turn in range(results.rounds) if (one := results.piece("kill", name, turn))]
        before = OTHER_DAY_KILL.get(name)
        rows.add(test, f"{broker.title}: longest time without a confirmed put", [one["gap_s"] for one in found], "s",
                 before and before[0], f"{BY}, its best" if before else None, KILL_BAR if name == "Towline" else None,
                 f"on another day up to {before[1]:g} s" if before else "", results.others("kill", name))
        back = [one["clients_back_s"] for one in found if one["clients_back_s"] is not None]
        rows.add(test, f"{broker.title}: until every client is back", back, "s",
                 note=f"in {len(found) - len(back)} of {len(found)} rounds some were not while it was looked at"
                 if len(back) < len(found) else "")
        rows.add(test, f"{broker.title}: clients not back", [one["not_back"] for one in found], "")


def charts(only, rows):
    def value(test, metric):
        return rows.value(test, metric)
    out = []
    if "single" in only:
        tests = sorted({row["test"] for row in rows.rows if row["test"].startswith("group and single")}, key=len)
        out.append(chart.bars("Group and single instance", "pairs/s", [
            (test.rsplit(", ", 1)[1], {who: value(test, f"{who}: pairs") for who in ("single", "group")}) for test in tests]
            ) if tests else "")
    if "distance" in only:
        out.append(chart.bars("Distance between instances", "pairs/s", [
            (f"{clients} clients", {who: value(f"distance between instances, {clients} clients", f"{who}: pairs")
                                    for who in DISTANCES}) for clients in CLIENTS["distance"]]))
    for metric, unit in (("pairs", "pairs/s"), ("CPU of all nodes per pair", "us")):
        if "peers" in only:
            out.append(chart.bars(f"Peers: {metric}", unit, [
                (f"{clients} clients", {broker.title: value(f"peers, {clients} clients", f"{broker.title}: {metric}")
                                        for broker in BROKERS.values()}) for clients in CLIENTS["peers"]]))
    if "kill" in only:
        test = f"kill -9 of the leader, {KILL_CLIENTS} clients x 1 put/s"
        out.append(chart.bars("kill -9 of the leader", "s (logarithmic)", [
            (shown, {broker.title: value(test, f"{broker.title}: {metric}") for broker in BROKERS.values()})
            for shown, metric in (("without a confirmed put", "longest time without a confirmed put"),
                                  ("every client back", "until every client is back"))], log=True))
    return out


def title_of(only):
    """The title of the page: those of several runs lie side by side."""
    return "What a group costs, beside its peers" if set(only) <= {"peers", "kill"} else "What a group costs"


def report(args, done, machine, folder):
    """Writes NAME.json and NAME.html into the folder; the rows."""
    rows, results = Rows(), Results(args.rounds, done)
    if "single" in args.only:
        single_rows(rows, results, args.sync_delay_ms)
    if "distance" in args.only:
        distance_rows(rows, results)
    if "peers" in args.only:
        peer_rows(rows, results)
    if "kill" in args.only:
        kill_rows(rows, results)
    words = [f"Medians of {args.rounds} rounds of {args.seconds:g} s after 2 s of warm-up; what is compared alternates. All "
             "instances and all clients share this machine (see below). A pair: put one persistent message of 2,048 random "
             "bytes, wait until it is confirmed, get one, accept it; one credit stands, so that a get's round trip is not in it; one "
             "operation in flight for each client, one queue for all, clients at the active instance or leader.",
             "Group against single instance and distance: `towline load requester`. Peers: one generator in Go with go-amqp "
             "(Towline, RabbitMQ) and nats.go (NATS); that the message was accepted is sent and not answered, with all of "
             "them. The generator takes processor time from all of them.",
             "A sync delay is added by the queue manager to each sync of its log (`--log-sync-delay-us`)."]
    rows.write(folder / f"{args.name}.json")
    (folder / f"{args.name}.html").write_text(page(title_of(args.only), words, charts(args.only, rows), rows.rows, machine))
    return rows
