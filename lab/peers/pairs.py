"""The generator for all peers (lab/peers/pairs, Go), built on first use and when its sources changed.

Not here: which brokers it is run against.
"""

import contextlib
import json
import os
import pathlib
import subprocess

from towlab.queue_manager import Failed

SOURCES = pathlib.Path(__file__).resolve().parent / "pairs"
BINARY = SOURCES.parent.parent / ".cache" / "peers" / "pairs"


def built():
    """The generator's binary."""
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if not BINARY.exists() or BINARY.stat().st_mtime < newest:
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "build", "-o", str(BINARY), "."], cwd=SOURCES, check=True, env={**os.environ})
    return BINARY


def prepare_nats(urls, subject):
    """Makes the stream; the server that leads it."""
    done = subprocess.run([built(), "-prepare", "-urls", ",".join(urls), "-address", subject], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"NATS: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


@contextlib.contextmanager
def under_way(broker, clients, seconds, *more):
    """The generator at work against a broker, once all clients are connected; ended with the block."""
    running = subprocess.Popen(
        [built(), "-kind", broker.kind, "-urls", ",".join(broker.urls()), "-address", broker.address, "-clients",
         str(clients), "-seconds", str(seconds), *map(str, more)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        said = running.stderr.readline().strip()
        if said != "connected":
            raise Failed(f"{broker.title}: {said} {running.communicate()[1].strip()[-500:]}")
        yield running
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()


def report(running, seconds):
    """Waits until it has ended; its report."""
    out, errors = running.communicate(timeout=seconds + 120)
    if running.returncode:
        raise Failed(f"the generator: {errors.strip()[-500:]}")
    return json.loads(out)
