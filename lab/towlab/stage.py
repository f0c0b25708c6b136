"""A data folder with queues of a known depth: brought there, killed, started again, and brought there again.

The depth is read from the queue manager itself, so a run that was ended in the middle goes on with what it finds.
Bodies are random bytes: nothing compresses. Not here: what is measured.
"""

import contextlib
import os
import pathlib
import shutil
import signal

from towlab import getter
from towlab.queue_manager import NAME, QueueManager

PRODUCERS = 20


class Stage:
    """One data folder below `work`. `queues` are the names whose depth is kept."""

    def __init__(self, binary, work, name, queues, size):
        self.binary, self.queues, self.size = binary, queues, size
        self.work = pathlib.Path(work)
        self.folder = self.work / name
        self.log_path = self.work / f"{name}.log"
        self.work.mkdir(parents=True, exist_ok=True)
        self.manager = None

    def start(self, folder=None):
        """Starts the queue manager, at another path of its folder when one is given."""
        self.manager = QueueManager(self.binary, folder or self.folder, self.log_path)
        return self.manager

    def running(self):
        """The queue manager, started when it is not running."""
        if self.manager is None or not self.manager.running:
            self.start()
        return self.manager

    def level(self, depth, say=lambda text: None):
        """Brings every queue to exactly this depth."""
        manager = self.running()
        found = manager.depths(self.queues)
        above = {queue: count - depth for queue, count in found.items() if count > depth}
        if above:
            say(f"gets {sum(above.values()):,} messages")
            getter.drain(manager.url, above)
        below = {}
        for queue, count in found.items():
            if count < depth:
                below.setdefault(depth - count, []).append(queue)
        for count, queues in below.items():
            say(f"puts {count * len(queues):,} messages")
            self.put(queues, count * len(queues))
        return manager

    def put(self, queues, count):
        """Puts so many messages, spread evenly over the queues."""
        clients = max(1, PRODUCERS // len(queues)) * len(queues)
        if count < clients:
            clients = len(queues)
        named = [part for queue in queues for part in ("--queue", queue)]
        self.manager.load("put", "--clients", str(clients), *named, "--count", str(count), "--size", str(self.size),
                          "--persistent", "--seconds", "86400")

    def kill(self):
        """kill -9, when it runs."""
        if self.manager:
            self.manager.kill()
            self.manager = None

    def remove(self):
        """Ends it and removes its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.log_path.unlink(missing_ok=True)

    def disk_bytes(self):
        """Bytes that the folder takes on the disk."""
        return sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*") if path.is_file())


def end_left_over(work):
    """Kills queue managers with data below `work`: a script that was killed could not end them."""
    below = f"{pathlib.Path(work).resolve()}/"
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[1:3] == ["run", NAME] and "--data" in words and words[words.index("--data") + 1].startswith(below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.parent.name), signal.SIGKILL)
