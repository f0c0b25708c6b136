"""The parts of the lab that need no queue manager: bytes, pieces, rows, charts. `python3 -m unittest discover lab`."""

import argparse
import contextlib
import io
import pathlib
import random
import tempfile
import unittest
import xml.etree.ElementTree as tree

import builds
import restart_report
from restart import numbers
from restart_measure import name_of
import failover_report
import group_report
import steady
from towlab import chart, getter, page, process, recovery, wire
from towlab.campaign import Campaign
from towlab.pieces import Pieces
from towlab.rows import Rows, kept


class Builds(unittest.TestCase):
    def test_a_ratio_is_of_medians_and_new_by_old(self):
        samples = {"old": [1.0, 10.0, 2.0], "new": [4.0, 3.0, 100.0]}
        both = {build: [{"per_second": value, "cpu_us": value} for value in values] for build, values in samples.items()}
        row = builds.rows({"pairs": both})[0]
        self.assertEqual(row["per_second"], {"old": 2.0, "new": 4.0, "ratio": 2.0})
        self.assertIn("| pairs | 2 | 4 | 2.00 |", builds.shown([row]))

    def test_an_operation_is_done_when_it_was_got(self):
        self.assertEqual(builds.rate({"puts": {"per_second": 5.0}, "gets": {"per_second": 3.0}}), 3.0)
        self.assertEqual(builds.rate({"puts": {"per_second": 5.0}}), 5.0)


class Run(unittest.TestCase):
    def test_a_run_that_was_ended_goes_on_and_leaves_only_its_results(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "program").write_text("x")
            done = []

            def fails():
                raise KeyboardInterrupt

            def run(second):
                campaign = Campaign(argparse.Namespace(name="n", towline=root / "program", keep=False), root)
                campaign.load({"binary": "b"})
                campaign.measure([("one", 1, lambda: done.append("one")), ("two", 1, second)])
                return campaign

            def report(args, pieces, described, _):
                self.assertEqual((args.name, sorted(pieces)), ("n", ["one", "two"]))
                self.assertEqual((described["binary"], described["share"]), ("b", "all"))
                return Rows()

            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()) as printed:
                self.assertRaises(KeyboardInterrupt, run, fails)
                campaign = run(lambda: done.append("two"))
                self.assertEqual(pathlib.Path(campaign.args.towline).parent, campaign.work)
                campaign.publish(report, "Quiet.", share="all")
            self.assertEqual(done, ["one", "two"])
            self.assertIn("\nQuiet.\n", printed.getvalue())
            self.assertFalse(campaign.work.exists())


class Wire(unittest.TestCase):
    def test_frames_that_come_in_pieces_are_whole_again(self):
        raw = wire.SASL_HEADER + wire.frame(wire.described(wire.SASL_OUTCOME, wire.ubyte(0)), sasl=True)
        raw += wire.AMQP_HEADER + wire.accept(3, 7, settled=True) + wire.more_credit(1, 5, 9)
        frames, found = wire.Frames(), []
        for place in range(len(raw)):
            found += frames.feed(raw[place:place + 1])
        self.assertEqual([code for code, _ in found], [wire.SASL_OUTCOME, wire.DISPOSITION, wire.FLOW])
        self.assertEqual(found[1][1][:4], [True, 3, 7, True])
        self.assertEqual(found[2][1][4:7], [1, 5, 9])

    def test_a_put_in_a_unit_names_the_unit(self):
        (_, fields), = wire.Frames().feed(wire.put(1, 4, b"x" * 300, b"unit"))
        self.assertEqual((fields[0], fields[1]), (1, 4))
        self.assertEqual(fields[7], (wire.TRANSACTIONAL, [b"unit"]))

    def test_a_disposition_without_a_last_delivery_is_about_one(self):
        self.assertEqual(getter.answered([True, 4]), 1)
        self.assertEqual(getter.answered([True, 4, 6]), 3)


class Results(unittest.TestCase):
    def test_results_of_other_settings_are_dropped(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "pieces.json"
            Pieces(path, {"rounds": 5}).put("a", {"value": 1})
            self.assertEqual(Pieces(path, {"rounds": 5}).get("a"), {"value": 1})
            self.assertNotIn("a", Pieces(path, {"rounds": 3}))

    def test_a_row_is_the_median_of_its_samples_and_is_held_against_its_bar(self):
        rows = Rows()
        self.assertEqual(rows.add("t", "m", [3, 1, 2], "s", bar=("<=", 2)), 2)
        self.assertTrue(rows.rows[0]["kept"])
        self.assertFalse(kept(0.8, (">=", 0.9)))
        self.assertIsNone(kept(None, (">=", 0.9)))

    def test_every_row_has_the_five_keys_and_what_was_not_measured_has_no_value(self):
        rows = Rows()
        rows.add("t", "m", [], "s", published=1.5, published_by="someone")
        self.assertEqual({key: rows.rows[0][key] for key in ("test", "metric", "value", "unit", "published")},
                         {"test": "t", "metric": "m", "value": None, "unit": "s", "published": 1.5})


class Pictures(unittest.TestCase):
    def test_charts_are_well_formed_also_with_odd_values(self):
        series = [("a < b", [(0, 0.1), (1e6, 20), (5, None)], False), ("c", [(0, 3)], True)]
        for text in (chart.lines("t", "x", "y", series, log=True), chart.lines("t", "x", "y", series),
                     chart.lines("t", "x", "y", [("zero", [(0, 0)], False)]),
                     chart.bars("t", "y", [("g", {"a": 1, "b": None}), ("h", {"a": 0, "b": 2})])):
            self.assertEqual(tree.fromstring(text).tag, "figure")

    def test_values_over_bars_are_plain_numbers_in_the_units_of_the_axis(self):
        for value, shown in ((22_200, "22.2 k"), (7_080, "7080"), (0.0587, "0.0587"), (0.884, "0.884"), (1.5e6, "1.5 M"),
                             (0, "0"), (120, "120"), (99_960, "100 k")):
            self.assertEqual(chart.short(value), shown)
        text = chart.bars("t", "y", [("g", {"a": 22_200, "b": 7_080})])
        self.assertNotIn("e+", text)

    def test_values_over_narrow_bars_stand_upright_and_over_wide_ones_do_not(self):
        wide = [("g", {"a": 0.884, "b": 0.884})]
        narrow = [(f"group {index}", {name: 0.0587 for name in "abcdef"}) for index in range(6)]
        self.assertNotIn('class="value" transform', chart.bars("t", "y", wide))
        self.assertEqual(chart.bars("t", "y", narrow).count('class="value" transform'), 36)

    def test_a_name_without_any_value_is_named_and_has_no_colour(self):
        text = chart.bars("t", "y", [("g", {"ours": None, "theirs": 2}), ("h", {"ours": None, "theirs": None})])
        self.assertIn("not measured: ours", text)
        self.assertNotIn(">ours</span>", text)
        self.assertNotIn(">h</text>", text)

    def test_words_between_backticks_are_code_and_are_escaped(self):
        self.assertEqual(chart.inline("run `a <b>` & `c`"), "run <code>a &lt;b&gt;</code> &amp; <code>c</code>")
        self.assertEqual(chart.inline("a ` alone"), "a ` alone")
        self.assertNotIn("`", page.page("T", ["run `towline`"], [], [], {}))

    def test_what_did_not_come_about_has_no_unit(self):
        rows = Rows()
        rows.add("t", "until every client is back", [], "s", bar=("<=", 1))
        self.assertNotIn("- s", page.page("T", [], [], rows.rows, {}))

    def test_pages_of_different_runs_have_different_titles(self):
        self.assertNotEqual(group_report.title_of(["peers"]), group_report.title_of(["single", "distance"]))

    def test_nothing_measured_gives_no_chart(self):
        self.assertEqual(chart.lines("t", "x", "y", [("a", [(0, None)], False)]), "")

    def test_the_page_loads_nothing_from_elsewhere(self):
        rows = Rows()
        rows.add("t <b>", "m", 3, "s", bar=("<=", 2))
        text = page.page("T", ["words"], [], rows.rows, {"processors": 2})
        self.assertNotIn("http", text)
        self.assertIn("t &lt;b&gt;", text)


class Restart(unittest.TestCase):
    def test_names_tell_pieces_apart(self):
        names = {name_of(kind, depth, delay, turn) for kind in ("kill", "undo") for depth in (0, 10)
                 for delay in (None, 0, 1.5) for turn in (0, 1)}
        self.assertEqual(len(names), 24)
        self.assertEqual(name_of("kill", 0, 1.0, 0), name_of("kill", 0, 1, 0))

    def test_knobs_take_commas_and_blanks(self):
        self.assertEqual(numbers(int)("0, 5 7"), [0, 5, 7])

    def test_a_fail_over_of_which_nothing_is_known_gives_an_empty_report(self):
        class Args:
            rounds, topologies, only = 2, ["native"], ["S1000", "kill"]
        rows = Rows()
        for name in Args.only:
            failover_report.test_rows(rows, Args, {}, "native", name)
        self.assertEqual(rows.rows, [])
        self.assertEqual([found for found in failover_report.charts(Args, rows) if found and "NaN" in found], [])

    def test_each_topology_is_held_against_its_own_published_figure_and_only_groups_against_bars(self):
        class Args:
            rounds, topologies, only = 1, ["native", "shared", "floating"], ["S1000", "FN500U"]
        one = {"active_s": 0.1, "first_put_s": 0.2, "clients_back_s": 0.5, "all_back_s": 0.5, "not_back": 0, "lost": 0,
               "duplicated": 0, "puts_per_s": 999.0, "took_s": 9.0, "others": 0.0}
        done = {f"{topology} {name} #1": one for topology in Args.topologies for name in Args.only}
        rows = Rows()
        for topology in Args.topologies:
            for name in failover_report.tests_of(topology, Args.only):
                failover_report.test_rows(rows, Args, done, topology, name)
        back = {row["test"]: row for row in rows.rows if row["metric"] == failover_report.ALL}
        self.assertEqual({test: (row["published"], row["kept"]) for test, row in back.items()},
                         {"native: S1000": (0.692, True), "native: FN500U": (23.688, None),
                          "multi-instance: S1000": (0.692, None),
                          "floating: S1000": (5.922, True), "floating: FN500U": (24.081, None)})

    def test_a_round_in_which_it_never_came_counts_with_the_whole_time(self):
        class Args:
            rounds, only = 3, ["kill"]
        one = {"active_s": 0.1, "first_put_s": 0.2, "clients_back_s": None, "all_back_s": None, "not_back": 1, "lost": 0,
               "duplicated": 0, "puts_per_s": 200.0, "took_s": 9.0, "others": 0.0}
        back = {**one, "all_back_s": 0.4, "clients_back_s": 0.4, "not_back": 0}
        rows = Rows()
        done = {"native kill #1": one, "native kill #2": back, "native kill #3": back}
        failover_report.test_rows(rows, Args, done, "native", "kill")
        row = next(row for row in rows.rows if row["metric"] == failover_report.ALL)
        self.assertEqual((row["value"], row["least"], row["most"]), (0.4, 0.4, 3.0))

    def test_a_run_of_nothing_gives_an_empty_report(self):
        class Args:
            depths, delays, queues, rounds, uncommitted = [0, 5], [0.0, 1.0], 10, 2, 40
            image_depth, one_queue_depth, grow_gb = 0, 5, 1
        results, rows = restart_report.Results(Args, {}), Rows()
        restart_report.depth_rows(rows, results)
        restart_report.depth_ratios(rows, results)
        restart_report.load_rows(rows, results)
        restart_report.image_rows(rows, results)
        restart_report.grow_rows(rows, results)
        restart_report.one_queue_rows(rows, results)
        self.assertEqual(rows.rows, [])


class Steady(unittest.TestCase):
    def test_a_group_in_which_nobody_was_elected_has_no_change(self):
        watch = steady.Watch()
        for second in range(3):
            watch.look(second, {"a": (2, "active"), "b": (2, "replica")})
        # The active one does not answer just then.
        watch.look(3, {"b": (2, "replica")})
        watch.look(4, {})
        self.assertEqual((watch.changes, watch.active, watch.silent), ([], "a", 1))

    def test_a_new_term_is_a_change_also_when_the_same_one_is_active_again(self):
        watch = steady.Watch()
        watch.look(0, {"a": (2, "active"), "b": (2, "replica")})
        watch.look(1, {"a": (3, "replica"), "b": (2, "replica")})
        watch.look(2, {"a": (3, "active"), "b": (3, "replica")})
        self.assertEqual([(one["from"], one["to"]) for one in watch.changes], [(2, 3)])

    def test_who_is_active_in_an_older_term_is_not(self):
        watch = steady.Watch()
        watch.look(0, {"a": (2, "active"), "b": (2, "replica")})
        watch.look(1, {"a": (2, "active"), "b": (3, "active")})
        self.assertEqual((watch.active, len(watch.changes)), ("b", 1))

    def test_stops_are_shorter_than_half_of_the_time_out_and_repeat_with_their_seed(self):
        one, other = ([steady.plan(random.Random(7)) for _ in range(1)] for _ in range(2))
        self.assertEqual(one, other)
        chance = random.Random(8)
        lengths = [steady.plan(chance)[2] for _ in range(1000)]
        self.assertTrue(0.1 <= min(lengths) and max(lengths) < steady.HEARTBEAT_TIMEOUT_S / 2)

    def test_rates_are_means_of_ten_seconds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rate.csv"
            path.write_text("second,pairs\n" + "".join(f"{second},{second}\n" for second in range(12)))
            self.assertEqual(steady.rates(path), [(0, 4.5), (10, 10.5)])


class Group(unittest.TestCase):
    @staticmethod
    def peers(pairs):
        return {clients: {"pairs": pairs, "cpu_us": 100.0, "generator_us": 50.0, "p50_ms": 1.0, "p99_ms": 2.0}
                for clients in ("50", "200")}

    def test_ratios_are_made_within_a_round(self):
        done = {"peers Towline #1": self.peers(300.0), "peers NATS #1": self.peers(100.0),
                "peers Towline #2": self.peers(900.0), "peers NATS #2": self.peers(450.0),
                "peers Towline #3": self.peers(500.0)}
        results = group_report.Results(3, done)
        self.assertEqual(results.ratios("peers", "Towline", "NATS", 50), [3.0, 2.0])

    def test_a_peer_that_is_less_than_three_times_slower_is_shown_as_a_bar_not_kept(self):
        done = {f"peers {who} #1": {**self.peers(pairs), "others": 0.1}
                for who, pairs in (("Towline", 3000.0), ("RabbitMQ", 1000.0), ("NATS", 1001.0))}
        rows = Rows()
        group_report.peer_rows(rows, group_report.Results(1, done))
        verdicts = {row["metric"]: row["kept"] for row in rows.rows if row["test"] == "peers, 50 clients" and row["bar"]}
        self.assertEqual(verdicts, {"Towline : RabbitMQ": True, "Towline : NATS": False})

    def test_a_replica_may_take_a_third_of_the_active_one(self):
        done = {"single single #1": {clients: {"pairs": 100.0} for clients in ("50", "200")} | {"others": 0.0},
                "single group #1": {"50": {"pairs": 75.0, "replica": 0.33}, "200": {"pairs": 74.0, "replica": 0.34},
                                    "others": 0.0}}
        rows = Rows()
        group_report.single_rows(rows, group_report.Results(1, done), 5)
        self.assertEqual([row["kept"] for row in rows.rows if row["bar"]], [True, True, False, False])

    def test_a_kill_after_which_clients_stay_away_says_so(self):
        done = {"kill NATS #1": {"gap_s": 6.0, "clients_back_s": None, "not_back": 3, "others": 0.0},
                "kill NATS #2": {"gap_s": 7.0, "clients_back_s": 7.5, "not_back": 0, "others": 0.0}}
        rows = Rows()
        group_report.kill_rows(rows, group_report.Results(2, done))
        row = next(row for row in rows.rows if row["metric"].startswith("NATS") and "client is back" in row["metric"])
        self.assertEqual((row["value"], row["note"][:9]), (7.5, "in 1 of 2"))

    def test_of_nothing_comes_an_empty_chart(self):
        rows = Rows()
        for part in (group_report.peer_rows, group_report.kill_rows, group_report.distance_rows):
            part(rows, group_report.Results(2, {}))
        self.assertTrue(all(row["value"] is None and row["kept"] is None for row in rows.rows))
        self.assertEqual([found for found in group_report.charts(["single", "distance", "peers", "kill"], rows) if found], [])

    def test_processor_time_and_group_are_read_behind_a_name_with_blanks(self):
        line = "12 (a) b) S 1 77 77 0 -1 4 0 0 0 0 250 50 0 0 20 0 1"
        self.assertEqual(process.cpu_and_group(line), (300 / process.TICKS, 77))


class Recovery(unittest.TestCase):
    """A fault at 100 s; clients put once a second, or as quickly as they can."""

    def test_a_client_whose_puts_came_on_time_was_never_away(self):
        events = [(99.2 + second, "put") for second in range(6)]
        self.assertEqual(recovery.back_of(events, 100.0, 104.0, 1.0), 0.0)

    def test_a_client_is_back_with_the_last_put_that_came_late(self):
        events = [(99.2, "put"), (100.1, "lost"), (100.3, "open"), (100.7, "put"), (101.2, "put"), (102.2, "put")]
        self.assertAlmostEqual(recovery.back_of(events, 100.0, 103.0, 1.0), 0.7)

    def test_a_client_whose_connection_stands_and_that_had_nothing_to_put_is_back_with_it(self):
        events = [(99.9, "put"), (100.1, "lost"), (100.3, "open"), (100.9, "put"), (101.9, "put")]
        self.assertAlmostEqual(recovery.back_of(events, 100.0, 102.5, 1.0), 0.3)

    def test_a_client_that_lost_its_connection_and_has_no_other_is_not_back(self):
        self.assertIsNone(recovery.back_of([(99.9, "put"), (100.1, "lost")], 100.0, 105.0, 1.0))

    def test_a_client_that_is_not_paced_is_back_with_its_first_put_over_the_connection_it_keeps(self):
        events = [(100.01, "put"), (100.1, "lost"), (100.3, "open"), (100.35, "put"), (100.4, "put")]
        self.assertAlmostEqual(recovery.back_of(events, 100.0, 105.0, 0), 0.35)

    def test_the_rate_is_back_when_half_a_second_has_nine_tenths_of_it(self):
        puts = [98 + index / 100 for index in range(200)] + [101.2 + index / 100 for index in range(300)]
        self.assertAlmostEqual(recovery.rate_back(puts, 100.0, 104.0), 1.2, places=2)
        self.assertIsNone(recovery.rate_back(puts[:200], 100.0, 104.0))

    def test_the_first_put_counts_once_another_one_is_active(self):
        clients = {0: [(98 + index / 10, "put") for index in range(21)] + [(100.8 + index / 10, "put") for index in range(40)]}
        found = recovery.figures(clients, 100.0, 100.3, 0.1, 4)
        self.assertAlmostEqual(found["first_put_s"], 0.8)
        self.assertEqual((found["not_back"], found["clients"]), (0, 1))


if __name__ == "__main__":
    unittest.main()
