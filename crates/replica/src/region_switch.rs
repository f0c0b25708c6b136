//! A planned switch: the other group is to be live, and nothing is lost. It is ordered at the
//! active instance of the live group.
//!
//! The backlog is shipped first, while clients are served, and something is written that the other
//! group acknowledges: a log that has stood still says nothing of whether a majority there writes
//! still. Then clients are let go, nothing more is decided, and when the other group has all of the
//! log, one last batch says that it is live. Until then all of it is taken back when something
//! fails or takes too long; from then on there is no way back, and the other group serves when it
//! has that batch.
//!
//! Not here: what follows on both sides (`Driver::becomes`), shipping (`towline_replication`).
//! Invariants: the last batch is decided only when the recovery point is the end of the log, with
//! nothing decided since, and the other group has acknowledged something that was written for this
//! switch; no client waits for longer than [`closed_most`] for a switch that is taken back; one
//! that is taken back leaves the instance as it was, but for its clients, which connect again.

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::{
    REGION_SWITCH_BACK, REGION_SWITCH_BEGUN, REGION_SWITCH_IN_DOUBT, REGION_SWITCHED,
};
use towline_config::GroupConfig;
use towline_engine::Door;
use towline_group::{Mode, may_begin_behind};
use towline_logging::log as say;
use towline_node::Farewell;
use towline_os::time::Instant;
use towline_replication::driver::Driver;
use towline_replication::region_part::{RegionPart, RegionView};
use towline_types::{ChangeCause, ChangeKind, HistoryId, Lsn};

use crate::open::OpenReplica;
use crate::region::place_of_history;

/// Clients are let go when no more than this is on its way: it arrives within a moment.
const CLOSE_BYTES_MAX: u64 = 256 * 1024;
/// Behind the last batch its acknowledgement is waited for so long at least: there is no way back.
const ACKNOWLEDGED_MIN: Duration = Duration::from_secs(2);

/// Without clients what is on its way is waited for so long, and some round trips: the other group
/// acknowledged something a moment before.
const CLOSED_MOST: Duration = Duration::from_secs(5);
/// Beside that: to hear of what was decided last, with what is lost said again.
const CLOSED_ROUND_TRIPS: u32 = 8;

/// What the other group has lacked for so long, microseconds, while it acknowledged nothing: it
/// writes no more, and is not only slow.
const STILL_US: u64 = 5_000_000;
/// What the other group's relay has for so long, microseconds, and its majority has not, waits for
/// instances that do not run.
const NO_MAJORITY_US: u64 = 2_000_000;
/// What the other group said of itself longer ago counts for nothing: it is said twice a second.
const CONDITION_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether the last batch is committed.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// What is to be expected of a switch, ordered now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchOutlook {
    /// Why it would be refused.
    pub obstacles: Vec<String>,
    /// What the operator should know besides.
    pub notes: Vec<String>,
    /// Messages that are not persistent, and are dropped.
    pub non_persistent: u64,
    /// Bytes of log that the other group lacks.
    pub backlog_bytes: u64,
    /// Persistent messages put that it lacks.
    pub backlog_puts: u64,
    /// Persistent messages removed here that it still has.
    pub backlog_removals: u64,
    /// Age of the oldest commit that it lacks, microseconds.
    pub backlog_age_us: u64,
    /// Clients that are connected.
    pub clients: u64,
}

/// How a switch went that was begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchCourse {
    /// Each step, and when it was done: milliseconds since the order.
    pub steps: Vec<(&'static str, u64)>,
    /// When clients were let go, milliseconds since the order; `None`: they were not.
    pub let_go_ms: Option<u64>,
    /// From then on, until the other group had all or it was taken back, milliseconds.
    pub closed_ms: u64,
    /// As it was when it was ordered.
    pub outlook: SwitchOutlook,
}

/// What becomes of a switch.
#[derive(Debug)]
pub enum SwitchEnd {
    /// Nothing was begun: why.
    Refused(String),
    /// It was begun, and taken back: why. This group serves as before.
    TakenBack(SwitchCourse, String),
    /// The other group has all of the log, and is live in this history. This instance is to step
    /// down.
    Done(HistoryId, SwitchCourse),
    /// The last batch is decided, and not acknowledged: why. This instance is to step down.
    InDoubt(HistoryId, SwitchCourse, String),
}

/// Looks what stands in the way.
#[must_use]
pub fn outlook(opened: &OpenReplica, part: &RegionPart, group: &GroupConfig) -> SwitchOutlook {
    let driver = &opened.driver;
    let mut found = SwitchOutlook::default();
    let Some(door) = opened.door().filter(|_| driver.leads()) else {
        let active = driver.active_peer().map(|peer| driver.name(peer));
        found.obstacles.push(match (driver.mode(), active) {
            (Mode::Recovery | Mode::Promoting, _) => format!(
                "group '{}' is not live: order the switch at the active instance of the live group",
                group.name
            ),
            (Mode::Voting, Some(active)) => {
                format!("this instance is not active: order the switch at instance '{active}'")
            }
            (Mode::Voting, None) => "the group has no active instance".to_owned(),
        });
        return found;
    };
    if driver.is_fenced() {
        found.obstacles.push(format!("{}: see 'towline status --groups'", driver.fence_why()));
        return found;
    }
    let view = part.view();
    found.obstacles = obstacles(&view, door);
    found.obstacles.extend(too_few(driver, part));
    found.notes = view.differences.iter().map(ToString::to_string).collect();
    found.non_persistent = door.look(|instance| instance.non_persistent_messages());
    found.clients = door.look(|instance| instance.connected_clients());
    if let Some(shipping) = &view.shipping {
        let exposure = &shipping.exposure;
        found.backlog_bytes = exposure.bytes;
        found.backlog_puts = exposure.puts;
        found.backlog_removals = exposure.removals;
        found.backlog_age_us = exposure.age_us;
    }
    found
}

fn obstacles(view: &RegionView, door: &Door) -> Vec<String> {
    let mut found = Vec::new();
    let Some(shipping) = &view.shipping else {
        return vec!["this instance ships no log: group.recovery.enabled is false".to_owned()];
    };
    if let Some(why) = &view.partition {
        found.push(format!("the logs of both groups are not one: {why}"));
    } else if view.needs_copy {
        found.push("the other group needs a copy of the log first".to_owned());
    } else if !shipping.connected {
        let why = view.trouble.as_ref().unwrap_or(&view.link.trouble);
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        found.push(format!("the other group is not connected{why}"));
    } else if !shipping.is_known || !shipping.reports {
        found.push("the other group has not reported yet how far it is".to_owned());
    } else if shipping.exposure.age_us > NO_MAJORITY_US
        && shipping.point.received > shipping.point.place.end
    {
        let why = "one instance of the other group has what a majority of it lacks: too few run";
        found.push(why.to_owned());
    } else if shipping.still_us > STILL_US {
        found.push(format!(
            "the other group lacks {} bytes of the log, and has acknowledged nothing for {} s: its \
             disks do not answer, or too few of its instances run",
            shipping.exposure.bytes,
            shipping.still_us / 1_000_000
        ));
    }
    if door.look(|instance| instance.histories().is_empty()) {
        found.push("the log has no history yet: the other group was not connected".to_owned());
    }
    if door.look(|instance| instance.is_closed()) {
        found.push("a change of roles is under way".to_owned());
    }
    found
}

/// Without a majority there the last batch would be acknowledged by none, and no group would serve.
fn too_few(driver: &Driver, part: &RegionPart) -> Option<String> {
    let heard = part.condition()?;
    let counts = (heard.condition.configured_count, heard.condition.connected_count);
    too_few_of(counts, driver.now().since(heard.said.oldest()))
}

fn too_few_of((all, connected): (u64, u64), age: Duration) -> Option<String> {
    (age < CONDITION_MAX && connected <= all / 2).then(|| {
        format!("only {connected} of {all} instances of the other group are connected: too few")
    })
}

/// Switches to the other group, as `cause` says. Behind [`SwitchEnd::Done`] and
/// [`SwitchEnd::InDoubt`] the caller calls [`step_down`], once its answer is on its way.
pub fn switch(
    opened: &OpenReplica,
    part: &RegionPart,
    group: &GroupConfig,
    (cause, most): (&ChangeCause, Duration),
) -> SwitchEnd {
    assert!(cause.kind != ChangeKind::Failover, "a fail-over is no switch");
    let found = outlook(opened, part, group);
    if !found.obstacles.is_empty() {
        return SwitchEnd::Refused(found.obstacles.join("; "));
    }
    let (Some(door), Some(recovery)) = (opened.door(), &group.recovery) else {
        return SwitchEnd::Refused("this instance is not active".into());
    };
    let to = recovery.name.as_str();
    let driver = &opened.driver;
    let cause = cause.to_string();
    let course = SwitchCourse { outlook: found, ..SwitchCourse::default() };
    Switch { driver, part, door, to, cause, began: Instant::now(), most, course }.run()
}

/// This instance led the group that was live: as soon as the last batch is committed, it is one of
/// a recovery group, and re-executes itself. Waits for that, unless it leads no more.
pub fn step_down(opened: &OpenReplica, history: HistoryId) {
    let driver = &opened.driver;
    let is_applied = || {
        let door = opened.door();
        door.is_some_and(|door| door.look(|it| it.histories().get(history).is_some()))
    };
    while driver.leads() && !driver.is_ending() {
        if driver.wait_until(LOOK_MAX, is_applied) {
            if let Some(at) = place_of_history(driver, history) {
                driver.becomes(false, history, at);
            }
            return;
        }
    }
}

/// For how long clients wait at most for a switch that is taken back.
fn closed_most(round_trip: Duration) -> Duration {
    CLOSED_MOST.saturating_add(round_trip.saturating_mul(CLOSED_ROUND_TRIPS))
}

struct Switch<'a> {
    driver: &'a Driver,
    part: &'a RegionPart,
    door: &'a Arc<Door>,
    to: &'a str,
    cause: String,
    began: Instant,
    most: Duration,
    course: SwitchCourse,
}

impl Switch<'_> {
    fn run(mut self) -> SwitchEnd {
        if let Err(why) = self.ship() {
            self.step("taken_back");
            let why = format!("{why}; it was taken back: clients were served all the time");
            return SwitchEnd::TakenBack(self.course, why);
        }
        self.step("shipped");
        say(&REGION_SWITCH_BEGUN, &[self.to, &self.cause]);
        self.course.let_go_ms = Some(self.ms());
        let decided = self.close().and_then(|()| self.decide());
        let history = match decided {
            Ok(history) => history,
            Err(why) => return self.take_back(&why),
        };
        self.step("decided");
        let left = self.most.saturating_sub(self.began.elapsed()).max(ACKNOWLEDGED_MIN);
        let acknowledged = self.until_acknowledged(history, left);
        self.course.closed_ms = self.closed_ms();
        if let Err(why) = acknowledged {
            say(&REGION_SWITCH_IN_DOUBT, &[self.to, &why]);
            return SwitchEnd::InDoubt(history, self.course, why);
        }
        self.step("acknowledged");
        let ms = self.course.closed_ms.to_string();
        say(&REGION_SWITCHED, &[self.to, &history.to_string(), &ms]);
        SwitchEnd::Done(history, self.course)
    }

    /// Since the order.
    fn ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Since clients were let go.
    fn closed_ms(&self) -> u64 {
        self.ms().saturating_sub(self.course.let_go_ms.unwrap_or(0))
    }

    /// Ships the backlog, and has the other group acknowledge what is written now, while clients
    /// are served.
    fn ship(&self) -> Result<(), String> {
        if !self.wait(|it| it.backlog_is_below(CLOSE_BYTES_MAX)) {
            return Err(self.behind());
        }
        let mut why = String::new();
        let is_marked = self.wait(|it| match it.door.mark_log() {
            Ok(()) => true,
            Err(refused) => {
                why = refused;
                false
            }
        });
        if !is_marked {
            return Err(why);
        }
        let mark = self.driver.log().tail();
        let mut few = None;
        let is_heard = self.wait(|it| {
            few = too_few(it.driver, it.part);
            let has_mark = it.recovery_point() >= mark && it.backlog_is_below(CLOSE_BYTES_MAX);
            has_mark || few.is_some()
        });
        match (is_heard, few) {
            (_, Some(few)) => Err(few),
            (true, None) => Ok(()),
            (false, None) => Err(format!(
                "{}: it has not acknowledged what was written for this switch",
                self.behind()
            )),
        }
    }

    /// Lets clients go, and from then on nothing is decided.
    fn close(&mut self) -> Result<(), String> {
        self.driver.lets_no_client_in();
        self.door.end(Farewell::HandsOver);
        let mut why = String::new();
        let is_closed = self.wait(|it| match it.door.close_for_switch(it.to) {
            Ok(()) => true,
            Err(refused) => {
                why = refused;
                false
            }
        });
        if !is_closed {
            return Err(why);
        }
        self.step("closed");
        if !self.wait(|it| it.backlog_is_below(0)) {
            return Err(self.behind());
        }
        self.step("received");
        Ok(())
    }

    /// The other group has all of the log: the last batch says that it is live.
    fn decide(&self) -> Result<HistoryId, String> {
        let (end, tail) = (self.driver.committed_end(), self.driver.log().tail());
        if end < tail {
            return Err("the log went on behind what the other group has".into());
        }
        let term = self.driver.group().term;
        let history = loop {
            let id: [u8; 16] = towline_process::random::bytes();
            if may_begin_behind(term, &id) {
                break HistoryId(id);
            }
        };
        self.door.begin_history_behind(end, (history, self.to), &self.cause)?;
        Ok(history)
    }

    fn until_acknowledged(&self, history: HistoryId, most: Duration) -> Result<(), String> {
        let began = Instant::now();
        let left = || most.saturating_sub(began.elapsed());
        let is_applied = || self.door.look(|instance| instance.histories().get(history).is_some());
        if !self.driver.wait_until(left(), || is_applied() || !self.driver.leads()) || !is_applied()
        {
            return Err(format!(
                "its last batch is decided, and not known to be committed in this group: as the next \
                 active instance has it or not, group '{}' is live, or this one goes on",
                self.to
            ));
        }
        let at = place_of_history(self.driver, history).ok_or("it is not found in this log")?;
        let has_all = || self.recovery_point() >= at.end || self.part.has_taken_over(history);
        let ends = || has_all() || !self.driver.leads();
        match self.driver.wait_until(left(), ends) && has_all() {
            true => Ok(()),
            false => Err(format!(
                "{}: its last batch is committed here, and group '{}' serves as soon as it has that",
                self.behind(),
                self.to
            )),
        }
    }

    fn take_back(mut self, why: &str) -> SwitchEnd {
        if self.driver.leads() {
            self.door.take_switch_back();
            self.driver.lets_clients_in();
        }
        self.course.closed_ms = self.closed_ms();
        self.step("taken_back");
        say(&REGION_SWITCH_BACK, &[self.to, why]);
        let why = format!("{why}; it was taken back: this group serves as before");
        SwitchEnd::TakenBack(self.course, why)
    }

    /// Up to where a majority of the other group has the log, as it reported on the link that
    /// stands.
    fn recovery_point(&self) -> Lsn {
        let shipping = self.part.view().shipping.filter(|it| it.connected && it.reports);
        shipping.map_or(Lsn::ZERO, |shipping| shipping.point.place.end)
    }

    fn backlog_is_below(&self, bytes: u64) -> bool {
        let (end, tail) = (self.driver.committed_end(), self.driver.log().tail());
        let point = self.recovery_point();
        let is_whole = bytes > 0 || end >= tail;
        point > Lsn::ZERO && is_whole && end.0.saturating_sub(point.0) <= bytes
    }

    fn behind(&self) -> String {
        let view = self.part.view();
        let known = view.shipping.unwrap_or_default();
        match known.connected {
            false => format!("group '{}' is not connected any more", self.to),
            true => {
                format!("group '{}' lacks {} bytes of the log still", self.to, known.exposure.bytes)
            }
        }
    }

    /// Until it is taken back.
    fn left(&self) -> Duration {
        let left = self.most.saturating_sub(self.began.elapsed());
        let Some(let_go_ms) = self.course.let_go_ms else { return left };
        let round_trip = self.part.view().link.link.round_trip_us.unwrap_or(0);
        let most = closed_most(Duration::from_micros(round_trip));
        let closed_until = Duration::from_millis(let_go_ms).saturating_add(most);
        left.min(closed_until.saturating_sub(self.began.elapsed()))
    }

    /// Waits until `done`, for as long as is left, and while this instance leads.
    fn wait(&self, mut done: impl FnMut(&Self) -> bool) -> bool {
        let mut is_done = false;
        self.driver.wait_until(self.left(), || {
            is_done = done(self);
            is_done || !self.driver.leads()
        });
        is_done
    }

    fn step(&mut self, name: &'static str) {
        let ms = self.ms();
        self.course.steps.push((name, ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_wait_some_seconds_and_round_trips_for_a_switch_that_is_taken_back() {
        assert_eq!(closed_most(Duration::ZERO), Duration::from_secs(5));
        assert_eq!(closed_most(Duration::from_millis(250)), Duration::from_secs(7));
    }

    #[test]
    fn a_group_without_a_majority_takes_over_from_none() {
        let now = Duration::ZERO;
        for (counts, is_refused) in
            [((3, 1), true), ((3, 2), false), ((3, 3), false), ((1, 1), false)]
        {
            assert_eq!(too_few_of(counts, now).is_some(), is_refused, "{counts:?}");
        }
        assert_eq!(too_few_of((3, 1), CONDITION_MAX), None, "that was said long ago");
    }
}
