"""Figures of others, beside which the experiment with two regions is shown; none of them is measured here again.

E1: report "Performance overhead of NHA:CRR" (MQ 9.4.2): two groups of three, 40 ms injected between them, TLS 1.2, LZ4 from
64 bytes on, 8 cores for each queue manager, 1 Gb inside live and 10 Gb to recovery, persistent messages of 2 KB and 20 KB.
Its payload compressed 41:1.
"""

BY = "MQ 9.4.2"
# One sample of 10 s. A text is not compared.
SAMPLE = {"interval": 10.0, "Log bytes sent": 620_335_104, "Backlog bytes": 462_823_424,
          "Backlog average bytes": 211_347_208, "Average network round trip time": 40_777,
          "Compressed log bytes sent": 15_062_664, "Log data average compression time": 11,
          "Log bytes decompressed": 639_122_908, "Log data average decompression time": 32, "Rebase count": 13,
          "Recovery log sequence number": "<0:1157:41026:59250>"}
UNITS = {"interval": "s", "Average network round trip time": "us", "Log data average compression time": "us",
         "Log data average decompression time": "us", "Rebase count": "", "Recovery log sequence number": ""}
# Largest reported backlog in the run with 20 KB, MB: the defaults, and with StatusCommitThreshold 1048576.
BACKLOG_MB = {"published": 1200, "tuned": 14}
# Throughput with it against without, over the whole ladder: "virtually identical".
RATIO = 1.0


def unit(name):
    """Of a figure of the sample."""
    return UNITS.get(name, "B")
