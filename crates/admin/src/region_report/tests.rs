use super::page::escaped;
use super::*;

const EVIL: &str = "<script>alert(\"x\")</script>&'\u{1b}";

fn way() -> ReportWay {
    let step = |step: &str, ms| ReportStep { step: step.into(), ms };
    ReportWay {
        from: "WEST".into(),
        to: "EAST".into(),
        steps: vec![step("shipped", 10), step("closed", 12), step("acknowledged", 95)],
        at_risk: Some(ReportRisk {
            bytes: Some(900),
            age_us: Some(20_000),
            ..ReportRisk::default()
        }),
        loss: Some(ReportRisk { bytes: Some(0), ..ReportRisk::default() }),
        rto_ms: Some(400),
        rto_by: "probe".into(),
        ..ReportWay::default()
    }
}

fn report() -> RegionReport {
    RegionReport {
        outcome: ReportOutcome::Done,
        rpo_bytes: 1_000,
        rpo_s: 1,
        rto_s: 1,
        ways: vec![way()],
        ..RegionReport::default()
    }
}

fn judged(change: impl Fn(&mut RegionReport)) -> RegionReport {
    let mut report = report();
    change(&mut report);
    report.judge();
    report
}

#[test]
fn objectives_are_met_or_one_is_missed() {
    assert_eq!(judged(|_| {}).verdict, ReportVerdict::Met);
    let misses: [fn(&mut RegionReport); 6] = [
        |it| it.rpo_bytes = 899,
        |it| it.ways[0].at_risk.as_mut().unwrap().age_us = Some(1_001_000),
        |it| it.ways[0].rto_ms = Some(1_001),
        |it| it.ways[0].loss.as_mut().unwrap().bytes = Some(1),
        |it| it.outcome = ReportOutcome::TakenBack,
        |it| {
            it.probe =
                Some(ReportProbe { lost: Some(1), doubled: Some(0), ..ReportProbe::default() });
        },
    ];
    for (at, change) in misses.into_iter().enumerate() {
        let report = judged(change);
        assert_eq!(report.verdict, ReportVerdict::Missed, "{at}");
        assert!(report.findings.iter().any(|line| line.ends_with("MISSED")), "{report:?}");
    }
}

#[test]
fn without_an_objective_or_a_figure_nothing_is_judged() {
    let none = judged(|it| (it.rpo_bytes, it.rpo_s, it.rto_s) = (0, 0, 0));
    assert_eq!(none.verdict, ReportVerdict::NotJudged);
    assert!(none.findings.iter().any(|line| line.ends_with("RTO 400 ms, no objective")));
    let unknown = judged(|it| it.ways[0].rto_ms = None);
    assert_eq!(unknown.verdict, ReportVerdict::NotJudged);
    assert!(unknown.findings.iter().any(|line| line.contains("RTO not known")), "{unknown:?}");
    let failover = judged(|it| {
        it.kind = ReportKind::Failover;
        it.ways[0].loss.as_mut().unwrap().bytes = Some(7);
    });
    assert_eq!(failover.verdict, ReportVerdict::Met, "a fail-over may lose what was at risk");
}

#[test]
fn messages_that_others_may_have_got_are_neither_lost_nor_all_there() {
    let counted = |lost, missing| {
        judged(|it| {
            it.probe = Some(ReportProbe {
                confirmed: 460,
                lost,
                missing,
                doubled: missing.map(|_| 0),
                ..ReportProbe::default()
            });
        })
    };
    let taken = counted(None, Some(422));
    assert_eq!(taken.verdict, ReportVerdict::NotJudged);
    let line = taken.findings.iter().find(|line| line.starts_with("probe")).unwrap();
    assert!(line.contains("422 were not on the queue") && line.contains("others may"), "{line}");
    assert!(!line.contains("MISSED") && !line.contains(": met"), "{line}");
    assert!(page(&taken).contains("not known: others may have got them"));
    assert_eq!(counted(None, None).verdict, ReportVerdict::NotJudged, "nothing was counted");
    assert_eq!(counted(Some(0), Some(0)).verdict, ReportVerdict::Met);
    let lost = counted(Some(3), Some(5));
    assert_eq!(lost.verdict, ReportVerdict::Missed);
    let line = "probe: of 460 confirmed messages 3 lost, 0 doubled, 2 more were not there: others \
                may have got them: MISSED";
    assert!(lost.findings.iter().any(|found| found == line), "{lost:?}");
}

#[test]
fn what_is_known_only_as_a_bound_is_met_or_missed_only_if_the_bound_says_so() {
    let with = |bytes_are, age_is| {
        judged(|it| {
            let risk = it.ways[0].at_risk.as_mut().unwrap();
            (risk.bytes_are, risk.age_is) = (bytes_are, age_is);
        })
    };
    let (exact, least, most) = (FigureBound::Exact, FigureBound::AtLeast, FigureBound::AtMost);
    let unknown = with(least, exact);
    assert_eq!(unknown.verdict, ReportVerdict::NotJudged);
    let wanted =
        "WEST to EAST: RPA in bytes at least 900 bytes, objective 1000: not known whether met";
    assert!(unknown.findings.iter().any(|line| line == wanted), "{:?}", unknown.findings);
    assert_eq!(with(most, most).verdict, ReportVerdict::Met, "it is less");
    let missed = judged(|it| {
        it.ways[0].at_risk.as_mut().unwrap().bytes_are = FigureBound::AtLeast;
        it.rpo_bytes = 899;
    });
    assert_eq!(missed.verdict, ReportVerdict::Missed, "that much is known");
    let text = report_lines(&unknown);
    assert!(
        text.contains("  at risk         at least 900 bytes of log, the oldest 20 ms"),
        "{text}"
    );
    let served = |rto_is, rto_ms| {
        judged(|it| (it.ways[0].rto_is, it.ways[0].rto_ms) = (rto_is, Some(rto_ms)))
    };
    let unseen = served(least, 4);
    assert_eq!(unseen.verdict, ReportVerdict::NotJudged, "when the other one serves is later");
    assert!(report_lines(&unseen).contains("  no put for     at least 4 ms"));
    assert!(page(&unseen).contains("at least 4 ms, measured by"));
    assert_eq!(served(most, 999).verdict, ReportVerdict::Met);
    assert_eq!(served(most, 1_001).verdict, ReportVerdict::NotJudged, "it was seen late");
    assert_eq!(served(least, 1_001).verdict, ReportVerdict::Missed);
    let heard = judged(|it| it.ways[0].rto_by = "last_heard".into());
    assert!(report_lines(&heard).contains("400 ms (since the live group was last heard)"));
}

#[test]
fn a_report_comes_back_from_its_json_also_one_of_a_later_version() {
    let report = judged(|it| it.probe = Some(ReportProbe::default()));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<RegionReport>(&text).unwrap(), report);
    let later = text.replacen('{', "{\"more\":[1],", 1);
    assert_eq!(serde_json::from_str::<RegionReport>(&later).unwrap(), report);
}

#[test]
fn no_text_of_a_report_is_markup_in_its_page() {
    assert_eq!(
        escaped(EVIL),
        "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;\u{fffd}"
    );
    let report = judged(|it| {
        for text in [
            &mut it.by,
            &mut it.name,
            &mut it.queue_manager,
            &mut it.group,
            &mut it.instance,
            &mut it.version,
            &mut it.reason,
        ] {
            EVIL.clone_into(text);
        }
        let way = &mut it.ways[0];
        for text in [&mut way.from, &mut way.to, &mut way.history, &mut way.active, &mut way.rto_by]
        {
            EVIL.clone_into(text);
        }
        EVIL.clone_into(&mut way.steps[0].step);
        EVIL.clone_into(&mut way.loss.as_mut().unwrap().note);
        it.probe = Some(ReportProbe { queue: EVIL.into(), ..ReportProbe::default() });
    });
    let page = page(&report);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
    assert!(page.matches("&lt;script&gt;").count() >= 14, "all of them are shown: {page}");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "the page is alone: {outside}");
    }
    assert!(page.contains("@media print"));
}

#[test]
fn the_chart_has_a_bar_for_each_step_that_ends_at_its_time() {
    let page = page(&judged(|_| {}));
    assert_eq!(page.matches("<rect").count(), 3);
    // The last of 95 ms goes from 12 ms to the end of 620.
    assert!(page.contains("<rect x=\"228\" y=\"52\" width=\"542\""), "{page}");
    let none = super::page(&judged(|it| it.ways[0].steps.clear()));
    assert_eq!(none.matches("<rect").count(), 0);
    let long = super::page(&judged(|it| it.ways[0].steps[0].ms = u64::MAX));
    assert!(long.contains("<svg"), "no time is too long");
}

#[test]
fn a_report_is_shown_in_lines() {
    let text = report_lines(&judged(|_| {}));
    assert!(text.contains("From WEST to EAST\n  shipped"), "{text}");
    assert!(text.contains("  at risk         900 bytes of log, the oldest 20 ms old"), "{text}");
    assert!(text.contains("RTO 400 ms, objective 1000: met"), "{text}");
}
