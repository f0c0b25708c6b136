"""A running queue manager of ours: start it, ask it, image it, kill it, and read what the kernel knows of it.

Times are `time.perf_counter()`. The kernel's page cache is dropped by `drop_page_cache` (root). Not here:
any message.
"""

import json
import os
import pathlib
import signal
import subprocess
import time

NAME = "LAB"


class Failed(Exception):
    """The queue manager did not do what the lab needs."""


def drop_page_cache():
    """Nothing of any file is in memory afterwards: what is dirty is written first."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


class QueueManager:
    """A process of `towline run`, started when this is made; `began` and `ready` say when.

    `resident_at_ready` and `read_at_ready` are taken in the moment of `ready`, before any client connects. `listen`: where,
    None if `config` says it.
    """

    def __init__(self, binary, folder, log_path, config=None, more=(), listen="127.0.0.1:0"):
        self.binary, self.folder = binary, folder
        command = [binary, "run", NAME, "--data", str(folder), "--auto-define", "*"]
        command += ["--listen", listen] if listen else []
        command += ["--config", str(config)] if config else []
        self.errors = open(log_path, "ab")
        self.began = time.perf_counter()
        # A process group of its own: Ctrl-C ends the script, which then ends this in order.
        self.process = subprocess.Popen([*command, *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, process_group=0)
        self.url = self.wait_for_ready()

    def wait_for_ready(self):
        for line in self.process.stdout:
            if line.startswith("ready "):
                self.ready = time.perf_counter()
                self.resident_at_ready = self.resident_bytes()
                self.read_at_ready = self.read()
                return line.split()[1]
        raise Failed(f"the queue manager ended with {self.process.wait()} before it was ready: {self.errors.name}")

    def memory(self):
        """Fields of /proc/PID/status in bytes."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        pairs = (line.split(":", 1) for line in lines)
        return {name: int(value.split()[0]) * 1024 for name, value in pairs if value.endswith(" kB")}

    def resident_bytes(self):
        return self.memory()["VmRSS"]

    def read(self):
        """What was read since exec: bytes from the disk, bytes asked for (files and sockets), and calls."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        found = {name: int(value) for name, value in (line.split(": ") for line in lines)}
        return {"disk_bytes": found["read_bytes"], "bytes": found["rchar"], "calls": found["syscr"]}

    def status(self):
        done = subprocess.run([self.binary, "status", "--json", "--data", str(self.folder)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise Failed(f"towline status: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def depths(self, queues):
        """Committed messages of each queue; 0 for one that is not there."""
        found = {queue["name"]: queue["depth"] - queue.get("uncommitted", 0) for queue in self.status()["queues"]}
        return {queue: found.get(queue, 0) for queue in queues}

    def image(self):
        """Takes an image and waits for it; the seconds that it took, None when the command is not there."""
        began = time.perf_counter()
        done = subprocess.run([self.binary, "image", "--data", str(self.folder)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 2 and "unrecognized subcommand" in done.stderr:
            return None
        if done.returncode:
            raise Failed(f"towline image: {done.stderr.strip()}")
        return time.perf_counter() - began

    def load(self, *arguments):
        """Runs `towline load` against it; its report."""
        loading = self.begin_load(*arguments)
        out, errors = loading.communicate()
        report = json.loads(out) if out.strip() else {}
        if not report.get("passed"):
            raise Failed(f"towline load {' '.join(arguments)}: {errors.strip()[-500:]}")
        return report

    def begin_load(self, *arguments):
        """The same, under way: a process."""
        command = [self.binary, "load", *arguments, "--url", self.url, "--quiet", "--json", "-"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def kill(self):
        """kill -9, and waits until it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.gone()

    def stop(self):
        """An orderly end."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(300)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.gone()

    def gone(self):
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    @property
    def running(self):
        return self.process.poll() is None
