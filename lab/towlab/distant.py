"""A group whose instances reach each other through proxies that delay (tests/e2e, `slow-net`). Not here: its orders."""

import subprocess

from towlab.group import LINKS_PORT, NAMES, Native
from towlab.queue_manager import Failed


class Distant(Native):
    """As native, but for links: so many microseconds on each way, 0 for what the proxies themselves cost."""

    title, words = "distant", "three instances with proxies between them"

    def __init__(self, binary, folder, slow_net, delay_us, more=()):
        super().__init__(binary, folder, more=more)
        wanted = [f"{self.proxy(name)}={self.host(name)}:{LINKS_PORT}" for name in NAMES]
        self.net = subprocess.Popen([str(slow_net), *wanted], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    process_group=0)
        if not self.net.stdout.readline().startswith("listening"):
            raise Failed("slow-net does not listen")
        self.order(f"delay {delay_us}")

    def proxy(self, name):
        return f"127.78.0.{NAMES.index(name) + 101}:{LINKS_PORT}"

    def link(self, name, other):
        """Its own links it takes itself; the others are behind their proxies."""
        return super().link(name, other) if name == other else self.proxy(other)

    def order(self, line):
        self.net.stdin.write(f"{line}\n")
        self.net.stdin.flush()
        answer = self.net.stdout.readline().strip()
        if answer.startswith("error"):
            raise Failed(f"slow-net, {line}: {answer}")

    def close(self):
        super().close()
        self.net.stdin.close()
        self.net.wait(30)
        self.net.stdout.close()
