//! Changes of roles of two regions, as an administrator orders them at the control socket: what is
//! to be expected (`dry_run`), or what came of it, as JSON.
//!
//! Not here: the changes themselves (`towline_replica::failover`, `region_switch`, `returning`,
//! `fence_order`). Invariant: one order at a time in a process.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use towline_admin::region_report::{ReportKind, ReportOutcome};
use towline_admin::status::{FindingWeight, RegionFinding, region_findings};
use towline_config::GroupConfig;
use towline_engine::GroupView;
use towline_os::time::Instant;
use towline_replica::failover::{self, FailoverEnd};
use towline_replica::region_switch::{self, SwitchEnd, SwitchOutlook};
use towline_replica::{OpenReplica, fence_order, returning};
use towline_replication::fence::REASON_CHARACTERS_MAX;
use towline_replication::region_part::RegionPart;
use towline_types::{ChangeCause, ChangeKind, HistoryId, Lsn, Time};

use super::order_reports::OrderReports;
use super::region;
use super::status::View;
use crate::control::{Afterwards, RegionOrder};
use crate::run_args::RunArgs;

/// Characters of the name of the user that ordered it.
const BY_CHARS_MAX: usize = 64;
/// The longest time that an order may take.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// What a group says of itself is half a second old, or more behind an election: what forbids a
/// switch is looked at again for so long.
const SAID_AGAIN_MAX: Duration = Duration::from_secs(2);
/// How often.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct RegionOrders {
    opened: Arc<OpenReplica>,
    group: GroupConfig,
    region: Option<Arc<RegionPart>>,
    reports: OrderReports,
    /// What `region check` is judged from.
    view: Arc<View>,
    /// Held while an order is carried out.
    under_way: Mutex<()>,
}

impl RegionOrders {
    pub(super) fn new(
        args: &RunArgs,
        opened: &Arc<OpenReplica>,
        group: &GroupConfig,
        (region, view): (Option<&Arc<RegionPart>>, &Arc<View>),
    ) -> Arc<RegionOrders> {
        let (opened, group) = (Arc::clone(opened), group.clone());
        let reports = OrderReports::new(&args.data, &args.name, &group);
        let (region, view) = (region.cloned(), Arc::clone(view));
        let under_way = Mutex::new(());
        Arc::new(RegionOrders { opened, group, region, reports, view, under_way })
    }

    /// The other group's name, and this side of the traffic with it.
    fn other(&self) -> Result<(&Arc<RegionPart>, &str), String> {
        let recovery = self.group.recovery.as_ref();
        match (&self.region, recovery) {
            (Some(part), Some(recovery)) => Ok((part, &recovery.name)),
            (None | Some(_), _) => Err(format!(
                "group '{}' has no other region: see [group.recovery]",
                self.group.name
            )),
        }
    }

    fn about(&self, other: &str) -> Value {
        json!({
            "group": self.group.name,
            "other": other,
            "instance": self.group.instance,
        })
    }

    /// See [`failover::fail_over`].
    pub(super) fn fail_over(&self, order: &RegionOrder) -> Result<Value, String> {
        let (_, other) = self.other()?;
        let mut answer = self.about(other);
        if order.dry_run {
            let found = failover::outlook(&self.opened, &self.group, order.force);
            let under_way = found.under_way.map(|history| history.to_string());
            add(
                &mut answer,
                json!({
                    "obstacles": found.obstacles,
                    "notes": found.notes,
                    "reached": found.reached,
                    "under_way": under_way,
                    "loss": {
                        "is_known": found.live.0 > 0,
                        "live_lsn": found.live.to_string(),
                        "kept_lsn": found.kept.to_string(),
                        "bytes": found.lost_bytes(),
                        "live_is_still": found.live_is_still,
                        "heard_ms": found.heard_most_ms.unwrap_or(found.heard_ms),
                        "heard_is_bound": found.heard_most_ms.is_some(),
                        "sync": found.sync.0,
                    },
                }),
            );
            return Ok(answer);
        }
        let Some(_alone) = self.under_way.try_lock() else { return Err(under_way()) };
        let by = by(order);
        let how = (longest(order), order.force);
        let end = failover::fail_over(&self.opened, &self.group, &by, how);
        let (course, outcome) = match end {
            FailoverEnd::Refused(why) => return Err(why),
            FailoverEnd::InDoubt(course, why) => (course, Err(why)),
            FailoverEnd::Done(course) => (course, Ok(())),
        };
        let said = match &outcome {
            Ok(()) => (ReportOutcome::Done, ""),
            Err(why) => (ReportOutcome::InDoubt, why.as_str()),
        };
        let kept = self.reports.keep(&by, self.wall(), self.reports.of_failover(&course, said));
        outcome.map_err(|why| with_report(why, &kept))?;
        add(
            &mut answer,
            json!({
                "history": course.history.to_string(),
                "active": course.active,
                "steps": steps(&course.steps),
            }),
        );
        add(&mut answer, kept);
        Ok(answer)
    }

    /// See [`region_switch::switch`].
    pub(super) fn switch(
        &self,
        order: &RegionOrder,
    ) -> Result<(Value, Option<Afterwards>), String> {
        let (part, other) = self.other()?;
        let mut answer = self.about(other);
        if order.dry_run {
            let found = self.outlook_of_switch(part);
            add(
                &mut answer,
                json!({
                    "obstacles": found.obstacles,
                    "notes": found.notes,
                    "non_persistent": found.non_persistent,
                    "backlog_bytes": found.backlog_bytes,
                    "backlog_puts": found.backlog_puts,
                    "backlog_removals": found.backlog_removals,
                    "clients": found.clients,
                }),
            );
            return Ok((answer, None));
        }
        let Some(_alone) = self.under_way.try_lock() else { return Err(under_way()) };
        let kind = match order.back_after_s {
            None => ChangeKind::Switch,
            Some(back_after_s) => ChangeKind::Drill { back_after_s },
        };
        let cause = ChangeCause { kind, by: by(order), instance: self.group.instance.clone() };
        let (history, more) = self.carry_out(part, &cause, longest(order))?;
        add(&mut answer, more);
        let opened = Arc::clone(&self.opened);
        let after = move || region_switch::step_down(&opened, history);
        Ok((answer, Some(Box::new(after))))
    }

    /// What is to be expected of a switch, with what `region check` says at the active instance.
    fn outlook_of_switch(&self, part: &RegionPart) -> SwitchOutlook {
        let mut found = region_switch::outlook(&self.opened, part, &self.group);
        if self.opened.door().is_some() {
            let (forbidding, others): (Vec<_>, Vec<_>) =
                self.findings().into_iter().partition(RegionFinding::forbids_switch);
            found.obstacles.extend(forbidding.iter().map(RegionFinding::line));
            let known = found.obstacles.clone();
            let stand = others.iter().filter(|it| it.weight == FindingWeight::Stands);
            // What the switch itself says is not repeated.
            let stand = stand.filter(|_| known.is_empty()).map(RegionFinding::line);
            found.notes.extend(stand.map(|line| format!("region check: {line}")));
        }
        found
    }

    fn findings(&self) -> Vec<RegionFinding> {
        region_findings(&self.view.group(), self.wall().as_millis()).unwrap_or_default()
    }

    /// Waits a moment until `region check` says nothing with which no switch is begun.
    ///
    /// # Errors
    /// It does still: what.
    fn until_fit(&self, most: Duration) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let found = self.findings();
            let forbidding = found.iter().filter(|finding| finding.forbids_switch());
            let why: Vec<String> = forbidding.map(RegionFinding::line).collect();
            if why.is_empty() {
                return Ok(());
            }
            if began.elapsed() >= most.min(SAID_AGAIN_MAX) || self.opened.driver.is_ending() {
                return Err(why.join("; "));
            }
            self.opened.driver.pause(LOOK_INTERVAL);
        }
    }

    /// See [`fence_order::order`].
    pub(super) fn fence(&self, order: &RegionOrder, is_on: bool) -> Result<Value, String> {
        let (part, other) = self.other()?;
        let mut answer = self.about(other);
        let of = (&*self.opened, &**part);
        if order.dry_run {
            let found = fence_order::outlook(of, &self.group, is_on);
            add(
                &mut answer,
                json!({
                    "obstacles": found.obstacles,
                    "notes": found.notes,
                    "reached": found.reached,
                }),
            );
            return Ok(answer);
        }
        let Some(_alone) = self.under_way.try_lock() else { return Err(under_way()) };
        if order.reason.chars().count() > REASON_CHARACTERS_MAX {
            return Err(format!("a reason has at most {REASON_CHARACTERS_MAX} characters"));
        }
        let reason = order.reason.chars().filter(|letter| !letter.is_control());
        let (by, reason) = (by(order), reason.collect::<String>());
        let about = ((by.as_str(), reason.as_str()), longest(order));
        let done = fence_order::order(of, &self.group, is_on, about)?;
        add(
            &mut answer,
            json!({
                "fenced": is_on,
                "kept_by": done.kept_by,
                "not_reached": done.not_reached,
                "end_lsn": done.end.map(|end| end.to_string()),
                "steps": steps(&done.steps),
            }),
        );
        Ok(answer)
    }

    /// Switches, and keeps the report: the history of the other group, and what is to be answered.
    ///
    /// # Errors
    /// It was refused, or taken back: why.
    fn carry_out(
        &self,
        part: &RegionPart,
        cause: &ChangeCause,
        most: Duration,
    ) -> Result<(HistoryId, Value), String> {
        if self.opened.door().is_some() {
            self.until_fit(most)?;
        }
        let end = region_switch::switch(&self.opened, part, &self.group, (cause, most));
        let (course, history, outcome, why) = match end {
            SwitchEnd::Refused(why) => return Err(why),
            SwitchEnd::TakenBack(course, why) => (course, None, ReportOutcome::TakenBack, why),
            SwitchEnd::Done(history, course) => {
                (course, Some(history), ReportOutcome::Done, String::new())
            }
            SwitchEnd::InDoubt(history, course, why) => {
                (course, Some(history), ReportOutcome::InDoubt, why)
            }
        };
        let kind = match cause.kind {
            ChangeKind::DrillReturn => ReportKind::DrillReturn,
            ChangeKind::Drill { .. } => ReportKind::Drill,
            ChangeKind::Switch | ChangeKind::Failover => ReportKind::Switch,
        };
        let mut report = self.reports.of_switch((kind, history), &course, (outcome, &why));
        if kind == ReportKind::Drill && outcome == ReportOutcome::Done {
            // That was the half of it.
            report.outcome = ReportOutcome::UnderWay;
        }
        let kept = self.reports.keep(&cause.by, self.wall(), report);
        let Some(history) = history else { return Err(with_report(why, &kept)) };
        let mut answer = json!({
            "history": history.to_string(),
            "in_doubt": (outcome == ReportOutcome::InDoubt).then_some(why),
            "steps": steps(&course.steps),
            "closed_ms": course.closed_ms,
        });
        add(&mut answer, kept);
        Ok((history, answer))
    }

    /// The second half of a drill that `by` ordered: this group, which is live by it, switches
    /// back, and steps down.
    ///
    /// # Errors
    /// It was refused, or taken back: why.
    pub(super) fn goes_back(&self, by: &str, most: Duration) -> Result<(), String> {
        let (part, _) = self.other()?;
        let Some(_alone) = self.under_way.try_lock() else { return Err(under_way()) };
        let (by, instance) = (by.to_owned(), self.group.instance.clone());
        let cause = ChangeCause { kind: ChangeKind::DrillReturn, by, instance };
        let (history, _) = self.carry_out(part, &cause, most)?;
        region_switch::step_down(&self.opened, history);
        Ok(())
    }

    /// Keeps a report that the command completed.
    ///
    /// # Errors
    /// Why it is not kept.
    pub(super) fn report(&self, report: Value) -> Result<Value, String> {
        self.reports.complete(report)
    }

    fn wall(&self) -> Time {
        self.opened.clock.wall()
    }

    /// See [`returning::order`].
    pub(super) fn rejoin(
        &self,
        order: &RegionOrder,
    ) -> Result<(Value, Option<Afterwards>), String> {
        let (part, other) = self.other()?;
        let mut answer = self.about(other);
        let Some(_alone) = self.under_way.try_lock() else { return Err(under_way()) };
        if order.dry_run {
            let found = returning::outlook(&self.opened, part, order.discard);
            let fork = found.known.as_ref().map(|known| Lsn(known.fork));
            let tail = fork.map_or(0, |fork| found.end.0.saturating_sub(fork.0));
            let exported = found.exported.as_ref();
            add(
                &mut answer,
                json!({
                    "obstacles": found.obstacles,
                    "fork_lsn": fork.map(|fork| fork.to_string()),
                    "end_lsn": found.end.to_string(),
                    "tail_bytes": tail,
                    "exported_lsn": exported.map(|note| Lsn(note.tail.end).to_string()),
                    "exported_file": exported.map(|note| note.file.clone()),
                }),
            );
            return Ok((answer, None));
        }
        let id = towline_process::random::bytes();
        let (by, now) = (by(order), self.wall());
        let found = returning::outlook(&self.opened, part, order.discard);
        let ordered = returning::order(&self.opened, part, order.discard, (&by, id))?;
        let exported = found.exported.map(|note| note.file);
        let tail_bytes = found.end.0.saturating_sub(ordered.fork);
        let report = self.reports.of_rejoin(tail_bytes, exported.as_deref());
        add(&mut answer, self.reports.keep(&by, now, report));
        add(
            &mut answer,
            json!({ "order": hexadecimal(&id), "fork_lsn": Lsn(ordered.fork).to_string() }),
        );
        let opened = Arc::clone(&self.opened);
        Ok((answer, Some(Box::new(move || opened.driver.begins_return_with_others()))))
    }

    /// See [`RegionPart::go_alone`].
    pub(super) fn go_alone(&self, order: &RegionOrder) -> Result<Value, String> {
        let (part, other) = self.other()?;
        let mut answer = self.about(other);
        let sync = region::sync_status(part);
        let why_not = part.why_not_alone();
        if !order.dry_run {
            part.go_alone(&by(order))?;
        }
        let obstacles: Vec<String> = why_not.filter(|_| order.dry_run).into_iter().collect();
        add(&mut answer, json!({ "obstacles": obstacles, "before": sync }));
        Ok(answer)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why not, and where the report of it is.
fn with_report(why: String, kept: &Value) -> String {
    match kept.get("report_file").and_then(Value::as_str) {
        Some(file) => format!("{why} (report: {file})"),
        None => why,
    }
}

fn under_way() -> String {
    "a change of roles is under way in this process".to_owned()
}

fn longest(order: &RegionOrder) -> Duration {
    Duration::from_millis(order.timeout_ms).min(TIMEOUT_MAX)
}

/// The user that ordered it, as it is in the history.
fn by(order: &RegionOrder) -> String {
    let name = order.by.chars().filter(|letter| !letter.is_control());
    match name.take(BY_CHARS_MAX).collect::<String>() {
        name if name.is_empty() => "an administrator".to_owned(),
        name => name,
    }
}

fn steps(steps: &[(&'static str, u64)]) -> Vec<Value> {
    steps.iter().map(|(step, ms)| json!({ "step": step, "ms": ms })).collect()
}

fn add(to: &mut Value, more: Value) {
    if let (Some(to), Value::Object(more)) = (to.as_object_mut(), more) {
        to.extend(more);
    }
}
