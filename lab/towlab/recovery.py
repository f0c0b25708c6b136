"""When clients were back after a fault, from the events that `towline load --events` writes.

A client whose puts are paced is back with the last of its puts that came late because of the fault (the next one is no
later than its pace wants it) and when its connection stands; one that is not paced, with its first put over the
connection that it has in the end. All are back when each of them is, and when puts a second over half a second have
reached 90 % of what they were before. Not here: how often, or against whom.
"""

import bisect
import csv

LATE_S = 0.1
WINDOW_S = 0.5
SHARE = 0.9
# Before the fault: what "previous rate" means.
BEFORE_S = 2.0


def read(path):
    """Events of each client, in order: (seconds since 1970, what)."""
    clients = {}
    with open(path, encoding="ascii") as file:
        for row in csv.DictReader(file):
            clients.setdefault(int(row["client"]), []).append((int(row["us"]) / 1e6, row["what"]))
    return clients


def back_of(events, at, end, period):
    """When a client was back, in seconds after the fault; None when it never was."""
    puts = [moment for moment, what in events if what == "put"]
    opened = [moment for moment, what in events if what == "open" and moment >= at]
    lost = [moment for moment, what in events if what == "lost" and moment >= at]
    if lost and (not opened or opened[-1] < lost[-1]):
        return None
    stands = max(opened, default=at)
    first = bisect.bisect_left(puts, at)
    if not period:
        later = [moment for moment in puts[first:] if moment >= stands]
        return later[0] - at if later else None
    late = 0.0
    # What was confirmed before the connection was lost says nothing of what came after.
    first = bisect.bisect_left(puts, lost[0]) if lost else first
    for before, moment in zip(puts[max(0, first - 1):], puts[max(0, first - 1) + 1:]):
        if moment - before <= period + LATE_S:
            break
        late = moment - at
    if not puts or end - puts[-1] > 2 * period + LATE_S:
        return None
    return max(late, stands - at)


def rate_back(puts, at, end):
    """When puts a second were back, in seconds after the fault; None when they were not."""
    count = bisect.bisect_left(puts, at) - bisect.bisect_left(puts, at - BEFORE_S)
    wanted = SHARE * count * WINDOW_S / BEFORE_S
    step = 0.01
    moment = at
    while moment + WINDOW_S <= end:
        if bisect.bisect_left(puts, moment + WINDOW_S) - bisect.bisect_left(puts, moment) >= wanted:
            # Those that were on their way at the fault do not count as being back.
            first = bisect.bisect_left(puts, moment)
            return max(0.0, puts[first] - at)
        moment += step
    return None


def figures(clients, at, active_at, period, after):
    """All figures of a fault at `at` (seconds since 1970). `active_at`: when another instance became active, None if
    none did; `period`: seconds between a client's puts, 0 if unpaced; `after`: seconds for which is looked: clients
    still work then."""
    clients = {client: [event for event in events if event[0] < at + after] for client, events in clients.items()}
    puts = sorted(moment for events in clients.values() for moment, what in events if what == "put")
    end = at + after
    backs = [back_of(events, at, end, period) for events in clients.values()]
    rate = rate_back(puts, at, end)
    longest = max((later - earlier for earlier, later in zip(puts, puts[1:]) if later >= at), default=None)
    # What the old active one confirmed came before there was another one.
    first = next((moment - at for moment in puts if active_at is not None and moment >= active_at), None)
    missing = sum(back is None for back in backs)
    all_back = max(backs) if backs and not missing else None
    return {"first_put_s": first, "gap_s": longest, "clients_back_s": all_back, "rate_back_s": rate,
            "all_back_s": None if None in (all_back, rate, first) else max(all_back, rate, first),
            "not_back": missing, "clients": len(clients)}
