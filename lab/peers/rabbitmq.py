"""RabbitMQ 4 as a cluster of three nodes on this machine: fetch, start, find the leader, kill, end.

Debian's packages of trixie and all that they need are unpacked (not installed) below lab/.cache/peers/rabbitmq, and
run with that folder as their root (root; mounts end with the processes). One quorum queue with three members, AMQP 1.0,
anonymous, on 127.79.0.1 to .3. Not here: measuring. Invariant: it ends only what it started, and writes only there.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

from towlab import process
from towlab.queue_manager import Failed

CACHE = pathlib.Path(__file__).resolve().parent.parent / ".cache" / "peers" / "rabbitmq"
SOURCE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main\n"
# Nothing is installed yet as far as apt knows, so it names all that is needed but what every Debian has.
PACKAGES = ("rabbitmq-server", "bash", "coreutils", "dash", "sed", "grep", "mawk", "util-linux")
NODES = ("r1", "r2", "r3")
QUEUE = "lab"
AMQP_PORT, DISTRIBUTION_PORT, EPMD_PORT = 5672, 25690, 44369
START_S = 120
# In a mount namespace of its own, so that nothing stays mounted.
INSIDE = ('mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && mount --bind "$1" "$0/work" && shift && '
          'exec chroot "$0" "$@"')


def apt(command, *arguments):
    places = {"Dir::State::lists": CACHE / "apt/lists", "Dir::Cache": CACHE / "apt", "Dir::State::status": CACHE / "status",
              "Dir::Cache::archives": CACHE / "apt/archives", "Dir::Etc::sourcelist": CACHE / "sources.list",
              "Dir::Etc::sourceparts": "-", "APT::Install-Recommends": "false", "APT::Sandbox::User": "root"}
    options = [f"-o{key}={value}" for key, value in places.items()]
    subprocess.run([command, *options, "-qq", *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def fetch():
    """The folder that is the root of RabbitMQ; made on first use."""
    root = CACHE / "root"
    if (CACHE / "complete").exists():
        return root
    print("fetches RabbitMQ (Debian trixie, about 70 MB)", file=sys.stderr)
    for folder in ("apt/lists/partial", "apt/archives/partial"):
        (CACHE / folder).mkdir(parents=True, exist_ok=True)
    (CACHE / "status").touch()
    (CACHE / "sources.list").write_text(SOURCE)
    apt("apt-get", "update")
    apt("apt-get", "-y", "--download-only", "install", *PACKAGES)
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / folder).mkdir(parents=True, exist_ok=True)
        (root / folder).symlink_to(f"usr/{folder}")
    for folder in ("proc", "dev", "work", "tmp", "etc"):
        (root / folder).mkdir()
    for archive in sorted((CACHE / "apt/archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", archive, root], check=True)
    sh = root / "usr/bin/sh"
    if not sh.exists():
        sh.symlink_to("dash")
    awk = root / "usr/bin/awk"
    if not awk.exists():
        awk.symlink_to("mawk")
    (root / "etc/passwd").write_text("root:x:0:0:root:/work:/bin/bash\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (CACHE / "complete").touch()
    return root


class RabbitMQ:
    """Three nodes, started when `start_all` is called; one quorum queue."""

    title = "RabbitMQ 4 quorum queue"
    kind, address = "amqp", f"/queues/{QUEUE}"

    def __init__(self, folder):
        self.root, self.folder = fetch(), pathlib.Path(folder)
        self.processes = {}
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / ".erlang.cookie").write_text("LABLABLABLABLABLABLA")
        (self.folder / ".erlang.cookie").chmod(0o400)
        for name in NODES:
            (self.folder / name).mkdir()
            (self.folder / f"{name}.conf").write_text(self.config(name))
        (self.folder / "plugins").write_text("[].\n")
        (self.folder / "queue.json").write_text(json.dumps({
            "vhosts": [{"name": "/"}],
            "queues": [{"name": QUEUE, "vhost": "/", "durable": True, "auto_delete": False,
                        "arguments": {"x-queue-type": "quorum", "x-quorum-initial-group-size": len(NODES)}}]}))

    def host(self, name):
        return f"127.79.0.{NODES.index(name) + 1}"

    def config(self, name):
        lines = [f"listeners.tcp.1 = {self.host(name)}:{AMQP_PORT}", "loopback_users = none",
                 "anonymous_login_user = guest", "anonymous_login_pass = guest", "log.file.level = warning",
                 "cluster_formation.peer_discovery_backend = classic_config",
                 "disk_free_limit.absolute = 50MB", "log.console = false"]
        lines += [f"cluster_formation.classic_config.nodes.{number} = {node}@localhost"
                  for number, node in enumerate(NODES, 1)]
        return "\n".join(lines) + "\n"

    def environment(self, name):
        number = NODES.index(name)
        return {"PATH": "/usr/sbin:/usr/bin", "HOME": "/work", "LANG": "C.UTF-8", "RABBITMQ_NODENAME": f"{name}@localhost",
                "RABBITMQ_CONFIG_FILE": f"/work/{name}", "RABBITMQ_MNESIA_BASE": f"/work/{name}",
                "RABBITMQ_LOG_BASE": f"/work/{name}", "RABBITMQ_ENABLED_PLUGINS_FILE": "/work/plugins",
                "RABBITMQ_DIST_PORT": str(DISTRIBUTION_PORT + number), "RABBITMQ_PID_FILE": f"/work/{name}.pid",
                "ERL_EPMD_PORT": str(EPMD_PORT), "ERL_EPMD_ADDRESS": "127.0.0.1",
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}"}

    def inside(self, *command):
        return ["unshare", "--mount", "sh", "-c", INSIDE, str(self.root), str(self.folder), *command]

    def start(self, name):
        with open(self.folder / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(
                self.inside("/usr/lib/rabbitmq/bin/rabbitmq-server"), env=self.environment(name),
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0)

    def control(self, name, tool, *arguments):
        """What a tool of RabbitMQ says to a node."""
        done = subprocess.run(self.inside(f"/usr/lib/rabbitmq/bin/{tool}", "--node", f"{name}@localhost", *arguments),
                              env=self.environment(name), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=START_S, check=False)
        if done.returncode:
            raise Failed(f"{tool} {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-800:]}")
        return done.stdout

    def start_all(self):
        # The port mapper of Erlang outlives the process that starts it unless it is ours.
        with open(self.folder / "epmd.out", "ab") as out:
            self.processes["epmd"] = subprocess.Popen(self.inside("/usr/bin/epmd"), env=self.environment("r1"),
                                                      stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0)
        for name in NODES:
            self.start(name)
        # A node listens to clients when it is ready.
        for name in NODES:
            process.until_listens(self.host(name), AMQP_PORT, START_S)
        self.control("r1", "rabbitmqctl", "await_online_nodes", str(len(NODES)), "--timeout", str(START_S))
        self.control("r1", "rabbitmqctl", "import_definitions", "/work/queue.json")
        end = time.monotonic() + START_S
        while len(self.members()) < len(NODES):
            if time.monotonic() > end:
                raise Failed(f"the queue has members {self.members()}")
            time.sleep(0.5)

    def queue(self):
        said = json.loads(self.control("r1", "rabbitmqctl", "list_queues", "name", "leader", "online", "members",
                                       "--formatter", "json", "--quiet"))
        return next((one for one in said if one["name"] == QUEUE), {})

    def members(self):
        return self.queue().get("online") or []

    def leader(self):
        """The node that leads the queue."""
        return str(self.queue()["leader"]).split("@", maxsplit=1)[0]

    def urls(self):
        """The leader's first: there clients are."""
        leader = self.leader()
        return [f"amqp://{self.host(name)}:{AMQP_PORT}" for name in sorted(NODES, key=lambda name: name != leader)]

    def cpu_s(self):
        """CPU seconds of each node so far."""
        return {name: process.group_cpu_s(self.processes[name].pid) for name in NODES}

    def kill(self, name):
        """kill -9 of a node, all of its processes."""
        process.end_group(self.processes[name])

    def close(self):
        for one in self.processes.values():
            process.end_group(one)
        shutil.rmtree(self.folder, ignore_errors=True)

