//! Reports of the orders of this instance: made of what came of them, and completed by the command
//! with what only that saw.
//!
//! Not here: the orders (`region_orders`), the folder (`crate::region_reports`). Invariant: an
//! order that was carried out is not refused because its report cannot be kept: then the answer
//! says why there is none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use towline_admin::region_report::{
    FigureBound, REPORT_FORMAT, RegionReport, ReportKind, ReportOutcome, ReportRisk, ReportStep,
    ReportWay,
};
use towline_config::{GroupConfig, RecoveryConfig};
use towline_replica::failover::{FailoverCourse, FailoverOutlook};
use towline_replica::region_switch::SwitchCourse;
use towline_types::{HistoryId, Time};

use crate::region_reports;

/// What all reports of an instance have in common.
pub(super) struct OrderReports {
    /// Its data folder.
    data: PathBuf,
    queue_manager: String,
    group: GroupConfig,
}

impl OrderReports {
    pub(super) fn new(data: &Path, queue_manager: &str, group: &GroupConfig) -> OrderReports {
        OrderReports {
            data: data.to_owned(),
            queue_manager: queue_manager.to_owned(),
            group: group.clone(),
        }
    }

    /// The report of a switch that was begun.
    pub(super) fn of_switch(
        &self,
        (kind, history): (ReportKind, Option<HistoryId>),
        course: &SwitchCourse,
        (outcome, reason): (ReportOutcome, &str),
    ) -> RegionReport {
        let found = &course.outlook;
        let at_risk = ReportRisk {
            bytes: Some(found.backlog_bytes),
            puts: Some(found.backlog_puts),
            removals: Some(found.backlog_removals),
            age_us: Some(found.backlog_age_us),
            ..ReportRisk::default()
        };
        // In doubt it is not known when, or whether, the other group has all.
        let is_over = matches!(outcome, ReportOutcome::Done | ReportOutcome::TakenBack);
        let was_let_go = course.let_go_ms.is_some();
        let (rto_ms, rto_is) = rto_of(outcome, course);
        let loss = is_over.then(|| ReportRisk { bytes: Some(0), ..ReportRisk::default() });
        let way = ReportWay {
            history: history.map(|it| it.to_string()).unwrap_or_default(),
            steps: steps(&course.steps),
            at_risk: Some(at_risk),
            loss,
            rto_ms,
            rto_is,
            rto_by: "instance".into(),
            clients: was_let_go.then_some(found.clients),
            non_persistent: (outcome == ReportOutcome::Done).then_some(found.non_persistent),
            ..self.way(true)
        };
        let report = RegionReport { kind, outcome, reason: reason.to_owned(), ..self.report(way) };
        took(report, &course.steps)
    }

    /// The report of a promotion that was begun.
    pub(super) fn of_failover(
        &self,
        course: &FailoverCourse,
        (outcome, reason): (ReportOutcome, &str),
    ) -> RegionReport {
        let risk = risk_of(&course.outlook);
        let is_done = outcome == ReportOutcome::Done;
        let serving = course.steps.last().filter(|_| is_done).map(|(_, ms)| *ms);
        // Clients were without a live group before anybody gave the order.
        let away_ms = course.outlook.away_ms();
        let rto_ms = serving.zip(away_ms).map(|(serving, away)| serving.saturating_add(away));
        let rto_by = if course.outlook.live_is_still { "fence" } else { "last_heard" };
        let way = ReportWay {
            history: course.history.to_string(),
            active: course.active.clone(),
            steps: steps(&course.steps),
            at_risk: Some(risk.clone()),
            loss: Some(risk),
            rto_ms,
            rto_by: rto_by.into(),
            ..self.way(false)
        };
        let kind = ReportKind::Failover;
        let report = RegionReport { kind, outcome, reason: reason.to_owned(), ..self.report(way) };
        took(report, &course.steps)
    }

    /// The report of a return that is ordered.
    pub(super) fn of_rejoin(&self, tail_bytes: u64, exported: Option<&str>) -> RegionReport {
        let note = match exported {
            Some(file) => format!("given up; what it added was exported to {file}"),
            None => "given up without an export".to_owned(),
        };
        let loss = Some(ReportRisk { bytes: Some(tail_bytes), note, ..ReportRisk::default() });
        let steps = steps(&[("ordered", 0)]);
        // This group is not live any more; the other one has been for long.
        let way = ReportWay { steps, loss, ..self.way(true) };
        RegionReport { kind: ReportKind::Rejoin, ..self.report(way) }
    }

    /// Keeps a report of something that ends now: what is to be added to the answer.
    pub(super) fn keep(&self, by: &str, now: Time, mut report: RegionReport) -> Value {
        by.clone_into(&mut report.by);
        let took = Duration::from_millis(report.took_ms);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        report.began_at = Time(now.0.saturating_sub(took_us)).as_millis();
        report.name = region_reports::name_of(&report, towline_process::random::bytes());
        self.written(report)
    }

    /// Replaces a report by one that the command completed; without a name it is a new one.
    ///
    /// # Errors
    /// Why it is not kept.
    pub(super) fn complete(&self, given: Value) -> Result<Value, String> {
        let mut report: RegionReport =
            serde_json::from_value(given).map_err(|error| format!("the report: {error}"))?;
        // What this instance knows better.
        let about = self.about();
        (report.rpo_bytes, report.rpo_s, report.rto_s) =
            (about.rpo_bytes, about.rpo_s, about.rto_s);
        (report.queue_manager, report.group) = (about.queue_manager, about.group);
        (report.instance, report.version) = (about.instance, about.version);
        report.format = REPORT_FORMAT;
        if report.name.is_empty() {
            report.name = region_reports::name_of(&report, towline_process::random::bytes());
        }
        Ok(self.written(report))
    }

    fn written(&self, mut report: RegionReport) -> Value {
        report.judge();
        match region_reports::keep(&self.data, &report) {
            Ok(path) => json!({ "report": report, "report_file": path.display().to_string() }),
            Err(error) => {
                tracing::warn!(%error, report = %report.name, "a report is not kept");
                json!({ "report": report, "report_trouble": error.to_string() })
            }
        }
    }

    fn about(&self) -> RegionReport {
        let objectives = self.group.recovery.as_ref();
        let of = |objective: fn(&RecoveryConfig) -> u64| objectives.map_or(0, objective);
        RegionReport {
            format: REPORT_FORMAT,
            queue_manager: self.queue_manager.clone(),
            group: self.group.name.clone(),
            instance: self.group.instance.clone(),
            version: towline_types::program_version().to_owned(),
            rpo_bytes: of(|it| it.rpo_bytes),
            rpo_s: of(|it| it.rpo_s),
            rto_s: of(|it| it.rto_s),
            ..RegionReport::default()
        }
    }

    fn report(&self, way: ReportWay) -> RegionReport {
        RegionReport { ways: vec![way], ..self.about() }
    }

    fn way(&self, from_here: bool) -> ReportWay {
        let own = self.group.name.clone();
        let other = self.group.recovery.as_ref().map(|it| it.name.clone()).unwrap_or_default();
        let (from, to) = if from_here { (own, other) } else { (other, own) };
        ReportWay { from, to, ..ReportWay::default() }
    }
}

/// For how long no client was served by a switch, as far as the instance knows that carried it out.
fn rto_of(outcome: ReportOutcome, course: &SwitchCourse) -> (Option<u64>, FigureBound) {
    let closed_ms = course.let_go_ms.map(|_| course.closed_ms);
    match outcome {
        // That the other group has all is known here, and not when it serves.
        ReportOutcome::Done => (closed_ms, FigureBound::AtLeast),
        ReportOutcome::TakenBack => (closed_ms, FigureBound::Exact),
        ReportOutcome::UnderWay | ReportOutcome::InDoubt | ReportOutcome::NotBack => {
            (None, FigureBound::Exact)
        }
    }
}

/// What is lost by a fail-over, as far as the recovery group knows.
fn risk_of(found: &FailoverOutlook) -> ReportRisk {
    if found.live.0 == 0 {
        let note =
            "not known: no instance that answered has heard of the live group since its start"
                .to_owned();
        return ReportRisk { note, ..ReportRisk::default() };
    }
    let (lost, heard_ms) = (found.lost_bytes(), found.heard_ms);
    if found.live_is_still && lost == 0 {
        let note = format!(
            "nothing: the live group is fenced, its log ends at {}, and that is here; it said so \
             {heard_ms} ms ago",
            found.live
        );
        return ReportRisk { bytes: Some(0), age_us: Some(0), note, ..ReportRisk::default() };
    }
    let note = match found.heard_most_ms {
        Some(ms) => format!(
            "with what live committed in the {ms} ms since it said last how far it is, if anything"
        ),
        None => {
            "with what live committed since it said last how far it is, if anything; when that \
                 was is not known"
                .to_owned()
        }
    };
    // What is known to be lost was committed before live said so, all else later.
    let age_is = if lost == 0 { FigureBound::AtMost } else { FigureBound::AtLeast };
    let age_ms = if lost == 0 { found.heard_most_ms } else { Some(heard_ms) };
    let age_us = age_ms.map(|ms| ms.saturating_mul(1_000));
    let (bytes, bytes_are) = (Some(lost), FigureBound::AtLeast);
    ReportRisk { bytes, bytes_are, age_us, age_is, note, ..ReportRisk::default() }
}

fn steps(steps: &[(&'static str, u64)]) -> Vec<ReportStep> {
    steps.iter().map(|(step, ms)| ReportStep { step: (*step).to_owned(), ms: *ms }).collect()
}

fn took(report: RegionReport, steps: &[(&'static str, u64)]) -> RegionReport {
    RegionReport { took_ms: steps.last().map_or(0, |(_, ms)| *ms), ..report }
}

#[cfg(test)]
mod tests {
    use towline_types::Lsn;

    use super::*;

    fn found(live: u64, kept: u64, live_is_still: bool) -> FailoverOutlook {
        let (live, kept) = (Lsn(live), Lsn(kept));
        let (heard_ms, heard_most_ms) = (3_300, Some(3_401));
        FailoverOutlook { live, kept, live_is_still, heard_ms, heard_most_ms, ..Default::default() }
    }

    #[test]
    fn what_live_committed_unheard_makes_the_loss_of_a_fail_over_a_bound() {
        let risk = risk_of(&found(100, 100, false));
        assert_eq!((risk.bytes, risk.bytes_are), (Some(0), FigureBound::AtLeast));
        assert_eq!((risk.age_us, risk.age_is), (Some(3_401_000), FigureBound::AtMost));
        let risk = risk_of(&found(100, 60, false));
        assert_eq!((risk.bytes, risk.bytes_are), (Some(40), FigureBound::AtLeast));
        assert_eq!(risk.age_is, FigureBound::AtLeast, "that was committed before");
        assert_eq!(risk.age_us, Some(3_300_000), "what live said may be as young as that");
        // Of what may have waited in a queue for any time no age is a bound.
        let unbounded = FailoverOutlook { heard_most_ms: None, ..found(100, 100, false) };
        let risk = risk_of(&unbounded);
        assert_eq!((risk.bytes, risk.bytes_are), (Some(0), FigureBound::AtLeast));
        assert_eq!(risk.age_us, None);
        assert!(risk.note.ends_with("is not known"), "{}", risk.note);
        assert_eq!(risk_of(&found(0, 60, false)).bytes, None);
    }

    /// The other group stood still for seconds before it served, and "no put for 4 ms" was said.
    #[test]
    fn when_clients_were_served_by_the_other_group_is_not_known_where_a_switch_was_ordered() {
        let (let_go_ms, closed_ms) = (Some(10), 4);
        let course = SwitchCourse { let_go_ms, closed_ms, ..SwitchCourse::default() };
        let done = rto_of(ReportOutcome::Done, &course);
        assert_eq!(done, (Some(4), FigureBound::AtLeast));
        let back = rto_of(ReportOutcome::TakenBack, &course);
        assert_eq!(back, (Some(4), FigureBound::Exact), "it serves again");
        assert_eq!(rto_of(ReportOutcome::InDoubt, &course).0, None);
        let served = SwitchCourse { let_go_ms: None, ..course };
        assert_eq!(rto_of(ReportOutcome::TakenBack, &served).0, None, "clients were not let go");
    }

    #[test]
    fn of_a_fenced_live_group_whose_log_is_here_nothing_is_lost() {
        let risk = risk_of(&found(100, 100, true));
        assert_eq!((risk.bytes, risk.bytes_are), (Some(0), FigureBound::Exact));
        assert_eq!((risk.age_us, risk.age_is), (Some(0), FigureBound::Exact));
        assert!(risk.note.starts_with("nothing: the live group is fenced"), "{}", risk.note);
        let lacks = risk_of(&found(100, 60, true));
        assert_eq!((lacks.bytes, lacks.bytes_are), (Some(40), FigureBound::AtLeast));
    }
}
