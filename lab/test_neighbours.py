"""The parts of the neighbours experiment that need no queue manager: frames, cases, rows, the table, the probes."""

import argparse
import json
import pathlib
import socket
import struct
import tempfile
import threading
import unittest
import unittest.mock
import xml.etree.ElementTree as tree

import neighbours_measure
import neighbours_report
from greedy import cases, frames, sharing
from greedy.bench import Bench
from greedy.case import part, temporary
from greedy.client import Greedy, Unit
from greedy.crowd import Crowd
from greedy.producer import Producer
from neighbours_measure import finish, name_of
from towlab import chart, probe, status_probe, wire
from towlab.getter import Broken
from towlab.queue_manager import Failed
from towlab.rows import Rows


def decoded(raw):
    """The performatives of frames, without protocol headers."""
    reader = wire.Frames()
    return reader.feed(raw)


class Frames(unittest.TestCase):
    def test_a_batch_numbers_its_deliveries_tags_and_messages_and_nothing_else(self):
        payload = frames.message(b"body", correlation=frames.NUMBER)
        for settled, unit in ((True, None), (False, b"u")):
            raw = bytes(frames.Batch(3, payload, 5, settled, unit).numbered(70, 2, number=12_345))
            one, two = (frames.transfer(3, delivery, payload.replace(frames.NUMBER, b"%08d" % number), settled, unit)
                        for delivery, number in ((70, 12_345), (71, 12_346)))
            self.assertEqual(raw, one + two)

    def test_a_large_message_is_whole_in_its_frames_and_only_the_last_ends_it(self):
        for size in (10, frames.PIECE_BYTES, frames.PIECE_BYTES + 1, 3 * frames.PIECE_BYTES - 5):
            payload = bytes(range(256)) * (size // 256 + 1)
            pieces = frames.large(0, 7, payload[:size])
            found = [(fields, len(piece)) for piece in pieces for _, fields in decoded(piece)]
            self.assertEqual([wire.field(fields, 5) for fields, _ in found], [True] * (len(pieces) - 1) + [False])
            self.assertTrue(all(length <= 65_536 for _, length in found))
            self.assertEqual(b"".join(body_of(piece) for piece in pieces), payload[:size])

    def test_a_selector_stands_in_the_filter_of_a_source(self):
        (code, fields), = decoded(frames.consumer(2, "Q", selector="a = 1"))
        self.assertEqual((code, fields[1], fields[2]), (wire.ATTACH, 2, True))
        source = fields[5][1]
        self.assertEqual(source[0], b"Q")
        self.assertIn(b"apache.org:selector-filter:string", source[7])
        self.assertIn(b"a = 1", source[7])

    def test_a_queue_of_its_own_a_browser_and_settled_in_advance_are_asked_for(self):
        own = decoded(frames.consumer(0, None))[0][1]
        self.assertEqual((own[5][1][0], own[5][1][4]), (None, True))
        self.assertEqual(decoded(frames.consumer(0, "Q", browse=True))[0][1][5][1][6], b"copy")
        self.assertEqual(decoded(frames.consumer(0, "Q", in_advance=True))[0][1][3], 1)

    def test_a_tally_counts_frames_that_come_in_pieces(self):
        raw = wire.AMQP_HEADER + b"".join(frames.transfer(0, number, frames.message(b"x")) for number in range(3))
        raw += frames.credit(0, 0, 1)
        for size in (1, 7, len(raw)):
            tally = frames.Tally()
            came = sum(tally.feed(raw[at:at + size]) for at in range(0, len(raw), size))
            self.assertEqual((came, tally.counts), (3, {wire.TRANSFER: 3, wire.FLOW: 1}))


def body_of(piece):
    """What stands behind the performative of a frame."""
    _, end = wire.decode(piece, 8)
    return piece[end:]


class Answering:
    """A socket whose other end answers with prepared bytes, one for each send that it reads."""

    def __init__(self, answers):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://127.0.0.1:{self.socket.getsockname()[1]}"
        self.answers, self.read = list(answers), []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        one, _ = self.socket.accept()
        with one:
            for answer in self.answers:
                self.read.append(one.recv(1 << 20))
                one.sendall(answer)
            while one.recv(1 << 20):
                pass

    def close(self):
        self.thread.join()
        self.socket.close()


BEGUN = wire.frame(wire.described(wire.BEGIN, wire.NULL, wire.uint(0), wire.uint(9), wire.uint(9)))


def attached(name, handle):
    return wire.frame(wire.described(wire.ATTACH, wire.text(name), wire.uint(handle), wire.TRUE))


def granted(handle, delivered, credit):
    return frames.credit(handle, delivered, credit)


def declared(unit):
    state = wire.described(wire.DECLARED, wire.binary(unit))
    return wire.frame(wire.described(wire.DISPOSITION, wire.TRUE, wire.uint(0), wire.NULL, wire.TRUE, state))


class Clients(unittest.TestCase):
    def test_a_producer_sends_only_what_its_credit_allows_whatever_the_other_side_calls_the_link(self):
        server = Answering([BEGUN, attached("put-0-0", 5) + granted(9, 0, 100) + granted(5, 0, 2), granted(5, 2, 2)])
        try:
            peer = Greedy(server.url, "test")
            Producer(peer, "Q", frames.message(b"x")).put(4)
            peer.close()
        finally:
            server.close()
        self.assertEqual(len(decoded(server.read[2])), 2)

    def test_units_and_puts_of_a_session_share_their_delivery_numbers(self):
        server = Answering([BEGUN, granted(0, 0, 100), declared(b"u1"), attached("put-0-0", 1) + granted(1, 0, 10)])
        try:
            peer = Greedy(server.url, "test")
            unit = Unit(peer)
            self.assertEqual(unit.declare(), b"u1")
            Producer(peer, "Q", frames.message(b"x"), unit=b"u1").put(3)
            self.assertEqual(peer.number(), 4)
            peer.close()
        finally:
            server.close()

    def test_a_crowd_dials_again_where_it_is_closed_before_it_is_there(self):
        server = socket.create_server(("127.0.0.1", 0))

        def serve():
            for turn in range(4):
                one, _ = server.accept()
                one.recv(1 << 16)
                if turn:
                    one.sendall(BEGUN)
                    kept.append(one)
                else:
                    one.close()

        kept = []
        thread = threading.Thread(target=serve)
        thread.start()
        crowd = Crowd(f"amqp://127.0.0.1:{server.getsockname()[1]}", 3)
        crowd.come()
        self.assertEqual((len(crowd.here), crowd.tries), (3, 4))
        crowd.go()
        thread.join()
        for one in (*kept, server):
            one.close()

    def test_shares_count_what_came_to_each(self):
        pairs = [socket.socketpair() for _ in range(2)]
        peers = []
        for ours, _ in pairs:
            peer = argparse.Namespace(socket=ours, tally=frames.Tally())
            peer.tally.headers = 0
            peers.append(peer)
        for (_, theirs), count in zip(pairs, (1, 3)):
            theirs.sendall(frames.transfer(0, 0, frames.message(b"x")) * count)
        self.assertEqual(sharing.taken_by(peers, 0.05), [1, 3])
        for one in (one for pair in pairs for one in pair):
            one.close()


class Cases(unittest.TestCase):
    def test_names_are_unique_and_words_are_filled_in(self):
        args = argparse.Namespace(depth=1_000_000, many=10_000, megabytes=100)
        self.assertEqual(len({case.name for case in cases.ALL}), len(cases.ALL))
        for case in cases.ALL:
            self.assertNotIn("{", case.words(args))
        self.assertEqual((temporary(10_000), part(1_000_000), temporary(1), part(1)), (4_000, 300_000, 1, 1))

    def test_the_promise_names_at_least_these(self):
        wanted = """selector selector-persistent selector-ten selector-release selector-rollback large large-persistent commit
            rollback lost sync-50 sync-200 sync-2000 window-zero unread display-conn temporary clear clear-persistent purge
            keyed keyed-restart status display-queue reject sessions links browse expiry connections backup image copy
            share-consumers share-producers""".split()
        self.assertLessEqual(set(wanted), {case.name for case in cases.ALL})

    def test_a_word_means_the_case_and_those_that_begin_with_it(self):
        names = [case.name for case in cases.chosen(["clear", "sync-50"])]
        self.assertEqual(names, ["clear", "clear-persistent", "sync-50"])
        self.assertEqual(len(cases.chosen([])), len(cases.ALL))
        self.assertRaises(ValueError, cases.chosen, ["sel"])

    def test_a_case_stops_once_and_may_return_figures(self):
        def case():
            yield
            return {"a": 1}

        def stops_twice():
            yield
            yield
        for made, found in ((case, {"a": 1}), (lambda: iter([None]), None)):
            act = made()
            next(act)
            self.assertEqual(finish(act), found)
        act = stops_twice()
        next(act)
        self.assertRaises(AssertionError, finish, act)

    def test_a_bench_ends_clients_before_the_queue_manager_and_removes_its_folder(self):
        ended = []
        with tempfile.TemporaryDirectory() as folder:
            args = argparse.Namespace(towline="t", depth=1, many=1, seconds=1, megabytes=1)
            with Bench(args, pathlib.Path(folder) / "now") as bench:
                bench.on_end(ended.append, "client")
                bench.manager = argparse.Namespace(kill=lambda: ended.append("manager"))
                bench.apart = argparse.Namespace(kill=lambda: ended.append("the control's"))
            self.assertFalse(bench.folder.exists())
        self.assertEqual(ended, ["client", "manager", "the control's"])

    def test_the_control_probes_the_queue_manager_that_the_greedy_client_does_not_use(self):
        probed = []

        class Stops(Exception):
            pass

        def probes(manager, control):
            probed.append((manager, control))
            raise Stops
        bench = argparse.Namespace(manager="greedy", apart="apart", has_slow_folder=True)
        lab = neighbours_measure.Lab(argparse.Namespace(), ".")
        with unittest.mock.patch.object(neighbours_measure, "Probes", probes):
            self.assertRaises(Stops, lab.window, bench, lambda: None)
            bench.apart = None
            self.assertRaises(Stops, lab.window, bench, lambda: None)
        self.assertEqual([(manager, bool(control)) for manager, control in probed], [("apart", True), ("greedy", False)])


def window(p999_ms, status_s, grown=0, failures=()):
    """What probes found."""
    puts = {"p50_ms": 0.5, "p99_ms": 0.6, "p999_ms": p999_ms, "max_ms": p999_ms, "count": 2000, "refused": 0, "lost": 0,
            "reconnects": 0, "unfinished": 0}
    return {"persistent": puts, "non-persistent": puts,
            "status": {"control": [0.001, status_s], "amqp": [0.002], "login": [0.01], "failures": list(failures),
                       "resident_first": 100 << 20, "resident_most": (100 << 20) + grown}}


def round_of(idle_ms, beside_ms, status_s=0.01, grown=0, own=None, failures=()):
    return {"idle": window(idle_ms, 0.01), "beside": window(beside_ms, status_s, grown, failures), "took_s": 1.0,
            "own": own or {}, "others": 0.1}


class Report(unittest.TestCase):
    args = argparse.Namespace(depth=1000, many=10, megabytes=1, seconds=1.0, rounds=1, name="n", only=[], apart=False)

    def verdicts(self, name, *rounds):
        rows, case = Rows(), next(case for case in cases.ALL if case.name == name)
        args = argparse.Namespace(**{**vars(self.args), "rounds": max(1, len(rounds))})
        done = {name_of(case, turn): one for turn, one in enumerate(rounds)}
        neighbours_report.case_rows(rows, args, done, case)
        return {row["metric"]: (row["value"], row["kept"]) for row in rows.rows}

    def test_a_put_is_held_against_the_idle_neighbour_of_its_round(self):
        found = self.verdicts("selector", round_of(3.0, 22.0), round_of(1.0, 31.0), round_of(50.0, 69.5))
        self.assertEqual(found[neighbours_report.MORE["persistent"]], (19.5, True))
        found = self.verdicts("selector", round_of(3.0, 23.5))
        self.assertEqual(found[neighbours_report.MORE["non-persistent"]], (20.5, False))

    def test_one_late_status_is_one_too_many(self):
        found = self.verdicts("clear", round_of(1.0, 1.0, status_s=0.21))
        self.assertEqual(found[neighbours_report.STATUS["control"]], (0.21, False))
        self.assertEqual(found[neighbours_report.STATUS["amqp"]], (0.002, True))

    def test_memory_has_a_bar_only_where_one_connection_is_greedy(self):
        grown = round_of(1.0, 1.0, grown=65 << 20)
        self.assertEqual(self.verdicts("window-zero", grown)[neighbours_report.MEMORY], (65.0, False))
        self.assertEqual(self.verdicts("connections", grown)[neighbours_report.MEMORY], (65.0, None))

    def test_a_probe_that_shares_a_slow_disk_has_no_bar(self):
        found = self.verdicts("sync-200", round_of(200.0, 900.0))
        self.assertEqual(found[neighbours_report.MORE["persistent"]], (700.0, None))
        self.assertEqual(found[neighbours_report.MORE["non-persistent"]], (700.0, False))

    def test_an_answer_that_does_not_come_and_a_small_share_are_not_kept(self):
        found = self.verdicts("share-consumers", round_of(1.0, 1.0, own={"share": 0.01}, failures=["amqp: timed out"]))
        self.assertEqual(found[neighbours_report.HARM], (1, False))
        self.assertEqual(found[neighbours_report.SHARE], (0.01, False))

    def test_a_case_that_did_not_go_through_is_a_bar_not_kept(self):
        self.assertEqual(self.verdicts("copy", {"failed": "Failed: x", "others": 0.1}),
                         {neighbours_report.FAILED: (0, False)})
        self.assertEqual(self.verdicts("copy"), {})

    def test_the_report_is_written_and_its_charts_are_whole(self):
        done = {name_of(case, 0): round_of(1.0, 5.0) for case in cases.ALL[1:]}
        with tempfile.TemporaryDirectory() as folder:
            rows = neighbours_report.report(self.args, done, {"processors": 2}, pathlib.Path(folder))
            self.assertEqual(json.loads((pathlib.Path(folder) / "n.json").read_text()), rows.rows)
            self.assertLess((pathlib.Path(folder) / "n.json").stat().st_size, 256 * 1024)
            self.assertIn("of", (pathlib.Path(folder) / "n.html").read_text())
        for text in neighbours_report.charts(self.args, rows, cases.ALL):
            self.assertEqual(tree.fromstring(text).tag, "figure")

    def test_the_table_replaces_the_one_before_and_marks_what_is_above_its_bar(self):
        done = {"selector #1": round_of(1.0, 51.0), "copy #1": {"failed": "x", "others": 0.1}}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            path.write_text("before\n<!-- table -->\nold\n<!-- end of table -->\nbehind\n")
            for _ in range(2):
                neighbours_report.write_page(self.args, done, path)
            text = path.read_text()
            self.assertEqual((text.count("`selector`:"), text.count("old")), (1, 0))
            self.assertIn("| **50** | **50** | 0.01 | 0 |", text)
            self.assertIn("did not go through", text)
            self.assertTrue(text.startswith("before\n") and text.endswith("<!-- end of table -->\nbehind\n"))
            path.write_text("no place")
            self.assertRaises(SystemExit, neighbours_report.write_page, self.args, done, path)


class Levels(unittest.TestCase):
    def test_values_at_or_below_zero_and_none_are_drawn_without_length(self):
        text = chart.levels("t", "ms", [("a", {"x": -3.0, "y": 0}), ("b", {"x": None, "y": 500.0})], 20)
        self.assertEqual(tree.fromstring(text).tag, "figure")
        self.assertIn("promised: 20", text)
        self.assertEqual(chart.levels("t", "ms", [("a", {"x": None})], 20), "")


class ProbeFigures(unittest.TestCase):
    def test_latencies_are_those_of_puts_and_what_went_wrong_is_counted(self):
        report = {"latencies_us": [{"of": "put", "p50": 500, "p99": 900, "p999": 1500, "max": 2000, "count": 9}],
                  "refused": 1, "verdict": {"lost": 2}, "reconnects": 3, "unfinished": 4}
        found = probe.put_figures("persistent", json.dumps(report), "")
        self.assertEqual((found["p999_ms"], found["refused"], found["lost"], found["reconnects"]), (1.5, 1, 2, 3))

    def test_probes_that_do_not_come_about_leave_no_process_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder) / "towline"
            binary.write_text("#!/bin/sh\n[ $1 = load ] && echo no such queue >&2\nexit 1\n")
            binary.chmod(0o755)
            manager = argparse.Namespace(binary=str(binary), folder=folder, url="amqp://127.0.0.1:1",
                                         process=argparse.Namespace(pid=0))
            children = pathlib.Path(f"/proc/self/task/{threading.get_native_id()}/children")
            before = children.read_text()
            with self.assertRaisesRegex(Failed, "the persistent probe puts nothing: no such queue"):
                probe.Probes(manager)
            self.assertEqual(children.read_text(), before)

    def test_a_probe_without_latencies_says_why(self):
        with self.assertRaisesRegex(Failed, "refused: no such"):
            probe.put_figures("persistent", "", "refused: no such queue")

    def test_a_status_that_fails_is_counted_with_the_time_that_it_took(self):
        asked = threading.Event()

        def ask():
            asked.set()
            raise Broken("closed")

        one = status_probe.Probe("", "amqp://127.0.0.1:1", 0)
        one.threads = [threading.Thread(target=one.ask_again, args=("login", ask))]
        found = one.run(asked.wait)
        self.assertEqual(found["failures"][0], "login: closed")
        self.assertEqual(len(found["login"]), len(found["failures"]))

    def test_the_request_for_a_status_is_one_frame(self):
        raw = status_probe.request()
        self.assertEqual(struct.unpack_from(">I", raw)[0], len(raw))
        self.assertIn(b"$admin", raw)


if __name__ == "__main__":
    unittest.main()
