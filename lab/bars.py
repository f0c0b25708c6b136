#!/usr/bin/env python3
"""The promises that need no peer: one command, one table.

For each bar it starts a fresh queue manager (`towline run` on loopback, port 0), drives it with
`towline load`, and takes the median of some rounds: latency at one client beside the disk's own write
and sync, group commit with an injected sync delay, log bytes of a message, cost at depth, with many queues
and with idle connections, memory and processor time of doing nothing, time from exec to the first accepted
put. Writes a page and the raw figures to docs/benchmarks. It compares nothing with other brokers
(compare.py does), and asserts nothing: it prints what was measured beside what was promised.
"""

import argparse
import json
import mmap
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / "lab" / ".cache"
SIZE = ["--size", "2048", "--persistent"]


class Manager:
    """A running queue manager of ours."""

    def __init__(self, binary, *more):
        self.binary = binary
        self.data = CACHE / "bars-data"
        shutil.rmtree(self.data, ignore_errors=True)
        self.start(*more)

    def start(self, *more):
        self.process = subprocess.Popen(
            [self.binary, "run", "BARS", "--data", self.data, "--listen", "127.0.0.1:0", "--auto-define", "Q*", *more],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if line.startswith("ready "):
                self.url = line.split()[1]
                return
        sys.exit("towline did not start")

    def load(self, *arguments):
        command = [self.binary, "load", *arguments, "--url", self.url,
                   "--server-pid", str(self.process.pid), "--json", "-"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        return json.loads(done.stdout)

    def status(self):
        done = subprocess.run([self.binary, "status", "--json", "--data", self.data],
                              stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout)

    def running_s(self):
        """Processor time of the threads that are there now, exact: the ticks in /proc/PID/stat miss most short runs."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def resident_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def disk_p50_us(count=4000):
    """The disk's own 4 KiB write and sync: O_DIRECT into a file of written blocks, then fdatasync."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / "bars-probe.bin"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    zeros, block = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 4096)
    for mib in range(16):
        os.pwrite(file, zeros, mib << 20)
    os.fsync(file)
    took = []
    for turn in range(count):
        began = time.perf_counter()
        os.pwrite(file, block, 4096 * (turn % 4096))
        os.fdatasync(file)
        took.append((time.perf_counter() - began) * 1e6)
    os.close(file)
    path.unlink()
    return statistics.median(took)


def server_us(report):
    return report["server"]["cpu_us_per_operation"]


def one_client(args):
    ratios, pairs, disks = [], [], []
    for _ in range(args.rounds):
        manager = Manager(args.towline)
        disk = disk_p50_us()
        report = manager.load("requester", "--clients", "1", *SIZE, "--queue", "QA", "--seconds", str(args.seconds))
        disk = (disk + disk_p50_us()) / 2
        pair = next(row for row in report["latencies_us"] if row["of"] == "pair")["p50"]
        ratios.append(pair / disk)
        pairs.append(pair)
        disks.append(disk)
        manager.stop()
    text = f"{statistics.median(pairs):.0f} us; disk {statistics.median(disks):.0f} us"
    return [("pair p50, 1 client / disk write + sync", statistics.median(ratios), "<= 2.5", text)]


def group_commit(args):
    rows = []
    for mode in ("put", "requester"):
        rates, per_sync = {1: [], 64: []}, []
        for _ in range(args.rounds):
            for clients in (1, 64):
                manager = Manager(args.towline, "--log-sync-delay-us", "5000")
                window = ["--window", "1"] if mode == "put" else []
                report = manager.load(mode, "--clients", str(clients), *window, *SIZE, "--queue", "QA",
                                      "--seconds", str(args.seconds))
                rates[clients].append(report["puts"]["per_second"])
                log = manager.status()["log"]
                if clients == 64:
                    per_sync.append(log["commits"] / log["syncs"])
                manager.stop()
        one, many = statistics.median(rates[1]), statistics.median(rates[64])
        text = f"{many:,.0f}/s at 64, {one:,.0f}/s at 1; {statistics.median(per_sync):.0f} commits per sync at 64"
        rows.append((f"{mode}, 5 ms sync delay: rate at 64 clients / rate at 1", many / one, ">= 40", text))
    return rows


def log_bytes(args):
    manager = Manager(args.towline)

    def grown(*arguments):
        before = manager.status()["log"]["logical_bytes_written"]
        manager.load(*arguments, "--queue", "QA")
        return manager.status()["log"]["logical_bytes_written"] - before

    size = ["--size", "1024", "--persistent"]
    put = grown("put", "--clients", "1", "--window", "1", "--count", "1000", *size) / 1000
    get = grown("get", "--clients", "1", "--window", "1", "--count", "1000") / 1000
    put_10 = grown("put", "--clients", "1", "--window", "1", "--count", "1000", *size) / 1000
    batches = grown("transaction", "--clients", "1", "--batch", "10", "--count", "1000", *size) / 10_000
    manager.stop()
    rows = [("log bytes, put + commit, 1 KB", put, "<= 1,200", "window 1: nothing shares its batch"),
            ("log bytes, get + commit", get, "<= 64", "window 1")]
    rows.append(("log bytes per message, 10 puts and 10 gets per commit", batches, "<= 1,200 + 24",
                 f"a put alone {put_10:.0f}"))
    return rows


def flat(args):
    costs = {"empty": [], "depth 1,000,000": [], "1,000 queues": [], "1,000 idle connections": []}
    stream = ["stream", "--window", "256", *SIZE, "--seconds", str(args.seconds)]
    for _ in range(args.rounds):
        manager = Manager(args.towline)
        costs["empty"].append(server_us(manager.load(*stream, "--queue", "QA")))
        costs["1,000 idle connections"].append(server_us(manager.load(*stream, "--queue", "QA", "--idle", "1000")))
        manager.load("put", "--clients", "1000", "--queue", "Q%d", "--queues", "1000", "--count", "1000", *SIZE)
        costs["1,000 queues"].append(server_us(manager.load(*stream, "--queue", "QA")))
        manager.load("put", "--clients", "4", "--queue", "QA", "--count", "1000000", "--size", "1024", "--persistent")
        deep = ["put", "--clients", "1", "--window", "256", *SIZE, "--seconds", str(args.seconds)]
        costs["depth 1,000,000"].append(server_us(manager.load(*deep, "--queue", "QA")))
        shallow = server_us(manager.load(*deep, "--queue", "QB"))
        costs.setdefault("put, empty", []).append(shallow)
        manager.stop()
    medians = {name: statistics.median(values) for name, values in costs.items()}
    rows = []
    for name in ("1,000 queues", "1,000 idle connections"):
        text = f"{medians[name]:.2f} us, empty {medians['empty']:.2f} us of server CPU per message (stream)"
        rows.append((f"cost with {name} / empty", medians[name] / medians["empty"], "<= 1.2", text))
    text = f"{medians['depth 1,000,000']:.2f} us, empty {medians['put, empty']:.2f} us of server CPU per put"
    rows.append(("cost at depth 1,000,000 / empty", medians["depth 1,000,000"] / medians["put, empty"], "<= 1.2", text))
    return rows


def idle(args):
    manager = Manager(args.towline)
    time.sleep(15)
    resident, processor = manager.resident_kib(), manager.running_s()
    time.sleep(args.idle_seconds)
    spent = (manager.running_s() - processor) * 60 / args.idle_seconds
    load = subprocess.Popen([args.towline, "load", "idle", "--clients", "1000", "--url", manager.url, "--seconds", "8"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(5)
    each = (manager.resident_kib() - resident) / 1000
    load.wait()
    manager.stop()
    return [("idle queue manager, MiB resident", resident / 1024, "<= 40", ""),
            ("idle queue manager, CPU s a minute", spent, "<= 0.05", f"over {args.idle_seconds} s"),
            ("idle connection, KiB", each, "<= 32", "1,000 connections, logged in")]


def start_up(args):
    took = []
    for _ in range(max(args.rounds, 5)):
        began = time.perf_counter()
        manager = Manager(args.towline)
        report = manager.load("put", "--clients", "1", "--window", "1", "--count", "1", *SIZE, "--queue", "DEV.QUEUE.1")
        took.append((time.perf_counter() - began) * 1000)
        assert report["puts"]["per_second"] > 0, report
        manager.stop()
    return [("empty start to first accepted put, ms", statistics.median(took), "<= 150",
             "from exec of the daemon; the generator's own start is in it")]


BARS = {"one-client": one_client, "group-commit": group_commit, "log-bytes": log_bytes, "flat": flat,
        "idle": idle, "start": start_up}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", required=True, help="the binary to measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--idle-seconds", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=list(BARS), choices=list(BARS))
    parser.add_argument("--name", default="bars", help="docs/benchmarks/NAME.md and .json")
    args = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    lines = [f"# The promises that need no peer, {time.strftime('%Y-%m-%d')}", "",
             f"`lab/bars.py --towline target/release/towline --rounds {args.rounds} --seconds {args.seconds}` on "
             f"{os.cpu_count()} processors, {platform.system()} {platform.release()}. Messages of 2,048 bytes, "
             "random, persistent, unless stated; generator and queue manager share the machine. Of pairs, one credit stands: the "
             "round trip of a get [is not in the figure](README.md#what-standing-credit-leaves-out).", "",
             "| what | measured | promised | details |", "|---|---|---|---|"]
    rows = []
    for bar in args.only:
        for name, value, promised, text in BARS[bar](args):
            rows.append({"test": bar, "metric": name, "value": value, "promised": promised, "details": text})
            lines.append(f"| {name} | {value:,.2f} | {promised} | {text} |")
            print(lines[-1], flush=True)
    folder = ROOT / "docs" / "benchmarks"
    (folder / f"{args.name}.md").write_text("\n".join(lines) + "\n")
    (folder / f"{args.name}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
