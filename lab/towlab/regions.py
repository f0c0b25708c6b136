"""Two groups of three in two regions as processes: `west` is live, `east` is its recovery group, far away through proxies.

All six run on this machine. Each instance of east is reached through a proxy of its own (slow_net.py), and each of west
too, though nobody dials those while west is live. TLS everywhere, LZ4 from 64 bytes on. Not here: clients, figures.
"""

import pathlib
import zlib

from towlab.group import NAMES, Native
from towlab.slow_net import SlowNet

REGION_PORT = 5800
THRESHOLD_BYTES = 64
LOG_BYTES_MAX = 4 << 30
EACH_WAY_US = 20_000
EAST = range(3, 6)  # the proxies in front of east


def position(text):
    """A position `<a:b:c:d>`, four words of 16 bits, as a number of bytes; 0 when there is none."""
    words = [int(word) for word in text.strip("<>").split(":")] if text else [0]
    value = 0
    for word in words:
        value = value << 16 | word
    return value


class Region(Native):
    """One of the two groups: as native, and with the other one in its configuration."""

    words = "three instances of one of two regions"

    def __init__(self, binary, folder, group, role, recovery, enabled):
        self.group, self.role, self.recovery, self.enabled = group, role, recovery, enabled
        self.other = {"WEST": "EAST", "EAST": "WEST"}[group]
        self.base = pathlib.Path(folder)
        super().__init__(binary, self.base / group.lower())

    def host(self, name):
        return address(self.base, self.group, name)

    def config(self, name, papers):
        host, other_papers = self.host(name), self.base / self.other.lower() / "papers"
        members = "".join(f'\n[[group.member]]\nname = "{one}"\naddress = "{self.link(name, one)}"\n'
                          f'region_address = "{self.host(one)}:{REGION_PORT}"\n' for one in NAMES)
        fronts = ", ".join(f'"{front(self.base, self.other, one)}"' for one in NAMES)
        more = "".join(f"{key} = {value}\n" for key, value in self.recovery.items())
        return (f"[log]\nlog_bytes_max = {LOG_BYTES_MAX}\n"
                f'[[listener]]\naddress = "{host}:5672"\nallow_plaintext = true\nallow_anonymous = true\n'
                f'[group]\nname = "{self.group}"\ninstance = "{name}"\nrole = "{self.role}"\n'
                f"compression_threshold = {THRESHOLD_BYTES}\n"
                f'certificate = "{papers}/{name}.pem"\nprivate_key = "{papers}/{name}-key.pem"\n'
                f'authorities = "{papers}/authority.pem"\nregion_authorities = "{other_papers}/authority.pem"\n{members}\n'
                f'[group.recovery]\nname = "{self.other}"\naddresses = [{fronts}]\n'
                f"enabled = {str(self.enabled).lower()}\ncompression_threshold = {THRESHOLD_BYTES}\n{more}")

    def of_group(self, name):
        """The group in the status of an instance; empty when it does not answer."""
        return self.status(name).get("group") or {}

    def relay(self):
        """The instance to which the other region ships; None when there is none."""
        return next((name for name in NAMES if (self.of_group(name).get("other_region") or {}).get("connected")), None)


def net_of(base):
    # Of its folder: labs of two checkouts run side by side.
    return zlib.crc32(bytes(base.resolve())) % 250


def address(base, group, name):
    """Where an instance is."""
    return f"127.79.{net_of(base)}.{(1 if group == 'WEST' else 11) + NAMES.index(name)}"


def front(base, group, name):
    """Where its proxy takes the link from the other region."""
    return f"127.79.{net_of(base)}.{(101 if group == 'WEST' else 111) + NAMES.index(name)}:{REGION_PORT}"


class Regions:
    """Both groups and the network between them. `enabled`: whether west ships its log; `recovery`: more of its settings;
    `each_way_us`: what the network between them takes."""

    def __init__(self, binary, folder, slow_net, enabled=True, recovery=None, each_way_us=EACH_WAY_US):
        folder = pathlib.Path(folder)
        self.enabled = enabled
        pairs = [(front(folder, group, name), f"{address(folder, group, name)}:{REGION_PORT}")
                 for group in ("WEST", "EAST") for name in NAMES]
        self.net = SlowNet(slow_net, pairs)
        self.groups = []
        try:
            self.net.order(f"delay {each_way_us}")
            self.west = self.made(binary, folder, "WEST", "live", recovery)
            self.east = self.made(binary, folder, "EAST", "recovery", recovery)
        except BaseException:
            self.close()
            raise

    def made(self, binary, folder, group, role, recovery):
        region = Region(binary, folder, group, role, recovery or {}, self.enabled)
        self.groups.append(region)
        return region

    def start(self):
        """All six are up, and east has what west committed, if it ships; the active instance of west."""
        for group in (self.east, self.west):
            for name in NAMES:
                group.start(name)
        active = self.west.until_whole()
        self.east.until("three instances of east", lambda: all(self.east.of_group(name) for name in NAMES))
        if self.enabled:
            self.until_towed(active)
        return active

    def seen(self, active):
        """East as the active instance of west reports it."""
        return self.west.of_group(active).get("other_region") or {}

    def until_towed(self, active, limit=120):
        """Waits until east has all that west committed."""
        def towed():
            seen = self.seen(active)
            return seen.get("connected") and seen.get("in_sync")
        self.west.until("no backlog", towed, limit)

    def cpu_s(self):
        """CPU seconds so far of each instance (`west a`), and of the network."""
        found = {f"{group.group.lower()} {name}": seconds for group in self.groups
                 for name, seconds in group.cpu_s().items()}
        return {**found, "network": self.net.cpu_s()}

    def close(self):
        for group in self.groups:
            group.close()
        self.net.close()
