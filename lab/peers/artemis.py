#!/usr/bin/env python3
"""Apache Artemis as a peer on this machine: fetch, create, start, stop.

What it is for: a fair opponent for the load harness. One broker, NIO journal, forced to disk
before an acknowledgement (journal-datasync), anonymous, one AMQP acceptor on the loopback.
What it does not do: measure anything (lab/compare.py does), listen on any other address.
Invariant: everything it writes lies under lab/.cache; it ends only the process that it started.

    artemis.py start [--port N] [--heap 2G]   fetches and creates on first use; prints JSON
    artemis.py stop [--kill]                  --kill: as a crash (SIGKILL)
    artemis.py status                         JSON: version, url, pid, journal settings
    artemis.py clean                          removes the instance and its messages
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time

VERSION = "2.56.0"
# Newer releases are published under the project's own group.
GROUPS = ("org.apache.artemis", "org.apache.activemq")
LAB = pathlib.Path(__file__).resolve().parent.parent
CACHE = LAB / ".cache" / "artemis"
INSTANCE = CACHE / "instance"
STATE = CACHE / "state.json"


def fetch():
    """Unpacks the distribution under lab/.cache (from Maven Central) unless it is there."""
    home = CACHE / f"apache-artemis-{VERSION}"
    if (home / "bin" / "artemis").exists():
        return home
    CACHE.mkdir(parents=True, exist_ok=True)
    for group in GROUPS:
        artifact = f"{group}:apache-artemis:{VERSION}:tar.gz:bin"
        done = subprocess.run(
            ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy",
             f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}"],
            stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        archive = CACHE / f"apache-artemis-{VERSION}-bin.tar.gz"
        if done.returncode == 0 and archive.exists():
            with tarfile.open(archive) as tar:
                tar.extractall(CACHE, filter="data")
            archive.unlink()
            return home
    sys.exit(f"Artemis {VERSION} could not be fetched from Maven Central (see above)")


def create(home, port, heap, instance=INSTANCE):
    """Creates an instance and rewrites the settings that the comparison fixes."""
    if instance.exists():
        return
    subprocess.run(
        [home / "bin" / "artemis", "create", "--silent", "--nio", "--no-web", "--host=127.0.0.1",
         "--allow-anonymous", "--user=lab", "--password=lab", "--no-mqtt-acceptor",
         "--no-stomp-acceptor", "--no-hornetq-acceptor", "--no-amqp-acceptor",
         f"--java-memory={heap}", instance],
        stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)
    path = instance / "etc" / "broker.xml"
    text = path.read_text()
    acceptor = (f'<acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;'
                "amqpCredits=1000;amqpLowCredits=300;useEpoll=true;supportAdvisory=false</acceptor>")
    text = replaced(text, r"<acceptors>.*?</acceptors>", f"<acceptors>{acceptor}</acceptors>")
    text = replaced(text, r"<journal-datasync>[a-z]*</journal-datasync>",
                    "<journal-datasync>true</journal-datasync>")
    text = replaced(text, r"</journal-type>",
                    "</journal-type>\n      <security-enabled>false</security-enabled>")
    # An address that was not declared is a queue (clients send no capability), and stays when the
    # last consumer leaves, so that what is left in it can be counted.
    text = replaced(text, r'(<address-setting match="#">)', r"\1"
                    "<default-queue-routing-type>ANYCAST</default-queue-routing-type>"
                    "<default-address-routing-type>ANYCAST</default-address-routing-type>")
    text = re.sub(r"<auto-delete-(queues|addresses)>[a-z]*</auto-delete-(queues|addresses)>", "", text)
    text = replaced(text, r"(<default-queue-routing-type>)",
                    r"<auto-delete-queues>false</auto-delete-queues>"
                    r"<auto-delete-addresses>false</auto-delete-addresses>\1")
    # `create` times the disk once, and a busy moment then would slow every later run.
    found = int(re.search("<journal-buffer-timeout>(.*?)<", text).group(1))
    text = replaced(text, r"<journal-buffer-timeout>\d+<",
                    f"<journal-buffer-timeout>{min(found, disk_at_its_best_ns())}<")
    # The default checks would stop a peer on a nearly full lab disk, or log its busy moments.
    text = re.sub(r"<max-disk-usage>.*?</max-disk-usage>", "<max-disk-usage>99</max-disk-usage>", text)
    path.write_text(text)


def replaced(text, pattern, replacement):
    """`text` with the first match replaced; a missing setting is an error, not a silent default."""
    text, count = re.subn(pattern, replacement, text, count=1, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"broker.xml of Artemis {VERSION} has no {pattern}")
    return text


def disk_at_its_best_ns():
    """Nanoseconds of one 4 KiB write + fdatasync: the best median of ten tries."""
    path = CACHE / "probe"
    path.write_bytes(bytes(1 << 20))
    handle = os.open(path, os.O_WRONLY)
    medians = []
    try:
        os.fsync(handle)
        for _ in range(10):
            times = []
            for index in range(60):
                start = time.perf_counter_ns()
                os.pwrite(handle, bytes(4096), index * 4096)
                os.fdatasync(handle)
                times.append(time.perf_counter_ns() - start)
            medians.append(sorted(times)[30])
    finally:
        os.close(handle)
        path.unlink()
    return min(medians)


def free_port():
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def running():
    """The state of the broker that this script started, or None."""
    if not STATE.exists():
        return None
    state = json.loads(STATE.read_text())
    try:
        command = pathlib.Path(f"/proc/{state['pid']}/cmdline").read_bytes()
    except OSError:
        return None
    return state if str(INSTANCE).encode() in command else None


def setting(name):
    """One setting of the instance, as text."""
    match = re.search(f"<{name}>(.*?)</{name}>", (INSTANCE / "etc" / "broker.xml").read_text())
    return match.group(1) if match else None


def start(port, heap):
    """Starts the broker and waits until its acceptor takes connections."""
    state = running()
    if state:
        return state
    home = fetch()
    if INSTANCE.exists() and STATE.exists() and port == 0:
        port = json.loads(STATE.read_text())["port"]
    elif port == 0:
        port = free_port()
    create(home, port, heap)
    path = INSTANCE / "etc" / "broker.xml"
    path.write_text(replaced(path.read_text(), r"tcp://127\.0\.0\.1:\d+\?", f"tcp://127.0.0.1:{port}?"))
    log = open(CACHE / "broker.log", "ab")
    broker = subprocess.Popen([INSTANCE / "bin" / "artemis", "run"], stdin=subprocess.DEVNULL,
                              stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if broker.poll() is not None:
            sys.exit(f"Artemis ended at once, see {CACHE / 'broker.log'}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.2)
    else:
        broker.kill()
        sys.exit("Artemis did not listen within 90 s")
    state = {"peer": "artemis", "version": VERSION, "url": f"amqp://127.0.0.1:{port}",
             "pid": broker.pid, "port": port, "heap": heap,
             "journal_buffer_timeout_ns": setting("journal-buffer-timeout"),
             "journal_datasync": setting("journal-datasync"), "journal_type": setting("journal-type")}
    STATE.write_text(json.dumps(state))
    return state


def stop(kill):
    """Ends the broker that this script started."""
    state = running()
    if not state:
        return
    os.kill(state["pid"], signal.SIGKILL if kill else signal.SIGTERM)
    deadline = time.monotonic() + 60
    while running() and time.monotonic() < deadline:
        time.sleep(0.1)
    if running():
        os.kill(state["pid"], signal.SIGKILL)


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["start", "stop", "status", "clean"])
    parser.add_argument("--port", type=int, default=0, help="0: any free one, kept for later starts")
    parser.add_argument("--heap", default="2G")
    parser.add_argument("--kill", action="store_true", help="stop as a crash would")
    args = parser.parse_args()
    if args.command == "start":
        print(json.dumps(start(args.port, args.heap)))
    elif args.command == "stop":
        stop(args.kill)
    elif args.command == "status":
        print(json.dumps(running()))
    else:
        stop(kill=True)
        shutil.rmtree(INSTANCE, ignore_errors=True)
        STATE.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
