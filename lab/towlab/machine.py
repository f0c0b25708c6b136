"""The machine that a result was measured on, and what else ran there meanwhile."""

import os
import pathlib
import platform
import subprocess
import time


def describe(folder):
    """Names and values in words: processors, memory, kernel, file system below `folder`, day."""
    model = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown")
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) / 2**20
    mount = subprocess.run(["findmnt", "--noheadings", "--output", "SOURCE,FSTYPE", "--target", str(folder)],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.split()
    return {"processors": f"{os.cpu_count()} ({model})", "memory": f"{memory:.1f} GiB",
            "system": f"{platform.system()} {platform.release()}", "disk": " ".join(mount) or "unknown",
            "day": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}


def busy_s():
    """CPU seconds of the whole machine that were not idle."""
    ticks = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def own_s():
    """CPU seconds of this process and its children, ended or running."""
    times = os.times()
    running = 0
    listed = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in listed:
        try:
            fields = pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        running += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return times.user + times.system + times.children_user + times.children_system + running


class Others:
    """Processors that anything else than us kept busy while it was open: above 0.2, repeat the measurement."""

    def __enter__(self):
        self.began, self.busy, self.own = time.monotonic(), busy_s(), own_s()
        return self

    def __exit__(self, *_):
        elapsed = max(0.01, time.monotonic() - self.began)
        self.processors = max(0.0, (busy_s() - self.busy - (own_s() - self.own)) / elapsed)
