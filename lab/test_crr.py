"""The experiment with two regions, without a queue manager: positions, backlogs, offered rates, rows and charts."""

import argparse
import contextlib
import io
import pathlib
import tempfile
import types
import unittest

import crr_measure
import crr_published
import crr_report
from crr_measure import BACKLOGS, LADDER, MODES, PAYLOADS, SIZES, Lab, backlog_name, fixed_name, ladder_name, sync_name
from towlab import backlog
from towlab.queue_manager import Failed
from towlab.regions import position


def sample(at, live, before, after, reported, **more):
    """One look: recovery 1 ms before and after live."""
    early, late = (at - 0.001, before), (at + 0.001, after)
    return {"at": at, "live": live, "before": before, "after": after, "recovery": backlog.between(early, late, at),
            "backlog_bytes": reported, "round_trip_us": 40_000, **more}


class Backlogs(unittest.TestCase):
    def test_a_position_is_four_words_of_16_bits(self):
        self.assertEqual(position("<0:1157:41026:59250>"), 0x0000_0485_A042_E772)
        self.assertEqual(position(""), 0)

    def test_a_position_between_two_answers_is_as_if_it_moved_evenly(self):
        self.assertEqual(backlog.between((1.0, 100), (3.0, 200), 1.5), 125)
        self.assertEqual(backlog.between((1.0, 100), (1.0, 100), 1.0), 100)
        self.assertEqual(backlog.between((1.0, 100), (2.0, 200), 5.0), 200)

    def test_what_is_apart_is_judged_by_a_mebibyte_or_a_round_trip_of_traffic(self):
        slow = [sample(0.1 * turn, 1_000_000 * turn, 0, 0, 1_000_000 * turn + 500_000) for turn in range(20)]
        rows = backlog.judged(slow)
        self.assertEqual({row["apart"] for row in rows}, {500_000})
        self.assertEqual({row["allowed"] for row in rows}, {1 << 20}, "10 MB a second, 40 ms: less than 1 MiB")
        fast = [sample(0.1 * turn, 10_000_000 * turn, 0, 0, 10_000_000 * turn + 3_000_000) for turn in range(20)]
        rows = backlog.judged(fast)
        self.assertAlmostEqual(rows[0]["allowed"], 4_000_000)
        self.assertEqual(crr_measure.figures(rows)["outside"], 0)

    def test_a_report_that_is_too_good_counts(self):
        rows = backlog.judged([sample(0.1 * turn, 9_000_000, 0, 0, 0) for turn in range(4)])
        self.assertEqual((crr_measure.figures(rows)["below"], crr_measure.figures(rows)["outside"]), (4, 4))

    def test_an_average_is_weighted_with_time(self):
        samples = [{"at": 0.0, "x": 0}, {"at": 9.0, "x": 100}, {"at": 10.0, "x": 7}]
        self.assertEqual(backlog.weighted(samples, "x"), 10.0)
        self.assertIsNone(backlog.weighted(samples[:1], "x"))

    def test_the_figures_of_an_interval_have_the_published_names(self):
        samples = [sample(float(turn), 0, 0, 0, turn, log_bytes_sent=100 * turn, wire_bytes_sent=10 * turn,
                          log_bytes_received=99 * turn, rebases=0, recovery_lsn="<0:0:0:1>") for turn in range(15)]
        found = backlog.interval(samples, 10.0)
        self.assertEqual(list(found), list(crr_published.SAMPLE))
        self.assertEqual((found["interval"], found["Log bytes sent"], found["Compressed log bytes sent"]), (10.0, 1000, 100))
        self.assertIsNone(found["Log data average compression time"], "the status did not say it")
        self.assertEqual(found["Backlog average bytes"], 8.5)
        samples[-1]["interval"] = {"compression_average_us": 27, "decompression_average_us": 31}
        found = backlog.interval(samples, 10.0)
        self.assertEqual([found[f"Log data average {way} time"] for way in ("compression", "decompression")], [27, 31])


def ladder(top):
    return {**{str(clients): {"pairs": top * min(1.0, clients / 16), "backlog": 0} for clients in LADDER}, "others": 0.0}


def fixed(pairs, active):
    return {"offered": 600.0, "clients": 16, "pairs": pairs, "generator": 20.0, "others": 0.01,
            "processors": {"active": active, "replicas": 0.2, "recovery": 0.3, "network": 0.05},
            "latencies": {name: {"p50": 400, "p99": 4_000} for name in ("put", "pair")}, "log": 4_000, "wire": 1_000, "backlog": 5_000}


def results(rounds):
    """All pieces of a run."""
    done = {}
    for size in SIZES:
        for payload in PAYLOADS:
            done |= {ladder_name(size, payload, mode): ladder(900.0 if mode == "with" else 1000.0) for mode in MODES}
            for turn in range(rounds):
                done[fixed_name(size, payload, "with", turn)] = fixed(598.0, 0.52)
                done[fixed_name(size, payload, "without", turn)] = fixed(600.0, 0.5)
    points = [{"second": 0.0, "reported": 1.0, "true": 1.0, "allowed": 2.0}, {"second": 1.0, "reported": 2.0, "true": 1.0, "allowed": 2.0}]
    for key in BACKLOGS:
        done[backlog_name(*key)] = {
            "samples": 200, "reported_max": 3e6, "true_max": 2e6, "apart_max": 1e6, "unsure_max": 1e4, "allowed": 2e6,
            "outside": 0, "below": 0, "rate": 6e7, "points": points, "others": 0.0,
            "interval": {**crr_published.SAMPLE, "Log data average compression time": None}}
    done["line"] = {"full": {"pairs": 450.0, "line": 0.97, "compressed": 0.95, "log": 0.95, "backlog": 1e7},
                    "cut": {"seconds": 60.0, "noticed_s": 2.1, "link_s": 2.0, "drain_s": 40.0, "line": 0.95, "pairs": 120.0, "worst": 1.5e8,
                            "puts": 7000, "removals": 10, "age_s": 61.0, "changed": False,
                            "alarm": {"raised": 10.1, "cleared": None}, "points": points}, "others": 0.0}
    for turn in range(rounds):
        done[sync_name(40, 1, "off", turn)] = {"commits": 800.0, "p50": 1_000, "p99": 3_000, "state": "off", "alone": 0,
                                               "mean_wait_us": 0.0, "others": 0.0}
        done[sync_name(40, 1, "strict", turn)] = {"commits": 24.0, "p50": 42_000, "p99": 45_000, "state": "in step", "alone": 0,
                                                  "mean_wait_us": 41_000.0, "others": 0.0}
    return done


class Steps(unittest.TestCase):
    def lab(self, only, rounds=2, quick=False, done=None):
        pieces = types.SimpleNamespace(get=lambda name: (done or {}).get(name))
        args = argparse.Namespace(only=only, rounds=rounds, quick=quick, seconds=8.0, cut_seconds=60.0)
        return Lab(args, types.SimpleNamespace(pieces=pieces, work=pathlib.Path("/nowhere")))

    def test_both_ways_alternate_and_the_ladder_comes_first(self):
        named = [name for name, _, _ in self.lab(["fixed"]).steps()]
        self.assertEqual(len(named), 8 + 2 * 8)
        self.assertTrue(all(name.startswith("ladder") for name in named[:8]))
        self.assertEqual(named[8:10], ["fixed 2048 text with #1", "fixed 2048 text without #1"])
        self.assertEqual(named[16:18], ["fixed 2048 text without #2", "fixed 2048 text with #2"])
        self.assertEqual([name for name, _, _ in self.lab(["line"]).steps()], ["line"])

    def test_replies_that_wait_are_measured_beside_those_that_do_not(self):
        named = [name for name, _, _ in self.lab(["sync"]).steps()]
        self.assertEqual(len(named), 2 * 3 * 2 * 2)
        self.assertEqual(named[:2], ["sync 1 ms 1 off #1", "sync 1 ms 1 strict #1"])
        self.assertEqual(named[12:14], ["sync 1 ms 1 strict #2", "sync 1 ms 1 off #2"])

    def test_what_is_offered_is_a_share_of_the_lesser_saturation(self):
        done = results(1)
        self.assertEqual(self.lab(["fixed"], done=done).offered(2048, "text"), (0.6 * 900.0, 128))

    def test_a_run_takes_no_longer_than_was_said(self):
        weight = sum(weight for _, weight, _ in self.lab(list(crr_measure.PARTS), rounds=5).steps())
        self.assertLess(weight, 1200)

    def test_a_piece_that_fails_is_measured_once_more_and_that_is_said(self):
        tries = []

        def fails(times):
            tries.append(times)
            if len(tries) <= times:
                raise Failed("an election")
            return {"pairs": 1}
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(crr_measure.twice("one", lambda: fails(1)), {"pairs": 1, "again": "an election"})
            tries.clear()
            self.assertRaises(Failed, crr_measure.twice, "one", lambda: fails(2))
        tries.clear()
        self.assertEqual(crr_measure.twice("one", lambda: fails(0)), {"pairs": 1})

    def test_processors_are_summed_by_what_instances_are(self):
        cpu = {f"{group} {name}": 1.0 for group in ("west", "east") for name in "abc"} | {"network": 0.5}
        found = crr_measure.by_part(cpu | {"west b": 3.0}, "b", 2.0)
        self.assertEqual(found, {"active": 1.5, "replicas": 1.0, "recovery": 1.5, "network": 0.25})

    def test_a_message_of_before_is_not_the_alarm(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            log.write_text("1970-01-01T00:00:05Z TWL4406W early\n1970-01-01T00:00:20Z TWL4406W late\n")
            self.assertEqual(crr_measure.seconds_of(log, "TWL4406W", 8.0), 12.0)
            self.assertIsNone(crr_measure.seconds_of(log, "TWL4407I", 8.0))


class Report(unittest.TestCase):
    def written(self, only):
        with tempfile.TemporaryDirectory() as folder:
            args = argparse.Namespace(only=only, rounds=2, seconds=8.0, name="crr", backlogs=BACKLOGS)
            rows = crr_report.report(args, results(2), {"processors": "2"}, pathlib.Path(folder))
            return rows, (pathlib.Path(folder) / "crr.html").read_text(encoding="utf-8")

    def test_ratios_are_judged(self):
        rows, _ = self.written(["fixed"])
        judged = {row["metric"]: row for row in rows.rows if row["bar"] and row["test"].endswith("2 KB text")}
        self.assertAlmostEqual(judged["pairs, with : without"]["value"], 598 / 600)
        self.assertTrue(judged["pairs, with : without"]["kept"])
        self.assertTrue(judged["CPU of the live active, with : without"]["kept"])

    def test_the_published_table_stands_beside_ours_and_a_gap_is_said(self):
        rows, page = self.written(["ladder", "backlog"])
        sample = {row["metric"]: row for row in rows.rows if row["test"].startswith("one sample")}
        self.assertEqual(sample["Backlog bytes"]["published"], 462_823_424)
        self.assertEqual(sample["Log bytes sent, each second"]["published"], 62_033_510)
        gap = sample["Log data average compression time"]
        self.assertEqual((gap["value"], gap["published"]), (None, 11))
        self.assertIn("does not say it", gap["note"])
        self.assertIn("1157:41026", sample["Recovery log sequence number"]["note"])
        tuned = [row for row in rows.rows if "1 MiB" in row["test"] and "Threshold" in row["test"] and row["published"]]
        self.assertEqual([row["published"] for row in tuned], [14])
        self.assertIn("growing number of clients", page)

    def test_what_a_wait_costs_stands_beside_a_run_without_it(self):
        rows, _ = self.written(["sync"])
        found = {row["metric"]: row for row in rows.rows if row["test"].startswith("sync_replication, 40 ms, 1 clients")}
        self.assertAlmostEqual(found["commits, strict : off"]["value"], 24 / 800)
        self.assertAlmostEqual(found["commit p50, strict less off"]["value"], 41.0)
        self.assertTrue(found["not in step at the end, or alone meanwhile"]["kept"])

    def test_an_alarm_that_did_not_clear_is_not_kept(self):
        rows, _ = self.written(["line"])
        judged = {row["metric"]: row["kept"] for row in rows.rows if row["bar"]}
        self.assertFalse(judged["RPO alarm rose and cleared"])
        self.assertTrue(judged["used by compressed log"])
        self.assertTrue(judged["roles or histories changed"])


if __name__ == "__main__":
    unittest.main()
