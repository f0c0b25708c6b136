#!/usr/bin/env python3
"""Towline beside Apache Artemis: the same generator, alternating, in one run, medians.

What it is for: the figures of docs/benchmarks. It starts both brokers on the loopback, runs each
case on one and then on the other (the order turns round each time), and writes a table, the raw
results (JSON) and a page (markdown).
What it does not do: measure across a network, or judge a busy machine: it notes how busy the
machine was besides, and the page says so.
Invariants: it ends only processes that it started; every run is bounded in time; a run that the
checker did not pass is shown as failed, not left out.

    lab/compare.py --towline target/release/towline                     all cases, three rounds
    lab/compare.py --towline ... --only requester-10,stream-1 --seconds 3 --rounds 1
    lab/compare.py --towline ... --jms                                   and JMS local transactions
    lab/compare.py --load target/release/examples/towline-load --peers artemis
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time

LAB = pathlib.Path(__file__).resolve().parent
ROOT = LAB.parent
CACHE = LAB / ".cache" / "compare"
QUEUES = "CMP"

# A case: arguments of the generator, what counts, and what is promised against Artemis (issue and
# page: "How good"): the least ratio of rates, the most CPU in us per operation, and the most share
# of Artemis' p99.
PERSISTENT = ["--size", "2048", "--entropy", "random", "--persistent"]
CASES = {
    "stream-1": (["stream", "--producers", "1", "--consumers", "1", "--window", "256", *PERSISTENT],
                 "gets", "through", {"rate": 5, "cpu": 10}),
    "stream-10": (["stream", "--producers", "10", "--consumers", "10", "--window", "256",
                   *PERSISTENT], "gets", "through", {"rate": 5, "cpu": 10}),
    "stream-idle-1000": (["stream", "--producers", "1", "--consumers", "1", "--window", "256",
                          "--idle", "1000", *PERSISTENT], "gets", "through", {"cpu": 10}),
    "stream-nonpersistent": (["stream", "--producers", "1", "--consumers", "1", "--window", "256",
                              "--size", "2048", "--non-persistent"], "gets", "through", {"cpu": 5}),
    "transaction-1": (["transaction", "--clients", "1", "--batch", "1", *PERSISTENT],
                      "gets", "commit", {}),
    "transaction-10": (["transaction", "--clients", "1", "--batch", "10", *PERSISTENT],
                       "gets", "commit", {}),
    "transaction-100": (["transaction", "--clients", "1", "--batch", "100", *PERSISTENT],
                        "gets", "commit", {}),
}
# A pair in both forms. `requester-N` asks for credit when it wants a message, so that a pair holds
# the round trip of a put and that of a get; with credit that stands (-standing) the message is on its
# way before it is wanted, and the get costs no round trip. What is promised counts in the first form.
for clients, bars in ((1, {}), *((many, {"rate": 4, "cpu": 30, "p99": 0.25}) for many in (10, 50, 200))):
    for form, prefetch, promised in (("", "0", bars), ("-standing", "1", {})):
        CASES[f"requester-{clients}{form}"] = (
            ["requester", "--clients", str(clients), "--prefetch", prefetch, *PERSISTENT], "pairs", "pair", promised)
JMS_THREADS = (1, 10)
JMS_RATIO = 3


class Towline:
    """A queue manager of ours, with its data on the file system of the lab."""

    name = "towline"

    def __init__(self, binary):
        self.data = CACHE / "towline-data"
        shutil.rmtree(self.data, ignore_errors=True)
        log = open(CACHE / "towline.log", "wb")
        self.process = subprocess.Popen(
            [binary, "run", "CMP", "--data", self.data, "--listen", "127.0.0.1:0",
             "--auto-define", f"{QUEUES}*"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.url = None
        for line in self.process.stdout:
            if line.startswith("ready amqp://"):
                self.url = line.split()[1]
                break
        if self.url is None:
            sys.exit(f"towline did not start, see {CACHE / 'towline.log'}")
        self.pid = self.process.pid
        self.version = output([binary, "--version"])

    def stop(self):
        """SIGTERM, and SIGKILL for one that does not go."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.data, ignore_errors=True)


class Artemis:
    """The peer of lab/peers/artemis.py, with an empty journal."""

    name = "artemis"
    script = LAB / "peers" / "artemis.py"

    def __init__(self):
        subprocess.run([self.script, "clean"], check=True)
        state = json.loads(output([self.script, "start"]))
        self.url, self.pid = state["url"], state["pid"]
        self.version = (f"Artemis {state['version']} ({state['journal_type']}, datasync "
                        f"{state['journal_datasync']}, buffer timeout "
                        f"{state['journal_buffer_timeout_ns']} ns, heap {state['heap']})")

    def stop(self):
        """Ends the broker and removes its messages."""
        subprocess.run([self.script, "clean"], check=False)


def output(command):
    """Standard output of a command that must succeed."""
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def run_load(load, peer, case, tag, seconds, warmup):
    """One run of the generator; its report with the load of others on the machine added."""
    arguments = CASES[case][0]
    command = [*load, *arguments, "--url", peer.url, "--queue", f"{QUEUES}.{case}.{tag}",
               "--server-pid", str(peer.pid), "--seconds", str(seconds), "--warmup", str(warmup),
               "--quiet", "--json", "-"]
    before = busy_seconds()
    start = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False,
                          timeout=seconds + warmup + 180)
    elapsed = time.monotonic() - start
    if not done.stdout.strip():
        return {"passed": False, "error": done.stderr.strip(), "command": command}
    report = json.loads(done.stdout)
    ours = sum(report[part]["processors"] for part in ("server", "generator"))
    report["processors_of_others"] = max(0.0, (busy_seconds() - before) / elapsed - ours)
    report["command"] = command
    return report


def busy_seconds():
    """CPU seconds of the whole machine that were not idle."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = [int(field) for field in fields[:8]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def figures(case, report):
    """The figures of one run that the table is made of."""
    _, counted, latency, _ = CASES[case]
    if "error" in report:
        return None
    times = next((row for row in report["latencies_us"] if row["of"] == latency), None)
    return {"rate": report[counted]["per_second"],
            "cpu": report["server"]["cpu_us_per_operation"] or 0.0,
            "p50": times["p50"] if times else 0, "p99": times["p99"] if times else 0,
            "memory": report["server"]["resident_bytes"] / 2**20,
            "generator_cpu": report["generator"]["cpu_us_per_operation"] or 0.0,
            "others": report["processors_of_others"]}


def medians(rows):
    """The median of each figure over the rounds, None when no round gave one."""
    rows = [row for row in rows if row]
    if not rows:
        return None
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def disk_probe():
    """4 KiB write + fdatasync into a written file, in us: the best of ten tries, so that a busy
    moment does not hide the disk."""
    path = CACHE / "probe"
    size, block = 1 << 20, os.urandom(4096)
    path.write_bytes(bytes(size))
    handle = os.open(path, os.O_WRONLY)
    tries = []
    try:
        os.fsync(handle)
        for _ in range(10):
            times = []
            for index in range(100):
                start = time.perf_counter()
                os.pwrite(handle, block, (index * 4096) % size)
                os.fdatasync(handle)
                times.append((time.perf_counter() - start) * 1e6)
            times.sort()
            tries.append({"p50_us": round(times[50]), "p99_us": round(times[98])})
    finally:
        os.close(handle)
        path.unlink()
    return min(tries, key=lambda found: found["p50_us"])


def machine():
    """What the figures depend on."""
    cpu = next((line.split(":", 1)[1].strip()
                for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown")
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) // 2**20
    mount = output(["df", "--output=fstype,source", str(CACHE)]).splitlines()[-1]
    return {"cpu": cpu, "processors": os.cpu_count(), "memory_gib": memory,
            "kernel": platform.release(), "file_system": " ".join(mount.split()),
            "write_and_sync_4k": disk_probe(), "load_average": list(os.getloadavg())}


def run_cases(load, peers, args):
    """All cases, round by round; reports by case and peer."""
    reports = {case: {peer.name: [] for peer in peers} for case in args.only}
    for peer in peers:
        for case in ("stream-1", "requester-10"):
            print(f"warming {peer.name} up with {case}", file=sys.stderr)
            run_load(load, peer, case, "warm", args.warm_peer / 2, 0)
    for turn in range(args.rounds):
        order = peers if turn % 2 == 0 else peers[::-1]
        for case in args.only:
            for peer in order:
                report = run_load(load, peer, case, turn, args.seconds, args.warmup)
                reports[case][peer.name].append(report)
                row = figures(case, report)
                shown = (f"{row['rate']:>9.0f}/s {row['cpu']:>7.1f} us p99 {row['p99'] / 1e3:.2f} ms"
                         f" others {row['others']:.2f}" if row else report["error"])
                mark = "" if report["passed"] else "  FAILED"
                print(f"{turn + 1}/{args.rounds} {case:<22} {peer.name:<8} {shown}{mark}",
                      file=sys.stderr)
    return reports


def run_jms(peers, args):
    """JMS local transactions on each peer; rows by threads, peer and batch."""
    result = {threads: {peer.name: [] for peer in peers} for threads in JMS_THREADS}
    for turn in range(args.rounds):
        order = peers if turn % 2 == 0 else peers[::-1]
        for threads in JMS_THREADS:
            for peer in order:
                print(f"{turn + 1}/{args.rounds} jms with {threads} threads on {peer.name}",
                      file=sys.stderr)
                text = output([LAB / "jms-tx" / "run.sh", "--url", peer.url, "--threads", threads,
                               "--seconds", args.seconds, "--rounds", 1, "--warmup", 10,
                               "--server-pid", peer.pid, "--queue-prefix", f"{QUEUES}.JMS."])
                result[threads][peer.name].append(json.loads(text)["rows"])
    return result


def verdict(case, ours, theirs):
    """Which of the promises of a case are kept, as words."""
    bars = CASES[case][3]
    words = []
    if "rate" in bars and theirs:
        kept = ours["rate"] >= bars["rate"] * theirs["rate"]
        words.append(f"rate >= {bars['rate']} x: {'yes' if kept else 'NO'}")
    if "cpu" in bars:
        kept = ours["cpu"] <= bars["cpu"]
        words.append(f"CPU <= {bars['cpu']} us: {'yes' if kept else 'NO'}")
    if "p99" in bars and theirs:
        kept = ours["p99"] <= bars["p99"] * theirs["p99"]
        words.append(f"p99 <= {bars['p99']} x: {'yes' if kept else 'NO'}")
    return "; ".join(words)


def case_table(cases):
    """Markdown rows of the generator's cases."""
    lines = ["| case | broker | rate /s | server CPU us | p50 ms | p99 ms | memory MiB | "
             "generator CPU us | others' processors | kept |", "|---|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for case, by_peer in cases.items():
        for name, row in by_peer.items():
            if row is None:
                lines.append(f"| {case} | {name} | failed | | | | | | | |")
                continue
            ratio = ""
            theirs = by_peer.get("artemis")
            if name == "towline":
                ratio = verdict(case, row, theirs)
                if theirs:
                    ratio = f"{row['rate'] / max(theirs['rate'], 1e-9):.2f} x; {ratio}"
            lines.append(f"| {case} | {name} | {row['rate']:,.0f} | {row['cpu']:.1f} | "
                         f"{row['p50'] / 1e3:.2f} | {row['p99'] / 1e3:.2f} | {row['memory']:.0f} | "
                         f"{row['generator_cpu']:.1f} | {row['others']:.2f} | {ratio} |")
    return lines


def jms_table(jms):
    """Markdown rows of the JMS cases."""
    lines = ["| threads | messages per commit | broker | messages/s (median) | server CPU us | kept |",
             "|--:|--:|---|--:|--:|---|"]
    for threads, by_peer in jms.items():
        for index, first in enumerate(next(iter(by_peer.values()))[0]):
            rates = {}
            for name, turns in by_peer.items():
                rates[name] = statistics.median(t[index]["messages_per_s_median"] for t in turns)
                cpu = statistics.median(t[index]["server_cpu_us_per_message"] for t in turns)
                kept = ""
                if name == "artemis" and "towline" in rates:
                    ratio = rates["towline"] / max(rates["artemis"], 1e-9)
                    kept = f"{ratio:.2f} x; >= {JMS_RATIO} x: {'yes' if ratio >= JMS_RATIO else 'NO'}"
                lines.append(f"| {threads} | {first['batch']} | {name} | {rates[name]:,.0f} | "
                             f"{cpu:.1f} | {kept} |")
    return lines


def page(result, cases, args):
    """The markdown page."""
    where = result["machine"]
    probe = where["write_and_sync_4k"]
    failed = [f"{case} on {name}" for case, by_peer in result["reports"].items()
              for name, reports in by_peer.items() if not all(r["passed"] for r in reports)]
    lines = [
        f"# Comparison of {result['date']}", "",
        "Written by `lab/compare.py`; the raw results are in the JSON file beside this page.", "",
        f"- Machine: {where['cpu']}, {where['processors']} processors, {where['memory_gib']} GiB, "
        f"Linux {where['kernel']}, {where['file_system']}. Brokers and generator share it.",
        f"- Disk: write + fdatasync of 4 KiB p50 {probe['p50_us']} us, p99 {probe['p99_us']} us (best of ten tries).",
        f"- Load of the machine before: {where['load_average'][0]:.2f}. 'Others' processors' is "
        "CPU used by anything else during the runs; figures with more than 0.2 there are lower "
        "bounds.",
        *[f"- {name}: {version}" for name, version in result["peers"].items()],
        f"- {args.rounds} rounds of {args.seconds} s after {args.warmup} s of warm-up, alternating; "
        "medians. 2 KiB incompressible bodies. An operation is a pair (requester) or a message put "
        "and got (stream, transaction).",
        "- `requester-N` gives credit for one message when it wants one: a pair is a round trip for the "
        "put and one for the get. With `-standing`, one credit stands, and the round trip of the get is "
        "not in the figure.",
        f"- Command: `{result['command']}`", "",
        *case_table(cases)]
    if result.get("jms"):
        lines += ["", "## JMS local transactions (Qpid JMS 2.10, warm; put B and commit, get B and "
                  "commit)", "", *jms_table(result["jms"])]
    if failed:
        lines += ["", "Runs that did not pass the checker: " + ", ".join(failed) + "."]
    return "\n".join(lines) + "\n"


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towline", default=str(ROOT / "target" / "release" / "towline"))
    parser.add_argument("--load", help="generator alone, instead of `towline load`")
    parser.add_argument("--peers", default="towline,artemis")
    parser.add_argument("--only", help="cases, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=2)
    parser.add_argument("--warm-peer", type=float, default=20,
                        help="seconds of load on each broker before anything is measured")
    parser.add_argument("--jms", action="store_true", help="JMS local transactions too")
    parser.add_argument("--out", help="path without suffix; docs/benchmarks/compare-DATE")
    args = parser.parse_args()
    args.only = args.only.split(",") if args.only else list(CASES)
    unknown = [case for case in args.only if case not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    return args


def main():
    """Runs all of it; status 1 when a run did not pass the checker."""
    args = parse()
    CACHE.mkdir(parents=True, exist_ok=True)
    load = [args.load] if args.load else [args.towline, "load"]
    result = {"date": datetime.date.today().isoformat(), "machine": machine(),
              "command": " ".join(["lab/compare.py", *sys.argv[1:]])}
    peers = []
    try:
        for name in args.peers.split(","):
            peers.append(Towline(args.towline) if name == "towline" else Artemis())
        result["peers"] = {peer.name: peer.version for peer in peers}
        result["reports"] = run_cases(load, peers, args)
        if args.jms:
            result["jms"] = run_jms(peers, args)
    finally:
        for peer in peers:
            peer.stop()
    cases = {case: {name: medians([figures(case, report) for report in reports])
                    for name, reports in by_peer.items()}
             for case, by_peer in result["reports"].items()}
    result["medians"] = cases
    out = pathlib.Path(args.out or ROOT / "docs" / "benchmarks" / f"compare-{result['date']}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    text = page(result, cases, args)
    out.with_suffix(".md").write_text(text)
    print(text)
    passed = all(report["passed"] for by_peer in result["reports"].values()
                 for reports in by_peer.values() for report in reports)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
