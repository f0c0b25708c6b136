"""The proxies of the test kit that delay, narrow and cut (tests/e2e, `slow-net`), as one process. Not here: what is behind them.

Orders are lines of text (tests/e2e/src/slow_net/command.rs); bytes of both ways are counted there.
"""

import json
import pathlib
import subprocess

from towlab.process import cpu_and_group
from towlab.queue_manager import Failed


class SlowNet:
    """Proxies for pairs of an address to listen on and one to connect to."""

    def __init__(self, binary, pairs):
        self.process = subprocess.Popen([str(binary), *(f"{front}={behind}" for front, behind in pairs)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
        if not self.process.stdout.readline().startswith("listening"):
            raise Failed("slow-net does not listen")

    def order(self, line):
        """Gives an order to all of them, or to one (`N: ORDER`); the answer."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            raise Failed(f"slow-net, {line}: {answer or 'it ended'}")
        return answer

    def passed(self, proxies):
        """Bytes that went to the targets of these proxies so far, TLS and all."""
        return sum(json.loads(self.order(f"{number}: show"))["bytes_there"] for number in proxies)

    def cpu_s(self):
        """CPU seconds so far."""
        return cpu_and_group(pathlib.Path(f"/proc/{self.process.pid}/stat").read_text())[0]

    def close(self):
        """Ends it, and with it all connections."""
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
