"""Processes of programs that begin further ones: CPU time of all of them, and their end. Not here: starting them."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time

from towlab.queue_manager import Failed

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_and_group(stat):
    """CPU seconds and process group of a line of /proc/PID/stat."""
    fields = stat.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS, int(fields[2])


def group_cpu_s(group):
    """CPU seconds so far of all running processes of a process group."""
    return sum(seconds for _, seconds in members(group))


def members(group):
    """Processes of a process group, each with its CPU seconds."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            seconds, its_group = cpu_and_group(path.read_text())
            if its_group == group:
                found.append((int(path.parent.name), seconds))
    return found


def end_group(process):
    """kill -9 for a process that leads a group, and for all of the group.

    A leader that only waits for another one ends with it, by itself: so the time of both is known as that of a child.
    """
    others = [pid for pid, _ in members(process.pid) if pid != process.pid]
    for pid in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if others:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until_listens(host, port, limit):
    """Waits until somebody takes connections there."""
    end = time.monotonic() + limit
    while True:
        try:
            with socket.create_connection((host, port), 1):
                return
        except OSError as error:
            if time.monotonic() > end:
                raise Failed(f"nobody listens on {host}:{port} after {limit} s") from error
        time.sleep(0.1)
