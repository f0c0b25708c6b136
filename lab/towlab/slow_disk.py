"""A folder shown at another place, every file operation so much later (tests/e2e, `slow-disk`, FUSE).

Counts what was asked for. Not here: the file system itself.
"""

import json
import pathlib
import subprocess

from towlab.queue_manager import Failed


class SlowDisk:
    """The mount, there until `close`."""

    def __init__(self, binary, folder, mount, delay_ms):
        self.mount = pathlib.Path(mount)
        self.mount.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen([binary, str(folder), str(mount), str(int(delay_ms * 1000))],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
