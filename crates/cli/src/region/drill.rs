//! `towline region drill`: switches to the other region under load, stays there, and has it switch
//! back; a client of its own measures for how long no put was confirmed.
//!
//! It is ordered once, here: that the other group goes back, and when, stands in the log with the
//! switch. So the drill goes back also when this command, or the instance that it asked, ends.
//!
//! Not here: the switches (the instances decide), the client (`probe`), what is in the report.
//! Invariants: without `--yes`, nothing is changed before the answer of a person at a terminal;
//! whatever comes of it, the last line says which group is live and what there is to do.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use towline_admin::region_report::{
    FigureBound, RegionReport, ReportKind, ReportOutcome, ReportProbe, ReportRisk, ReportStep,
    ReportVerdict, ReportWay, report_lines,
};
use towline_admin::status::{
    FindingWeight, GroupStatus, OtherRegionStatus, RegionFinding, nothing_stands, region_findings,
    region_findings_table,
};

use super::change::{ChangeResult, Outlook, carried_out, follows, in_doubt};
use super::probe::{Probe, ProbeFound, ProbeSeen};
use super::probe_queue::ProbeQueue;
use super::report::{self, KeptReport};
use crate::arguments::{Reach, RegionDrill};
use crate::control::{AskError, ControlClient, understood};
use crate::failure::Failure;
use crate::group::question::{can_ask, confirm};
use crate::patience::Patience;
use crate::reach::Connector;
use crate::{progress, show};

/// An answer to the probe is waited for so long: then it tries the next address.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// The first put of the probe is waited for so long, before anything is changed.
const FIRST_PUT_MAX: Duration = Duration::from_secs(30);

/// Runs the command.
pub(super) fn run(arguments: &RegionDrill) -> Result<(), Failure> {
    let here = &arguments.here;
    if here.timeout <= 0.0 {
        return Err(Failure::Usage("--timeout 0 leaves no time to carry anything out".into()));
    }
    if !arguments.dry_run {
        can_ask(arguments.yes)?;
    }
    let longest = Duration::from_secs_f64(here.timeout);
    let mut asking = ControlClient::reach(&here.data, longest)?;
    let group = asking.group()?;
    let dry = json!({ "do": "region_switch", "dry_run": true });
    let outlook: Outlook = understood(asking.ask(&dry)?)?;
    let others = other_addresses(arguments, &group);
    checked(arguments, (&group, &outlook), &others)?;
    if arguments.dry_run {
        return Ok(());
    }
    let dropped = match outlook.non_persistent {
        Some(count) if count > 0 => format!(" {count} non-persistent messages are dropped."),
        _ => String::new(),
    };
    let (own, other, stay) = (&outlook.group, &outlook.other, arguments.stay.as_secs());
    let question = format!("Switch from group {own} to group {other}, and back after {stay} s?");
    confirm(arguments.yes, &format!("{question}{dropped}"))?;
    let connectors = connectors(arguments, &others)?;
    let own_way = connectors.first().ok_or_else(|| Failure::failed("there is no address"))?;
    let queue = ProbeQueue::prepare(arguments.queue.as_deref(), own_way)?;
    let (probe, ways) = Probe::start(connectors, queue, &mark()?)?;
    let drill = Drill { arguments, own, other, stay, probe, ways: &ways };
    drill.run()
}

/// Addresses of clients that are tried besides this instance's own socket.
fn other_addresses(arguments: &RegionDrill, group: &GroupStatus) -> Vec<String> {
    match arguments.other_url.is_empty() {
        false => arguments.other_url.clone(),
        true => {
            let other = group.other_region.as_ref();
            other.map(|other| other.advertised.clone()).unwrap_or_default()
        }
    }
}

/// Shows what stands in the way, and refuses if anything does.
fn checked(
    arguments: &RegionDrill,
    (group, outlook): (&GroupStatus, &Outlook),
    others: &[String],
) -> Result<(), Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let found = region_findings(group, now_ms).unwrap_or_default();
    let stands = found.iter().filter(|finding| finding.weight == FindingWeight::Stands);
    let mut obstacles: Vec<String> = outlook.obstacles.clone();
    // Some of it the instance has said already.
    obstacles.extend(stands.map(RegionFinding::line).filter(|it| !outlook.obstacles.contains(it)));
    if others.is_empty() {
        obstacles.push(
            "no address of clients of the other group is known: give --other-url, or 'clients' of \
             [[group.member]] in the configuration of both groups"
                .to_owned(),
        );
    }
    if arguments.here.json && arguments.dry_run {
        let clients = others;
        show::json(&json!({
            "group": outlook.group, "other": outlook.other, "obstacles": obstacles,
            "checks": found, "clients": clients, "non_persistent": outlook.non_persistent,
        }))?;
    } else if !arguments.here.json {
        let (own, other, stay) = (&outlook.group, &outlook.other, arguments.stay.as_secs());
        show::line(&format!("Drill from group {own} to group {other}, and back after {stay} s"))?;
        if !nothing_stands(&found) || arguments.dry_run {
            show::lines(region_findings_table(&found).trim_end())?;
        }
        for why in &outlook.obstacles {
            show::line(&format!("  in the way: {why}"))?;
        }
    }
    match (obstacles.is_empty(), arguments.dry_run) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::Unfit),
        (false, false) => Err(Failure::Failed(obstacles.join("; "))),
    }
}

/// Ways to this instance's own socket, and to the other addresses.
fn connectors(arguments: &RegionDrill, others: &[String]) -> Result<Vec<Connector>, Failure> {
    let timeout = arguments.here.timeout.min(PROBE_MAX.as_secs_f64());
    let login = &arguments.login;
    let of = |data: Option<&Path>, url: Option<&str>| Reach {
        data: data.map(Path::to_owned),
        url: url.map(str::to_owned),
        password_file: login.password_file.clone(),
        sasl: login.sasl,
        ca: login.ca.clone(),
        cert: login.cert.clone(),
        key: login.key.clone(),
        timeout,
        json: false,
    };
    let mut all = vec![of(Some(&arguments.here.data), None).connector()?];
    for url in others {
        all.push(of(None, Some(url)).connector()?);
    }
    Ok(all)
}

/// A random name that marks the messages of this drill: it cannot be guessed.
fn mark() -> Result<String, Failure> {
    let mut random = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A drill that is carried out.
struct Drill<'a> {
    arguments: &'a RegionDrill,
    own: &'a str,
    other: &'a str,
    /// Seconds.
    stay: u64,
    probe: Probe,
    ways: &'a [Connector],
}

impl Drill<'_> {
    fn run(mut self) -> Result<(), Failure> {
        let here = &self.arguments.here;
        let longest = Duration::from_secs_f64(here.timeout);
        if !self.probe.until_confirmed(Patience::of(longest.min(FIRST_PUT_MAX))) {
            let trouble = self.probe.seen().trouble;
            return Err(Failure::Failed(format!("nothing was changed: no put: {trouble}")));
        }
        self.probe.begins();
        let ordered = Instant::now();
        let order = json!({ "do": "region_switch", "back_after_s": self.stay });
        let (patience, result) = carried_out::<ChangeResult>(here, &order, "switching there")?;
        let mut result = match result {
            Err(AskError::Lost { .. }) => ChangeResult::default(),
            // It is refused, or taken back: the reason says so, and where the report is.
            Err(refused) => {
                let seen = self.probe.end();
                self.counted(&seen);
                return Err(refused.into());
            }
            Ok(answered) => answered,
        };
        let mut report = result.report.take().unwrap_or_else(|| self.unheard());
        if let Some(why) = result.in_doubt.take() {
            return self.ends(
                report,
                ReportOutcome::InDoubt,
                in_doubt(self.other, &why, &KeptReport::default()),
            );
        }
        if !self.until_there(patience) {
            let why = format!(
                "group {} was not seen to take the put of a client in time: {}",
                self.other,
                self.probe.seen().trouble
            );
            return self.ends(report, ReportOutcome::InDoubt, why);
        }
        self.there(&mut report, ordered);
        let back = self.until_back(ordered, longest);
        match back {
            Ok((at, risk)) => {
                self.back(&mut report, at, risk);
                report.took_ms = ms(ordered.elapsed());
                self.ends(report, ReportOutcome::Done, String::new())
            }
            Err(why) => {
                report.took_ms = ms(ordered.elapsed());
                self.ends(report, ReportOutcome::NotBack, why)
            }
        }
    }

    /// The report of a switch of which the answer was lost.
    fn unheard(&self) -> RegionReport {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let way = ReportWay {
            from: self.own.to_owned(),
            to: self.other.to_owned(),
            ..ReportWay::default()
        };
        RegionReport {
            kind: ReportKind::Drill,
            by: super::change::user(),
            began_at: ms(since),
            ways: vec![way],
            ..RegionReport::default()
        }
    }

    /// Waits until this group follows, and a put was confirmed by the other one.
    fn until_there(&self, patience: Patience) -> bool {
        loop {
            if follows(&self.arguments.here.data, &patience) {
                return self.probe.until_confirmed(patience);
            }
            if !patience.pause() {
                return false;
            }
        }
    }

    fn there(&self, report: &mut RegionReport, ordered: Instant) {
        let seen = self.probe.seen();
        if let (Some(way), Some((gap, began))) = (report.ways.first_mut(), seen.gap) {
            let first_put = ms((began + gap).saturating_duration_since(ordered));
            way.steps.push(ReportStep { step: "first_put".into(), ms: first_put });
            way.steps.sort_by_key(|step| step.ms);
            (way.rto_ms, way.rto_by) = (Some(ms(gap)), "probe".to_owned());
            way.rto_is = FigureBound::Exact;
        }
        self.probe.begins();
    }

    /// Waits until this group is live again by the return, and a put was confirmed. Yields when it
    /// was seen to be live, and what was at risk before, as far as this side heard.
    ///
    /// # Errors
    /// Where it stands instead.
    fn until_back(
        &self,
        ordered: Instant,
        longest: Duration,
    ) -> Result<(Instant, ReportRisk), String> {
        let spinner = progress::spinner(self.arguments.here.json);
        spinner.set_message(format!("group {} is live", self.other));
        let stay = Duration::from_secs(self.stay).saturating_sub(ordered.elapsed());
        let patience = Patience::of(stay.saturating_add(longest));
        let (mut risk, mut last) = (ReportRisk::default(), None);
        // A switch leaves nothing behind.
        let mut had_all = ordered;
        let back = loop {
            let group = self.group(patience);
            if let Some(group) = group {
                let is_back = group.group_role == "live"
                    && group.serving
                    && group.role_changes.first().is_some_and(|row| row.kind == "drill_return");
                if is_back {
                    break Some(Instant::now());
                }
                let is_known =
                    |other: &&OtherRegionStatus| group.group_role == "recovery" && other.is_known;
                let recovery = group.other_region.as_ref().filter(is_known);
                if let Some(other) = recovery.filter(|other| other.backlog_bytes == 0) {
                    // When live said how far it was.
                    let said = Duration::from_millis(other.there_age_ms);
                    had_all = Instant::now().checked_sub(said).unwrap_or(had_all).max(had_all);
                }
                risk = recovery.map_or(risk, |other| risk_of(other, had_all.elapsed()));
                last = Some(group);
            }
            if !patience.pause() {
                break None;
            }
        };
        spinner.finish_and_clear();
        let Some(at) = back else {
            return Err(self.stands(last.as_ref()));
        };
        if !self.probe.until_confirmed(Patience::of(longest)) {
            let trouble = self.probe.seen().trouble;
            return Err(format!("group {} is live again, and takes no put: {trouble}", self.own));
        }
        Ok((at, risk))
    }

    fn group(&self, patience: Patience) -> Option<GroupStatus> {
        let longest = patience.left().min(PROBE_MAX);
        ControlClient::connect(&self.arguments.here.data, longest).ok()??.group().ok()
    }

    /// Which group is live, and what there is to do.
    fn stands(&self, last: Option<&GroupStatus>) -> String {
        let (own, other) = (self.own, self.other);
        let newest = last.and_then(|group| group.role_changes.first());
        let changed = newest.filter(|row| row.kind != "drill").map(|row| row.cause.as_str());
        match (last.map(|group| group.group_role.as_str()), changed) {
            (_, Some(cause)) => {
                format!("another change of roles ended the drill: {cause}; see the status of both")
            }
            (Some("recovery"), None) => format!(
                "group {other} is live, and group {own} follows it. It tries to go back for ten \
                 minutes; TWL4466W in the log of its active instance says why it cannot. \
                 'towline region switch --dry-run' there lists what stands in the way, and 'towline \
                 region switch' there goes back"
            ),
            (Some("live"), None) => {
                format!("group {own} is live, and no instance of it serves yet: see its status")
            }
            (Some(_) | None, None) => format!(
                "group {other} was live when it was seen last, and the instance here does not \
                 answer: see the status of both groups"
            ),
        }
    }

    fn back(&self, report: &mut RegionReport, at: Instant, risk: ReportRisk) {
        let mut way = ReportWay {
            from: self.other.to_owned(),
            to: self.own.to_owned(),
            at_risk: Some(risk),
            loss: Some(ReportRisk { bytes: Some(0), ..ReportRisk::default() }),
            rto_by: "probe".into(),
            ..ReportWay::default()
        };
        if let Some(group) = self.group(Patience::of(PROBE_MAX)) {
            way.active = group.active;
            way.history = group.history;
        }
        if let Some((gap, began)) = self.probe.seen().gap {
            let step = |name: &str, at: Instant| ReportStep {
                step: name.to_owned(),
                ms: ms(at.saturating_duration_since(began)),
            };
            way.rto_ms = Some(ms(gap));
            way.steps = vec![
                step("last_put", began),
                step("first_put", began + gap),
                step("seen_serving", at),
            ];
            way.steps.sort_by_key(|step| step.ms);
        }
        report.ways.push(way);
    }

    /// Ends the probe, completes the report, and says what came of it.
    fn ends(
        &mut self,
        mut report: RegionReport,
        outcome: ReportOutcome,
        reason: String,
    ) -> Result<(), Failure> {
        let seen = self.probe.end();
        report.outcome = outcome;
        report.probe = Some(self.counted(&seen));
        reason.clone_into(&mut report.reason);
        report.judge();
        let kept = report::complete(&self.arguments.here.data, &report);
        if outcome != ReportOutcome::Done {
            return Err(Failure::Failed(format!("{reason}{}", kept.in_brackets())));
        }
        if self.arguments.here.json {
            let mut said = serde_json::to_value(&report).unwrap_or_default();
            if let (Some(said), Ok(Value::Object(kept))) =
                (said.as_object_mut(), serde_json::to_value(&kept))
            {
                said.extend(kept);
            }
            show::json(&said)?;
        } else {
            show::lines(report_lines(&report).trim_end())?;
            kept.show()?;
        }
        match report.verdict {
            ReportVerdict::Missed => Err(Failure::Unfit),
            ReportVerdict::Met | ReportVerdict::NotJudged => Ok(()),
        }
    }

    /// What the probe put and found, wherever its queue is served now.
    fn counted(&self, seen: &ProbeSeen) -> ReportProbe {
        let mut found = ProbeFound::default();
        let count = self.ways.iter().find_map(|way| {
            let mut client = way.connect().ok()?;
            let count = self.probe.counted(&mut client, seen, &mut found).ok()?;
            client.close().ok();
            Some(count)
        });
        ReportProbe {
            queue: self.probe.queue().to_owned(),
            confirmed: seen.confirmed(),
            unconfirmed: seen.unconfirmed(),
            missing: count.map(|count| count.missing),
            lost: count.and_then(|count| count.lost),
            doubled: count.map(|count| count.doubled),
        }
    }
}

/// What the live group has that this one, which follows it, has not. It had all of it `ago`: what
/// it lacks now is no older. Only the live group knows the age itself.
fn risk_of(other: &OtherRegionStatus, ago: Duration) -> ReportRisk {
    let bytes = other.backlog_bytes;
    let age_us = if bytes == 0 { 0 } else { u64::try_from(ago.as_micros()).unwrap_or(u64::MAX) };
    ReportRisk {
        bytes: Some(bytes),
        age_us: Some(age_us),
        age_is: if bytes == 0 { FigureBound::Exact } else { FigureBound::AtMost },
        note: "as this side heard last".to_owned(),
        ..ReportRisk::default()
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
