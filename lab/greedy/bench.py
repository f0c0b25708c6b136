"""What a case works with: a queue manager with a fresh data folder, its queues, and clients that go at the end.

Sizes come from the knobs of the run: `depth` messages, `many` connections, links or queues, `large_bytes` of one body.
Not here: the probes, which run in other processes.
"""

import contextlib
import shutil
import subprocess

from greedy.client import Greedy, until
from greedy.producer import Producer
from towlab.probe import USUAL, niceness
from towlab.queue_manager import Failed, QueueManager

DEEP = "DEEP"
# Of a body where only their number matters.
SIZE_BYTES = 128
FILLERS = 4


class Bench:
    """A queue manager, under way from `start` to the end of the `with`."""

    def __init__(self, args, folder, say=lambda text: None):
        self.args, self.folder, self.say = args, folder, say
        self.binary = str(args.towline)
        self.depth, self.many, self.seconds = args.depth, args.many, args.seconds
        self.large_bytes = args.megabytes * 1_000_000
        self.manager, self.stack = None, contextlib.ExitStack()
        # The one that the probes use, where that is another one on the same machine: the control.
        self.apart = None
        # Shown through FUSE: even to find its sockets takes long.
        self.has_slow_folder = False

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_):
        try:
            self.stack.close()
        finally:
            for manager in (self.manager, self.apart):
                if manager is not None:
                    manager.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def data(self):
        """The data folder, where the control socket is."""
        return self.manager.folder

    def start(self, options=(), **more):
        """Starts a single queue manager."""
        # Also within what gives way to it.
        with niceness(USUAL):
            self.manager = QueueManager(self.binary, self.folder / "data", self.folder / "log", more=options, **more)

    def start_apart(self):
        """Starts a queue manager that no greedy client uses."""
        with niceness(USUAL):
            self.apart = QueueManager(self.binary, self.folder / "apart", self.folder / "apart-log")

    def restart(self):
        """Ends it in order, and starts it again."""
        self.manager.stop()
        self.start()

    def on_end(self, function, *arguments):
        """What is to be ended before the queue manager is."""
        self.stack.callback(function, *arguments)

    # Clients.

    def peer(self, name, **options):
        """A client that goes at the end."""
        peer = Greedy(self.manager.url, name, **options)
        self.on_end(peer.close)
        return peer

    def begin(self, *arguments):
        """A command under way; it is ended with the case."""
        self.say(" ".join(arguments[:2]))
        running = subprocess.Popen([self.binary, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)

        def end():
            if running.poll() is None:
                running.kill()
            running.wait()
        self.on_end(end)
        return running

    def towline(self, *arguments, text=None):
        """A command, done; what it printed."""
        done = subprocess.run([self.binary, *arguments], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"towline {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def mqsc(self, *commands):
        """Commands of administration, over the local socket."""
        return self.towline("mqsc", "--data", str(self.data), "--timeout", "300", text="\n".join(commands) + "\n")

    # Messages.

    def fill(self, queue=DEEP, count=None, persistent=False, size=SIZE_BYTES):
        """Puts so many messages, `depth` unless given."""
        count = self.depth if count is None else count
        self.say(f"puts {count:,} messages")
        clients = min(FILLERS, count)
        kind = "--persistent" if persistent else "--non-persistent"
        self.manager.load("put", "--clients", str(clients), "--queue", queue, "--count", str(count), "--size",
                          str(size), "--window", "1000", "--seconds", "86400", kind)

    def fill_with(self, payload, count=None, queue=DEEP):
        """Puts messages of these bytes (frames.message), with a number in each where the bytes have a place for it."""
        count = self.depth if count is None else count
        self.say(f"puts {count:,} messages")
        with contextlib.closing(Greedy(self.manager.url, "fill")) as peer:
            Producer(peer, queue, payload).put(count)
            until(f"{count:,} messages", lambda: self.depth_of(queue) >= count)

    def depth_of(self, queue):
        """Messages in a queue, without asking for the status of all."""
        return self.number_of(f"QLOCAL('{queue}')", "CURDEPTH")

    def uncommitted_in(self, queue):
        return self.number_of(f"QSTATUS('{queue}')", "UNCOM")

    def number_of(self, what, attribute):
        said = self.mqsc(f"DISPLAY {what} {attribute}")
        return int(said.split(f"{attribute}(", 1)[1].split(")", 1)[0])
