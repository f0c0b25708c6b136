"""Machines on one bridge: network namespaces with an interface each, and packets that are dropped (nftables). Root.

The bridge has a namespace of its own, so the network of this machine is not touched. Not here: delays.
"""

import os
import shutil
import subprocess
import sys

PREFIX = "towlab-"
TOOLS = {"ip": "iproute2", "nft": "nftables"}
RULES = """table inet towlab {
  chain in { type filter hook input priority 0; policy drop; iif "lo" accept; }
  chain out { type filter hook output priority 0; policy drop; oif "lo" accept; }
}
"""


def run(*command, text=None):
    subprocess.run(command, check=True, input=text, text=True, stdout=subprocess.DEVNULL)


def why_not():
    """Why there can be no machines here; None when there can. On Debian, root gets what is missing."""
    if os.geteuid() != 0:
        return "not root"
    if not all(shutil.which(tool) for tool in TOOLS) and shutil.which("apt-get"):
        print(f"apt-get install {' '.join(TOOLS.values())}", file=sys.stderr)
        for command in (["update", "-qq"], ["install", "-y", "-qq", *TOOLS.values()]):
            subprocess.run(["apt-get", *command], check=False, stdout=subprocess.DEVNULL)
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    return f"{' and '.join(missing)} missing" if missing else None


def sweep():
    """Removes what an ended run left."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        if line.startswith(PREFIX):
            run("ip", "netns", "delete", line.split()[0])


class Lan:
    """Hosts in order; the first has 10.78.0.1, and so on."""

    def __init__(self, hosts):
        sweep()
        self.hosts = list(hosts)
        hub = f"{PREFIX}hub"
        run("ip", "netns", "add", hub)
        run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", hub, "link", "set", "bridge", "up")
        for number, host in enumerate(self.hosts, 1):
            space = PREFIX + host
            run("ip", "netns", "add", space)
            run("ip", "-n", hub, "link", "add", "name", f"to-{host}", "type", "veth", "peer", "name", "eth0", "netns",
                space)
            run("ip", "-n", hub, "link", "set", f"to-{host}", "master", "bridge", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            run("ip", "-n", space, "address", "add", f"10.78.0.{number}/24", "dev", "eth0")

    def address(self, host):
        return f"10.78.0.{self.hosts.index(host) + 1}"

    def on(self, host):
        """The beginning of a command that runs on this machine."""
        return ["ip", "netns", "exec", PREFIX + host]

    def drop(self, host):
        """Every packet from and to the machine is dropped; nobody is told."""
        run(*self.on(host), "nft", "-f", "-", text=RULES)

    def heal(self, host):
        subprocess.run([*self.on(host), "nft", "delete", "table", "inet", "towlab"], check=False,
                       stderr=subprocess.DEVNULL)

    def close(self):
        sweep()
