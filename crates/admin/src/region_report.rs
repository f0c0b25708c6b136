//! The report of a change of roles, or of a drill: what was ordered, when, by which user, from
//! which group to which; each step with its time; what was at risk and how long no client was
//! served, against the objectives; what was lost; a verdict. As JSON it is this value; [`page`]
//! makes a page of it.
//!
//! Not here: what is measured (the instance that carries the order out, and the command), and where
//! reports are kept (the daemon). Invariants: what is not known is `None` and never a zero; the
//! verdict is calculated from the report alone, so two readers come to the same one.

mod lines;
mod page;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use lines::report_lines;
pub use page::page;

/// Version of the format: goes up when a field changes its meaning.
pub const REPORT_FORMAT: u32 = 1;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionReport {
    /// Version of the format.
    pub format: u32,
    /// Its name: that of its files, without their endings.
    pub name: String,
    /// What was ordered.
    pub kind: ReportKind,
    /// Queue manager.
    pub queue_manager: String,
    /// Group of the instance that carried the order out.
    pub group: String,
    /// The instance that carried the order out.
    pub instance: String,
    /// Version of its program.
    pub version: String,
    /// The user that ordered it.
    pub by: String,
    /// When it was ordered, milliseconds since the Unix epoch, by the clock of that instance.
    pub began_at: u64,
    /// From then until it was done, or given up, milliseconds.
    pub took_ms: u64,
    /// What came of it.
    pub outcome: ReportOutcome,
    /// Why it was not done, or what there is to do; empty: nothing.
    pub reason: String,
    /// Recovery point objective: bytes of log; 0: none.
    pub rpo_bytes: u64,
    /// The same: seconds; 0: none.
    pub rpo_s: u64,
    /// Recovery time objective, seconds; 0: none.
    pub rto_s: u64,
    /// One change of roles; of a drill: there, and back.
    pub ways: Vec<ReportWay>,
    /// What a client of the command put and found; `None`: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<ReportProbe>,
    /// How the figures compare with the objectives: see [`RegionReport::judge`].
    pub verdict: ReportVerdict,
    /// The same in words, a line for each figure.
    pub findings: Vec<String>,
}

/// What was ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// A planned switch.
    #[default]
    Switch,
    /// A fail-over.
    Failover,
    /// The return of an old live group.
    Rejoin,
    /// A drill: there and back.
    Drill,
    /// The second half of a drill, as the instance reports it that switched back.
    DrillReturn,
}

impl ReportKind {
    /// As names of files and JSON have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReportKind::Switch => "switch",
            ReportKind::Failover => "failover",
            ReportKind::Rejoin => "rejoin",
            ReportKind::Drill => "drill",
            ReportKind::DrillReturn => "drill_return",
        }
    }

    /// For people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            ReportKind::Switch => "Planned switch",
            ReportKind::Failover => "Fail-over",
            ReportKind::Rejoin => "Return of an old live group",
            ReportKind::Drill => "Drill: there and back",
            ReportKind::DrillReturn => "Return of a drill",
        }
    }
}

/// What came of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// It was begun, and its end was not seen.
    #[default]
    UnderWay,
    /// Done.
    Done,
    /// All is as it was before.
    TakenBack,
    /// It cannot be taken back, and its end was not seen in time.
    InDoubt,
    /// A drill that went there and did not come back.
    NotBack,
}

impl ReportOutcome {
    /// For people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            ReportOutcome::UnderWay => "begun; its end was not seen",
            ReportOutcome::Done => "done",
            ReportOutcome::TakenBack => "taken back: all is as it was",
            ReportOutcome::InDoubt => "in doubt",
            ReportOutcome::NotBack => "went there, and did not come back",
        }
    }
}

/// How the figures compare with the objectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportVerdict {
    /// No objective is configured, or what it is compared with is not known.
    #[default]
    NotJudged,
    /// All that are configured are met.
    Met,
    /// One is missed, something acknowledged is gone that must not be, or it was not done.
    Missed,
}

impl ReportVerdict {
    /// For people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            ReportVerdict::NotJudged => "not judged",
            ReportVerdict::Met => "met",
            ReportVerdict::Missed => "MISSED",
        }
    }
}

/// One change of roles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportWay {
    /// The group that was live.
    pub from: String,
    /// The group that is live then.
    pub to: String,
    /// The history that began; empty: none did, or it is not known.
    pub history: String,
    /// The instance that serves then; empty: not known.
    pub active: String,
    /// Each step, and when it was done.
    pub steps: Vec<ReportStep>,
    /// What would have been lost without it, when it was ordered (RPA).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_risk: Option<ReportRisk>,
    /// What was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<ReportRisk>,
    /// For so long no client could be served, milliseconds (RTO).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_ms: Option<u64>,
    /// How exactly that is known.
    #[serde(skip_serializing_if = "FigureBound::is_exact")]
    pub rto_is: FigureBound,
    /// What measured that: `instance`, `command` (from the status), `probe` (a client between two
    /// confirmed puts); or since when it counts: `last_heard` (the live group was heard last),
    /// `fence` (it said that it serves no client).
    pub rto_by: String,
    /// Clients that were let go; `None`: not known, or none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u64>,
    /// Non-persistent messages that were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_persistent: Option<u64>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportStep {
    /// Its name.
    pub step: String,
    /// When it was done: milliseconds since the order.
    pub ms: u64,
}

/// How exactly a figure is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureBound {
    /// It is that.
    #[default]
    Exact,
    /// It is that or more.
    AtLeast,
    /// It is that or less.
    AtMost,
}

impl FigureBound {
    /// Whether it is no bound.
    // The derived code calls it with a reference.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        matches!(self, FigureBound::Exact)
    }

    /// What stands before the figure.
    const fn words(self) -> &'static str {
        match self {
            FigureBound::Exact => "",
            FigureBound::AtLeast => "at least ",
            FigureBound::AtMost => "at most ",
        }
    }
}

/// What is, or was, at risk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportRisk {
    /// Bytes of log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How exactly that is known.
    #[serde(skip_serializing_if = "FigureBound::is_exact")]
    pub bytes_are: FigureBound,
    /// Puts of persistent messages. One that was removed as well is among the removals too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puts: Option<u64>,
    /// Removals of persistent messages: no more messages than that come again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removals: Option<u64>,
    /// Age of the oldest commit of it, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_us: Option<u64>,
    /// How exactly that is known.
    #[serde(skip_serializing_if = "FigureBound::is_exact")]
    pub age_is: FigureBound,
    /// What else there is to say of it; empty: nothing.
    pub note: String,
}

/// What a client of the command saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportProbe {
    /// The queue.
    pub queue: String,
    /// Puts that were confirmed.
    pub confirmed: u64,
    /// Puts that failed, or of which it is not known.
    pub unconfirmed: u64,
    /// Of the confirmed ones, those that were not on the queue at the end; `None`: it was not
    /// looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
    /// Of those, the ones that are lost; `None`: it is not known, for others may have got them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Those that were found more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubled: Option<u64>,
}

impl RegionReport {
    /// Calculates verdict and findings anew from the rest.
    pub fn judge(&mut self) {
        let mut judgement = Judgement::default();
        if self.outcome != ReportOutcome::Done {
            judgement.says(false, format!("outcome: {}", self.outcome.words()));
        }
        for way in &self.ways {
            self.judge_way(way, &mut judgement);
        }
        if let Some(probe) = &self.probe {
            judgement.of_probe(probe);
        }
        // Without loss alone, no objective was met.
        let has_objective = self.rpo_bytes > 0 || self.rpo_s > 0 || self.rto_s > 0;
        self.verdict = match (judgement.missed, has_objective && judgement.unknown == 0) {
            (true, _) => ReportVerdict::Missed,
            (false, true) => ReportVerdict::Met,
            (false, false) => ReportVerdict::NotJudged,
        };
        self.findings = judgement.lines;
    }

    fn judge_way(&self, way: &ReportWay, judgement: &mut Judgement) {
        let ReportWay { from, to, .. } = way;
        let risk = way.at_risk.clone().unwrap_or_default();
        let (rpo_ms, rto_ms) = (self.rpo_s.saturating_mul(1_000), self.rto_s.saturating_mul(1_000));
        let age_ms = risk.age_us.map(|us| us / 1_000);
        judgement.judge(
            &format!("{from} to {to}: RPA in bytes"),
            (risk.bytes, risk.bytes_are),
            (self.rpo_bytes, "bytes"),
        );
        let name = format!("{from} to {to}: RPA in time");
        judgement.judge(&name, (age_ms, risk.age_is), (rpo_ms, "ms"));
        let name = format!("{from} to {to}: RTO");
        match (way.rto_ms, way.rto_is) {
            // It is seen late that the other group serves: that shows nothing of an objective.
            (Some(most), FigureBound::AtMost) if rto_ms > 0 && most > rto_ms => {
                judgement.is_open(format!("{name} at most {most} ms, objective {rto_ms}"));
            }
            rto => judgement.judge(&name, rto, (rto_ms, "ms")),
        }
        if let Some(loss) = &way.loss
            && matches!(self.kind, ReportKind::Switch | ReportKind::Drill | ReportKind::DrillReturn)
        {
            let bytes = loss.bytes.unwrap_or(0);
            judgement.says(bytes == 0, format!("{from} to {to}: lost {bytes} bytes of log"));
        }
    }
}

/// What is found while a report is judged.
#[derive(Default)]
struct Judgement {
    missed: bool,
    unknown: u32,
    lines: Vec<String>,
}

impl Judgement {
    fn of_probe(&mut self, probe: &ReportProbe) {
        let of = format!("probe: of {} confirmed messages", probe.confirmed);
        let doubled = probe.doubled.unwrap_or(0);
        match (probe.lost, probe.missing) {
            (Some(lost), missing) => {
                let others = match missing.unwrap_or(lost).saturating_sub(lost) {
                    0 => String::new(),
                    more => format!(", {more} more were not there: others may have got them"),
                };
                let is_whole = lost == 0 && doubled == 0;
                self.says(is_whole, format!("{of} {lost} lost, {doubled} doubled{others}"));
            }
            (None, Some(missing)) => {
                self.unknown += 1;
                self.missed |= doubled > 0;
                self.lines.push(format!(
                    "{of} {missing} were not on the queue at the end, {doubled} doubled: others \
                     may have got them, and whether any is lost is not known"
                ));
            }
            (None, None) => {
                self.unknown += 1;
                self.lines.push(format!("{of} none was counted at the end: not known"));
            }
        }
    }

    /// Compares a figure with its objective; 0: there is none.
    fn judge(
        &mut self,
        name: &str,
        (figure, bound): (Option<u64>, FigureBound),
        (most, unit): (u64, &str),
    ) {
        let Some(figure) = figure else {
            if most > 0 {
                self.unknown += 1;
                self.lines.push(format!("{name} not known, objective {most} {unit}"));
            }
            return;
        };
        let says = format!("{name} {}{figure} {unit}", bound.words());
        match bound {
            _ if most == 0 => self.lines.push(format!("{says}, no objective")),
            // What is more than that is not known.
            FigureBound::AtLeast if figure <= most => {
                self.is_open(format!("{says}, objective {most}"));
            }
            FigureBound::AtMost if figure > most => {
                self.says(false, format!("{says}, objective {most}, and nothing shows less"));
            }
            FigureBound::Exact | FigureBound::AtLeast | FigureBound::AtMost => {
                self.says(figure <= most, format!("{says}, objective {most}"));
            }
        }
    }

    fn is_open(&mut self, line: String) {
        self.unknown += 1;
        self.lines.push(format!("{line}: not known whether met"));
    }

    fn says(&mut self, is_met: bool, line: String) {
        self.missed |= !is_met;
        self.lines.push(format!("{line}: {}", if is_met { "met" } else { "MISSED" }));
    }
}
