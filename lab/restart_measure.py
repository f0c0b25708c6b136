"""The states of the restart experiment, made and killed and started again, one round at a time.

How rounds are made equal: a killed queue manager that was measured goes on; what it has more than it should is got
(oldest first), an image is taken, the same number of messages is committed after it, and it is killed again. So
every round starts from an image of the same depth with a tail of the same length. Not here: what the rounds mean
(restart_report.py).
"""

import contextlib
import shutil
import threading
import time

from towlab.getter import Getters, Units
from towlab.queue_manager import Failed, drop_page_cache
from towlab.slow_disk import SlowDisk
from towlab.stage import Stage

# Without `towline image` the background has so long to take one by itself.
WAIT_FOR_IMAGE_S = 3
# Messages of one unit: MAXUMSGS by default.
UNIT_MESSAGES = 10_000
ROUND_TRIPS_PER_S = 2_500
# Data folders; one at a time is on the disk.
FOLDERS = ("queues", "load", "one", "grow")


def name_of(kind, depth, delay, turn):
    """Name of a piece; `delay` in ms, None for the disk itself."""
    slow = "" if delay is None else f" +{delay:g} ms"
    return f"{kind} {depth}{slow} #{turn + 1}"


class Lab:
    """Knows which steps there are, and holds the stage that is in use."""

    def __init__(self, args, work):
        self.args, self.work = args, work
        self.stage = None
        self.say = lambda text: None

    def steps(self):
        """All steps in order: name, weight (about seconds), function that gives a JSON object."""
        args, steps = self.args, []
        delays = [None, *(args.delays if args.slow_disk else [])]
        fast = [None, *(delay for delay in delays if delay)]
        if "undo" in args.only:
            steps += self.undo_steps()
        if "load" in args.only:
            steps += [self.kill_step("load", 10, delay, turn, self.load_round)
                      for delay in fast for turn in range(args.rounds)]
        depths = args.depths if "kill" in args.only else []
        images = self.images_steps() if "images" in args.only else []
        steps += images if not depths or args.image_depth < depths[0] else []
        for depth, deeper in zip(depths, [*depths[1:], float("inf")]):
            steps += [self.kill_step("kill", depth, delay, turn, self.kill_round)
                      for delay in delays for turn in range(args.rounds)]
            # At the depth where it fits, because queues are filled quicker than emptied.
            steps += images if depth <= args.image_depth < deeper else []
        if "one" in args.only:
            steps += [self.kill_step("one", depth, None, turn, self.one_round)
                      for depth in (0, args.one_queue_depth) for turn in range(args.rounds)]
        if "grow" in args.only:
            steps.append(("grow", args.grow_gb * 10, self.grow))
        return steps

    def undo_steps(self):
        args = self.args
        return [(name_of("undo", count, None, turn), 6 + count / 20_000,
                 lambda count=count: self.undo_round(count))
                for turn in range(args.rounds) for count in (0, args.uncommitted)]

    def images_steps(self):
        args = self.args
        return [(name_of("images", args.image_depth, None, turn), 2 * args.image_seconds + 10,
                 lambda turn=turn: self.images_round(turn)) for turn in range(args.rounds)]

    def kill_step(self, kind, depth, delay, turn, measure):
        weight = 6 + depth * self.args.queues / 1e6 + (depth * self.args.queues / 5e4 if turn == 0 and not delay else 0)
        return name_of(kind, depth, delay, turn), weight, lambda: measure(depth, delay)

    def use(self, name, queues):
        """The stage of this name; the data of another one is removed first, also of a run that was ended."""
        if self.stage is None or self.stage.folder.name != name:
            if self.stage is not None:
                self.stage.remove()
            for other in set(FOLDERS) - {name}:
                shutil.rmtree(self.work / other, ignore_errors=True)
            self.stage = Stage(self.args.towline, self.work, name, queues, self.args.size)
        return self.stage

    def ten_queues(self, name):
        return self.use(name, [f"Q{number}" for number in range(self.args.queues)])

    def close(self, keep):
        """Ends what runs, removes data unless asked to keep it."""
        if self.stage is not None:
            self.stage.kill()
        if keep:
            return
        if self.stage is not None:
            self.stage.remove()
        shutil.rmtree(self.work / "mount", ignore_errors=True)

    # The states.

    def kill_round(self, depth, delay):
        """One uncommitted message in each queue, image, messages committed after it, kill."""
        return self.killed(self.ten_queues("queues"), depth, delay, units=(1, 1))

    def undo_round(self, count):
        """The same on empty queues, with many uncommitted messages or none."""
        stage = self.ten_queues("queues")
        each = count // len(stage.queues)
        units = max(1, each // UNIT_MESSAGES)
        return self.killed(stage, 0, None, units=(units, each // units) if each else None)

    def one_round(self, depth, delay):
        """One queue, as peers were measured."""
        return self.killed(self.use("one", ["ONE"]), depth, delay, units=None)

    def killed(self, stage, depth, delay, units):
        manager = stage.level(depth, self.say)
        self.say("prepares the kill")
        held = self.held(stage, manager, units) if units else None
        image_s = manager.image()
        if image_s is None:
            time.sleep(WAIT_FOR_IMAGE_S)
        stage.put(stage.queues, self.args.tail)
        before = manager.memory()
        disk_bytes = stage.disk_bytes()
        stage.kill()
        if held:
            held.close()
        expected = depth * len(stage.queues) + self.args.tail - len(stage.queues)
        found = self.measured(stage, delay, expected)
        return {**found, "image_s": image_s, "resident_before": before["VmRSS"],
                "resident_before_max": before["VmHWM"], "disk_bytes": disk_bytes}

    def held(self, stage, manager, units):
        """Units of work that stay open, and are known to be: (units of a queue, messages of a unit)."""
        held = Units(manager.url, stage.queues, *units, stage.size)
        found = sum(queue["uncommitted"] for queue in manager.status()["queues"])
        wanted = len(stage.queues) * units[0] * units[1]
        if found != wanted:
            raise Failed(f"{found} uncommitted messages where {wanted} were put")
        return held

    def load_round(self, depth, delay):
        """Killed under load: round trips at a steady rate on queues of their own."""
        stage = self.ten_queues("load")
        manager = stage.level(depth, self.say)
        image_s = manager.image()
        self.say("loads")
        load = manager.begin_load("requester", "--clients", "10", "--queue", "L%d", "--queues", "10", "--rate",
                                  str(ROUND_TRIPS_PER_S), "--size", str(stage.size), "--persistent", "--seconds",
                                  "3600", "--threads", "1")
        began, before = time.monotonic(), pairs(manager)
        gets = 0
        while gets < self.args.load_seconds * ROUND_TRIPS_PER_S and load.poll() is None:
            if time.monotonic() - began > 10 * self.args.load_seconds:
                break
            time.sleep(0.2)
            gets = pairs(manager) - before
        rate = gets / (time.monotonic() - began)
        stage.kill()
        load.kill()
        load.communicate()
        return {**self.measured(stage, delay, None), "image_s": image_s, "rate": rate}

    def measured(self, stage, delay, expected):
        """Drops the page cache, starts, gets one message from each queue. `expected`: messages left after that."""
        getters = Getters(stage.queues)
        with contextlib.ExitStack() as stack:
            slow = None
            if delay is not None:
                slow = SlowDisk(self.args.slow_disk, stage.folder, self.work / "mount", delay)
                stack.callback(slow.close)
                # The disk itself prepares the next round.
                stack.callback(stage.kill)
            drop_page_cache()
            self.say("starts")
            manager = stage.start(slow.mount if slow else None)
            came = getters.wake(manager.url)
            read = manager.read()
            operations = slow.counts() if slow else None
            result = {"ready_s": manager.ready - manager.began, "first_s": max(came.values()) - manager.began,
                      "resident_at_ready": manager.resident_at_ready, "read_at_ready": manager.read_at_ready,
                      "read": read, "operations": operations, "resident_after_get": manager.resident_bytes()}
            getters.accept()
            status = manager.status()
            result["phases"] = status.get("restart")
            if expected is not None:
                result["missing"] = expected - sum(manager.depths(stage.queues).values())
        return result

    # Images and growth.

    def images_round(self, turn):
        """The same load with images back to back, and without; which goes first changes each round."""
        stage = self.ten_queues("queues")
        manager = stage.level(self.args.image_depth, self.say)
        if manager.image() is None:
            return {"no_image_command": True}
        result = {}
        for images in ((True, False), (False, True))[turn % 2]:
            self.say("load with images" if images else "load without images")
            result["with" if images else "without"] = self.load_beside_images(manager, images)
        return result

    def load_beside_images(self, manager, images):
        done, taken = threading.Event(), []

        def take():
            while not done.is_set():
                taken.append(manager.image())

        taker = threading.Thread(target=take)
        if images:
            taker.start()
        try:
            found = manager.load("requester", "--clients", "10", "--queue", "L%d", "--queues", "10", "--size",
                                 str(self.args.size), "--persistent", "--prefetch", "0", "--warmup", "1", "--seconds",
                                 str(self.args.image_seconds), "--allow-duplicates")
        finally:
            done.set()
            if images:
                taker.join()
        p99 = {row["of"]: row["p99"] for row in found["latencies_us"]}
        return {"put_p99_us": p99.get("put"), "get_p99_us": p99.get("get"), "pair_p99_us": p99.get("pair"),
                "pairs_per_s": found["pairs"]["per_second"], "images": len(taken), "image_s": taken}

    def grow(self):
        """Puts into one queue that only grows; puts per second, second by second."""
        stage = self.use("grow", ["GROW"])
        stage.remove()
        manager = stage.running()
        count = int(self.args.grow_gb * 1e9 / self.args.size)
        path = self.work / "grow.csv"
        self.say(f"puts {count:,} messages")
        manager.load("put", "--clients", "10", "--queue", "GROW", "--count", str(count), "--size",
                     str(self.args.size), "--persistent", "--seconds", "86400", "--csv", str(path))
        lines = path.read_text().splitlines()[1:]
        path.unlink()
        return {"puts_per_s": [int(line.split(",")[1]) for line in lines],
                "resident": manager.resident_bytes(), "resident_max": manager.memory()["VmHWM"]}


def pairs(manager):
    """Round trips on the queues of the load so far: their gets."""
    return sum(queue["gets"] for queue in manager.status()["queues"] if queue["name"].startswith("L"))
