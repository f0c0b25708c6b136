"""A group whose instances reach each other through proxies that delay. Not here: the proxies (slow_net.py)."""

from towlab.group import LINKS_PORT, NAMES, Native
from towlab.slow_net import SlowNet


class Distant(Native):
    """As native, but for links: so many microseconds on each way, 0 for what the proxies themselves cost."""

    title, words = "distant", "three instances with proxies between them"

    def __init__(self, binary, folder, slow_net, delay_us, more=()):
        super().__init__(binary, folder, more=more)
        self.net = SlowNet(slow_net, [(self.proxy(name), f"{self.host(name)}:{LINKS_PORT}") for name in NAMES])
        self.net.order(f"delay {delay_us}")

    def proxy(self, name):
        return f"127.78.0.{NAMES.index(name) + 101}:{LINKS_PORT}"

    def link(self, name, other):
        """Its own links it takes itself; the others are behind their proxies."""
        return super().link(name, other) if name == other else self.proxy(other)

    def close(self):
        super().close()
        self.net.close()
