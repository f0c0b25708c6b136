"""Figures of others, beside which the fail-over experiment is shown; none of them is measured here again.

E2: report "Improved Switch/Fail-over times in MQ V9.1.2": s until all applications are back, 2 KB, transactional,
persistent; MIQM: multi-instance queue manager, RDQM: three nodes with replicated disks. Peers: measured on this
machine on another day, kill -9 of the active under 200 clients x 1 put/s, s until the first confirmed put.
"""

MQ = {"S1000": {"MIQM 9.1.0.2": 11.664, "MIQM 9.1.2": 0.692, "RDQM 9.1.0.2": 16.281, "RDQM 9.1.2": 5.922},
      "S500U": {"MIQM 9.1.0.2": 8.325, "MIQM 9.1.2": 0.634, "RDQM 9.1.0.2": 13.085, "RDQM 9.1.2": 6.014},
      "FN500U": {"MIQM 9.1.0.2": 59.610, "MIQM 9.1.2": 23.688, "RDQM 9.1.0.2": 24.793, "RDQM 9.1.2": 24.081}}
# With a heartbeat of 10 s, and an NFS lease and grace of 10 s; 101.6 s with the default lease of 90 s.
BESIDE = {"native": "MIQM 9.1.2", "shared": "MIQM 9.1.2", "floating": "RDQM 9.1.2"}
# (least, most) of the tries.
PEERS_KILL = {"RabbitMQ 4.0 quorum": (0.19, 0.85), "NATS R3": (4.8, 7.1), "Artemis pair, go-amqp": (1.9, 3.1),
              "Artemis pair, Qpid JMS": (5.8, 5.8)}
PEERS_KILL_BACK = {"Artemis pair, go-amqp": 2.5, "Artemis pair, Qpid JMS": 7.1}


def others(topology, test):
    """The other figures of the report for a test, in words."""
    found = MQ.get(test, {})
    return ", ".join(f"{name} {value:g} s" for name, value in found.items() if name != BESIDE[topology])
