"""Figures of others, beside which the restart experiment is shown; none of them is measured here again.

E3: report "Queue Manager Restart Times in V9.1.1", 10 queues, messages of 2 KB; restart times in s by depth of a
queue and ms added to a file operation (the report's 0.5 and 1 ms each way are 1 and 2 ms for an operation).
"""

ON = {None: "SAN", 0: "NFS", 1: "NFS + 0.5 ms each way", 2: "NFS + 1 ms each way"}
MQ_911 = {(0, None): 0.446, (0, 0): 1.159, (0, 1): 9.667, (0, 2): 18.105,
          (500_000, None): 10.006, (500_000, 0): 14.720, (500_000, 1): 41.069, (500_000, 2): 58.959}
MQ_91 = {(0, None): 1.010, (0, 0): 5.041, (0, 1): 54.230, (0, 2): 103.263,
         (500_000, None): 33.308, (500_000, 0): 42.202, (500_000, 1): 109.975, (500_000, 2): 156.056}
# Killed at 2,500 round trips/s, 60,000 log records.
UNDER_LOAD_911 = {None: 1, 0: 1, 1: 2, 2: 3}
# 400,000 uncommitted messages of 2 KB: 46 to 49 s.
UNDO_S = 46
# One queue, exec to the first message got, on a machine like this one: s by depth.
PEERS = {"NATS 2.15, log not forced": {0: 0.05, 100_000: 0.31, 1_000_000: 2.2},
         "RabbitMQ 4.0 quorum": {0: 4.2, 100_000: 5.7, 1_000_000: 6.8},
         "Artemis 2.56": {0: 6.3, 100_000: 9.9, 1_000_000: 12.2}}


def mq(figures, depth, delay):
    """The figure and its publisher; nothing where the report has none."""
    value = figures.get((depth, delay))
    release = "9.1.1" if figures is MQ_911 else "9.1"
    return (value, f"IBM MQ {release}, {ON.get(delay)}") if value is not None else (None, None)
