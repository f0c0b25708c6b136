"""What reads or writes all that is stored: backups, images, a copy for a replica, a disk that is slower than producers.

Not here: messages that stay in memory.
"""

import functools
import shutil
import subprocess
import time

from greedy.bench import DEEP
from greedy.case import Case
from towlab.group import NAMES, Native
from towlab.probe import USUAL, niceness
from towlab.queue_manager import Failed, QueueManager
from towlab.slow_disk import SlowDisk

DELAYS_MS = (50, 200, 2000)
# Of each operation behind FUSE.
FOLDER_DELAY_MS = 20
PRODUCERS, WINDOW, LARGE_BYTES = 4, 256, 65_536
IMAGES = 3
SLOW = "the probe's own messages wait for the same disk"


def backup(bench):
    bench.fill(persistent=True)
    yield
    bench.towline("backup", "--data", str(bench.data), "--to", str(bench.folder / "backup"))


def image(bench):
    bench.fill(persistent=True)
    yield
    for _ in range(IMAGES):
        bench.manager.image()


def behind(bench, delay_s):
    """Producers that are faster than the disk, for at least two of its delays."""
    bench.fill(count=1, persistent=True)
    yield
    seconds = max(bench.seconds, 2 * delay_s)
    bench.begin("load", "put", "--clients", str(PRODUCERS), "--window", str(WINDOW), "--size", str(LARGE_BYTES),
                "--persistent", "--queue", DEEP, "--seconds", str(seconds), "--quiet", "--url", bench.manager.url)
    time.sleep(seconds)


class GroupMember:
    """The active instance of a group, as a bench and its probes want a queue manager."""

    def __init__(self, group, name):
        self.group, self.name = group, name
        self.url, self.folder, self.process = group.url(name), group.folder / name, group.processes[name]
        self.binary = group.binary

    # The same as of a queue manager that is alone.
    load, begin_load = QueueManager.load, QueueManager.begin_load

    @property
    def running(self):
        return self.process.poll() is None

    def kill(self):
        self.group.close()


def start_group(bench):
    group = Native(bench.binary, bench.folder / "group")
    bench.on_end(group.close)
    bench.manager = GroupMember(group, group.start_all())


def in_memory(bench, folder):
    """A new disk for a replica: here all three have one disk, and no log should wait for another's writes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8g", "replica", str(folder)], check=True)
    bench.on_end(functools.partial(subprocess.run, ["umount", "--lazy", str(folder)], check=True))
    # Ends before its disk is taken away.
    bench.on_end(bench.manager.group.close)


def copy(bench, disk=in_memory):
    """A replica that lost its disk gets everything anew."""
    group = bench.manager.group
    bench.fill(persistent=True)
    lost = next(name for name in NAMES if name != bench.manager.name)
    bench.say("waits for the replicas")
    group.until_whole()
    group.kill(lost)
    shutil.rmtree(group.folder / lost)
    if disk:
        disk(bench, group.folder / lost)
    yield
    with niceness(USUAL):
        group.start(lost)
    if group.until_whole() != bench.manager.name:
        raise Failed("another instance became active meanwhile")


def start_slow_folder(bench):
    """A data folder that is shown through FUSE, each operation later."""
    if not bench.args.slow_disk:
        raise Failed("needs --slow-disk")
    data = bench.folder / "data"
    data.mkdir()
    slow = SlowDisk(bench.args.slow_disk, data, bench.folder / "mount", FOLDER_DELAY_MS)
    bench.on_end(slow.close)
    bench.has_slow_folder = True
    bench.manager = QueueManager(bench.binary, slow.mount, bench.folder / "log")
    bench.on_end(bench.manager.kill)


def delay_options(delay_ms):
    return ("--log-sync-delay-us", str(delay_ms * 1000))


CASES = [
    Case("backup", "a backup of {depth} persistent messages", backup),
    Case("image", "three images of {depth} persistent messages", image),
    *(Case(f"sync-{delay}", f"4 producers with 16 MiB each under way, each sync takes {delay:,} ms longer",
           functools.partial(behind, delay_s=delay / 1000), options=delay_options(delay), why_memory="4 connections",
           why_persistent=SLOW, weight=4 + delay / 100) for delay in DELAYS_MS),
    Case("slow-disk", f"the same, each file operation takes {FOLDER_DELAY_MS} ms longer (FUSE)",
         functools.partial(behind, delay_s=FOLDER_DELAY_MS / 1000), start=start_slow_folder,
         why_memory="4 connections", why_persistent=SLOW),
    Case("copy", "a replica that lost its disk gets {depth} persistent messages on a new one", copy,
         start=start_group, why_memory="the active instance reads its log for the replica", weight=25),
    Case("copy-same-disk", "the same, and its disk is that of the active instance",
         functools.partial(copy, disk=None), start=start_group, why_persistent="all three share one disk",
         why_memory="the active instance reads its log for the replica", weight=25),
]
