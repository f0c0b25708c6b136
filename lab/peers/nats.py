"""NATS as a cluster of three servers on this machine, JetStream with `sync_interval: always`: fetch, start, kill, end.

The server is built from its Go module on first use, below lab/.cache/peers/nats. One stream with three replicas
(work queue, files) and one durable consumer, on 127.80.0.1 to .3. Not here: measuring. Invariant: it ends only what it
started, and writes only below its folder.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from peers import pairs
from towlab import process

VERSION = "v2.15.2"
CACHE = pathlib.Path(__file__).resolve().parent.parent / ".cache" / "peers" / "nats"
SERVERS = ("n1", "n2", "n3")
SUBJECT = "lab"
CLIENTS_PORT, ROUTES_PORT = 4222, 6222


def fetch():
    """The server's binary; built on first use."""
    binary = CACHE / f"nats-server-{VERSION}"
    if not binary.exists():
        print(f"builds nats-server {VERSION} (some minutes)", file=sys.stderr)
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "install", f"github.com/nats-io/nats-server/v2@{VERSION}"], check=True,
                       env={**os.environ, "GOBIN": str(CACHE)})
        (CACHE / "nats-server").replace(binary)
    return binary


class Nats:
    """Three servers, started when `start_all` is called; one stream."""

    title = "NATS R3, sync always"
    kind, address = "nats", SUBJECT

    def __init__(self, folder):
        self.binary, self.folder = fetch(), pathlib.Path(folder)
        self.processes, self.led_by = {}, None
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name in SERVERS:
            (self.folder / f"{name}.conf").write_text(self.config(name))

    def host(self, name):
        return f"127.80.0.{SERVERS.index(name) + 1}"

    def config(self, name):
        routes = ", ".join(f"nats://{self.host(other)}:{ROUTES_PORT}" for other in SERVERS)
        return (f"server_name: {name}\nlisten: {self.host(name)}:{CLIENTS_PORT}\n"
                f'jetstream {{ store_dir: "{self.folder}/{name}", sync_interval: always, max_file_store: 20GB }}\n'
                f"cluster {{ name: LAB, listen: {self.host(name)}:{ROUTES_PORT}, routes: [{routes}] }}\n")

    def start(self, name):
        with open(self.folder / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen([self.binary, "--config", self.folder / f"{name}.conf"],
                                                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0)

    def start_all(self):
        for name in SERVERS:
            self.start(name)
        self.led_by = pairs.prepare_nats([self.url(name) for name in SERVERS], SUBJECT)

    def url(self, name):
        return f"nats://{self.host(name)}:{CLIENTS_PORT}"

    def leader(self):
        """The server that led the stream when it was made."""
        return self.led_by

    def urls(self):
        """The leader's first: there clients are."""
        return [self.url(name) for name in sorted(SERVERS, key=lambda name: name != self.led_by)]

    def cpu_s(self):
        """CPU seconds of each server so far."""
        return {name: process.group_cpu_s(self.processes[name].pid) for name in SERVERS}

    def kill(self, name):
        """kill -9 of a server."""
        process.end_group(self.processes[name])

    def close(self):
        for one in self.processes.values():
            process.end_group(one)
        shutil.rmtree(self.folder, ignore_errors=True)
