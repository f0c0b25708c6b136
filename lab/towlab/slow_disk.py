"""A folder shown at another place, every file operation so much later (tests/e2e, `slow-disk`, FUSE).

Counts what was asked for. The kernel cuts a large read of a program into pieces for FUSE, and waits for one after the
other; a disk behind a network takes them all at once. So the largest piece is set to 16 MiB meanwhile (root, Linux
6.13 or later): a read waits once. Not here: the file system itself.
"""

import json
import pathlib
import subprocess

from towlab.queue_manager import Failed


PIECE_LIMIT = pathlib.Path("/proc/sys/fs/fuse/max_pages_limit")
PIECE_PAGES = 4096
# What the kernel begins with.
PIECE_PAGES_USUAL = 256


class SlowDisk:
    """The mount, there until `close`."""

    def __init__(self, binary, folder, mount, delay_ms):
        self.mount = pathlib.Path(mount)
        self.mount.mkdir(parents=True, exist_ok=True)
        self.limit = int(PIECE_LIMIT.read_text()) if PIECE_LIMIT.exists() else None
        if self.limit == PIECE_PAGES:
            # A run that was killed left it so.
            self.limit = PIECE_PAGES_USUAL
        if self.limit:
            PIECE_LIMIT.write_text(f"{PIECE_PAGES}\n")
        self.process = subprocess.Popen([binary, str(folder), str(mount), str(int(delay_ms * 1000))],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
        if self.process.stdout.readline().strip() != "mounted":
            raise Failed(f"{binary} did not mount {folder}")

    def counts(self):
        """Operations by kind since the mount, and bytes read and written."""
        self.process.stdin.write("counts\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
        if self.limit:
            PIECE_LIMIT.write_text(f"{self.limit}\n")


def take_away_left_over(mount):
    """Unmounts what a killed run left: its folder can be neither listed nor made."""
    try:
        list(mount.iterdir())
    except FileNotFoundError:
        pass
    except OSError:
        subprocess.run(["umount", "--lazy", str(mount)], check=False)
