//! `towline rolling-restart`: replicas one after the other, then the active after a switch; each
//! must be in sync again before the next one's turn. An instance executes the program that is on
//! disk then, so that this is also the upgrade.
//!
//! A group in recovery has no active instance: there the one that is shipped to comes last
//! (`recovery`).
//!
//! Invariants: without --force no instance is asked to restart while another one is out of sync.
//! After a failure nothing more is restarted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use towline_admin::status::{GroupRole, GroupStatus, InstanceStatus, ProcessMode};
use towline_types::Lsn;

use super::recovery::{self, WantedInstance, is_in_recovery, position_of, row_of};
use super::switch::hand_over;
use crate::arguments::RollingRestart;
use crate::control::{AskError, ControlClient, ControlReach, RESTART};
use crate::failure::Failure;
use crate::patience::Patience;
use crate::process::Process;
use crate::{progress, show};

/// An active instance that handed over re-executes by itself; after so long it is asked to.
const BY_ITSELF: Duration = Duration::from_secs(10);
/// What only looks is answered within this, and within the time-out.
const ANSWER: Duration = Duration::from_secs(10);

/// An instance on this machine.
struct Member {
    name: String,
    folder: PathBuf,
    /// As it reported before.
    group: GroupStatus,
}

/// An instance that was restarted.
#[derive(Serialize)]
struct Restarted {
    instance: String,
    /// Until it was in sync again.
    took_ms: u64,
    version_before: String,
    version_after: String,
    /// The instance that took over, when it was the active one.
    #[serde(skip_serializing_if = "Option::is_none")]
    switched_to: Option<String>,
}

/// Runs the command.
pub(crate) fn rolling(arguments: &RollingRestart) -> Result<(), Failure> {
    let mut members = Vec::new();
    let timeout = Duration::from_secs_f64(arguments.timeout);
    let look = Patience::of(timeout);
    for (folder, mut client) in instances(arguments, look)? {
        let group = client.group().map_err(|error| Failure::about(folder.display(), error))?;
        members.push(Member { name: group.instance.clone(), folder, group });
    }
    belong_together(&members, arguments)?;
    let roll = Roll { members: &members, arguments };
    if !arguments.force {
        roll.whole(look)?;
    }
    // The active one last, so that there is one switch; so is the one that is shipped to.
    let (active, replicas): (Vec<&Member>, Vec<&Member>) =
        members.iter().partition(|member| comes_last(&member.group));
    let bar = progress::steps(members.len(), arguments.json);
    let mut done = Vec::new();
    for member in replicas.into_iter().chain(active) {
        let restarted = roll.one(member, &bar)?;
        bar.inc(1);
        if !arguments.json {
            bar.suspend(|| show::line(&told(&restarted)))?;
        }
        done.push(restarted);
    }
    bar.finish_and_clear();
    let group = roll.view(Patience::of(timeout))?;
    if arguments.json {
        let restarted = serde_json::to_value(&done).unwrap_or_default();
        return show::json(&json!({
            "group": group.group_name,
            "restarted": restarted,
            "role": group.group_role,
            "active": group.active,
            "leader": recovery::leader(&group),
            "quorum": group.quorum(),
        }));
    }
    if is_in_recovery(&group) {
        let (name, told) = (&group.group_name, recovery::told(&group));
        return show::line(&format!("{name}: restarted {}, {told}", done.len()));
    }
    let (name, active, quorum) = (&group.group_name, &group.active, group.quorum());
    show::line(&format!("{name}: restarted {}, {active} is active, quorum {quorum}", done.len()))
}

/// How long one look may take.
fn answer_max(patience: Patience) -> Duration {
    ANSWER.min(patience.left())
}

/// The data folders that were meant, and their processes.
fn instances(
    arguments: &RollingRestart,
    look: Patience,
) -> Result<Vec<(PathBuf, ControlClient)>, Failure> {
    let Some(dir) = &arguments.dir else {
        let reach =
            |data: &PathBuf| Ok((data.clone(), ControlClient::reach(data, answer_max(look))?));
        return arguments.data.iter().map(reach).collect();
    };
    let of = |error| Failure::about(dir.display(), error);
    let mut found = Vec::new();
    let mut denied = None;
    for entry in std::fs::read_dir(dir).map_err(of)? {
        let folder = entry.map_err(of)?.path();
        if !folder.is_dir() {
            continue;
        }
        match ControlClient::find(&folder, None, answer_max(look))? {
            // There may be other queue managers.
            ControlReach::Connected(mut client) => {
                if client.report()?.mode == ProcessMode::Group {
                    found.push((folder, client));
                }
            }
            ControlReach::NotRunning => {}
            ControlReach::Denied(failure) => denied = Some(failure),
        }
    }
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    if found.is_empty() {
        let none = format!("no instance of a group is running below {}", dir.display());
        return Err(denied.unwrap_or(Failure::CannotConnect(none)));
    }
    Ok(found)
}

/// Whether these are all instances of one group, or the one that was meant.
fn belong_together(members: &[Member], arguments: &RollingRestart) -> Result<(), Failure> {
    let Some((first, others)) = members.split_first() else {
        return Err(Failure::Usage("--data DIR or --dir DIR is needed".into()));
    };
    if arguments.this_one {
        return match others {
            [] => Ok(()),
            _ => Err(Failure::Usage("--this-one needs exactly one --data DIR".into())),
        };
    }
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    for (at, other) in members.iter().enumerate() {
        if other.group.group_name != first.group.group_name {
            let folder = other.folder.display();
            let (this, that) = (&first.group.group_name, &other.group.group_name);
            return Err(Failure::Usage(format!("{folder} belongs to group {that}, not to {this}")));
        }
        if names.iter().take(at).any(|name| *name == other.name) {
            return Err(Failure::Usage(format!("instance {} is named twice", other.name)));
        }
    }
    let rows = first.group.instances.iter().map(|row| row.instance.as_str());
    let missing: Vec<&str> = rows.filter(|name| !names.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    if let Some(dir) = &arguments.dir {
        let dir = dir.display();
        return Err(Failure::Failed(format!(
            "no instance {missing} is running below {dir}: start it first"
        )));
    }
    Err(Failure::Usage(format!(
        "the data folder of {missing} is not given (--data); if each machine has one instance, run it \
         with --this-one on one machine after the other"
    )))
}

fn told(restarted: &Restarted) -> String {
    let Restarted { instance, took_ms, version_before, version_after, switched_to } = restarted;
    let switched = switched_to.as_ref().map(|to| format!(" after a switch to {to}"));
    let version = match (version_before.as_str(), version_after.as_str()) {
        ("", _) | (_, "") => String::new(),
        (before, after) if before == after => format!(", version {after}"),
        (before, after) => format!(", version {before} -> {after}"),
    };
    let switched = switched.unwrap_or_default();
    format!("{instance} restarted{switched}, in sync after {took_ms} ms{version}")
}

/// Whether what clients, or the live group, are connected with moves when it restarts.
fn comes_last(group: &GroupStatus) -> bool {
    matches!(group.role, GroupRole::Active | GroupRole::Leader)
}

struct Roll<'a> {
    members: &'a [Member],
    arguments: &'a RollingRestart,
}

impl Roll<'_> {
    /// The group as its active instance sees it now, in recovery its leader, else as any that we
    /// have does.
    fn view(&self, patience: Patience) -> Result<GroupStatus, Failure> {
        let mut any = None;
        for member in self.members {
            // One that begins anew does not answer for a moment.
            let Some(mut asking) = ControlClient::connect(&member.folder, answer_max(patience))?
            else {
                continue;
            };
            let Ok(group) = asking.group() else { continue };
            if comes_last(&group) {
                return Ok(group);
            }
            any.get_or_insert(group);
        }
        any.ok_or_else(|| Failure::CannotConnect("no instance of the group answers".into()))
    }

    /// Whether all instances are in sync, as far as can be seen from here: of the others, a replica
    /// knows only which ones are connected.
    fn whole(&self, look: Patience) -> Result<(), Failure> {
        let group = self.view(look)?;
        if is_in_recovery(&group) {
            let unfit = |why: String| {
                let what = "wait, or begin with --force all the same";
                Err(Failure::Failed(format!("{why}: {what}")))
            };
            return recovery::obstacle_to_restart(&group).map_or(Ok(()), unfit);
        }
        let fit = |row: &&InstanceStatus| match group.role {
            GroupRole::Active => row.in_sync,
            _ if row.instance == group.instance => group.in_sync,
            _ => row.connected_here,
        };
        let count = group.instances.iter().filter(fit).count();
        if group.active.is_empty() {
            return Err(Failure::failed("the group has no active instance now"));
        }
        if count == group.instances.len() {
            return Ok(());
        }
        let without = group.instances.iter().filter(|row| !fit(row));
        let without: Vec<&str> = without.map(|row| row.instance.as_str()).collect();
        Err(Failure::Failed(format!(
            "{count} of {} instances are in sync (not {}): a restart could stop the group; wait, or begin \
             with --force all the same",
            group.instances.len(),
            without.join(", ")
        )))
    }

    /// Restarts one, and waits until it is in sync.
    fn one(&self, member: &Member, bar: &ProgressBar) -> Result<Restarted, Failure> {
        let Member { name, folder, .. } = member;
        let began = Instant::now();
        let patience = Patience::of(Duration::from_secs_f64(self.arguments.timeout));
        let mut held = ControlClient::reach(folder, patience.left())?;
        let process = held.process()?;
        // Another instance may have become active since we looked first.
        let before = held.group()?;
        let has_others = before.instances.len() > 1;
        // The only instance restarts as it is: its clients are disconnected, and those that connect
        // wait until it is back.
        let switched_to = if before.role == GroupRole::Active && has_others {
            bar.set_message(format!("{name}: switching"));
            // Asked of a replica the answer outlives the end of the active.
            let other = self.members.iter().find(|other| other.name != *name);
            let through: &Path = other.map_or(folder, |other| &other.folder);
            Some(hand_over(through, None, patience)?.to)
        } else {
            None
        };
        bar.set_message(format!("{name}: restarting"));
        let longest = if switched_to.is_some() { BY_ITSELF } else { Duration::ZERO };
        if longest.is_zero() || !held.wait_for_end(longest.min(patience.left()))? {
            match held.ask(&json!({ "do": RESTART })) {
                Ok(_) | Err(AskError::Lost { .. }) => {}
                Err(unanswered) => return Err(Failure::about(name, unanswered)),
            }
            if !held.wait_for_end(patience.left())? {
                return Err(self.late(name, "it does not restart"));
            }
        }
        let after = self.in_sync(member, (&process, &before), patience, bar)?;
        let version = |group: &GroupStatus| {
            row_of(group, name).map(|row| row.version.clone()).unwrap_or_default()
        };
        Ok(Restarted {
            instance: name.clone(),
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            version_before: version(&before),
            version_after: version(&after),
            switched_to,
        })
    }

    /// Waits until a restarted instance is in sync, as it and the active see it; returns what it
    /// reported. `before`: what it reported before.
    fn in_sync(
        &self,
        member: &Member,
        (process, before): (&Process, &GroupStatus),
        patience: Patience,
        bar: &ProgressBar,
    ) -> Result<GroupStatus, Failure> {
        let name = &member.name;
        // What the group had when it was first looked at after the restart: the active may still
        // believe what it knew of the instance before.
        let mut target = None;
        // What was last seen: the last look has hardly any time left for an answer.
        let mut state = "no answer yet".to_owned();
        loop {
            let own = match ControlClient::connect(&member.folder, answer_max(patience))? {
                Some(mut asking) => asking.group().ok(),
                None => None,
            };
            if let (Some(own), Some(view)) = (own, self.view(patience).ok()) {
                let target = *target.get_or_insert_with(|| position_of(&view.group_lsn));
                if self.is_caught_up(name, &own, &view, (before, target)) {
                    return Ok(own);
                }
                let is_awaited = is_in_recovery(&own) && recovery::is_shipped_to(before);
                state = recovery::state_of(&own, &view, is_awaited);
            }
            if process.wait(Duration::ZERO)? {
                return Err(Failure::about(name, "it ended instead of restarting: see its log"));
            }
            bar.set_message(format!("{name}: {state}"));
            if !patience.pause() {
                return Err(self.late(name, &format!("it is not in sync: {state}")));
            }
        }
    }

    /// Whether an instance, by its own words and by those of the active, has all up to `target`.
    /// `before`: what it reported before the restart.
    fn is_caught_up(
        &self,
        name: &str,
        own: &GroupStatus,
        view: &GroupStatus,
        (before, target): (&GroupStatus, Option<Lsn>),
    ) -> bool {
        if is_in_recovery(own) {
            let wanted = WantedInstance {
                target: target.max(position_of(&before.group_lsn)),
                was_shipped_to: recovery::is_shipped_to(before),
                whole: !self.arguments.force,
                is_alone_asked: self.arguments.this_one,
            };
            return recovery::is_back(own, view, wanted);
        }
        let Some(row) = row_of(view, name) else { return false };
        let whole = self.arguments.force || view.in_sync_count == view.configured_count;
        let by_active = view.role == GroupRole::Active && row.in_sync && row.connected && whole;
        let own_lsn = row_of(own, name).and_then(|row| position_of(&row.ack_lsn));
        let has = own_lsn.max(position_of(&row.ack_lsn)) >= target;
        own.in_sync && has && !view.active.is_empty() && (by_active || self.arguments.this_one)
    }

    fn late(&self, name: &str, what: &str) -> Failure {
        let seconds = self.arguments.timeout;
        Failure::Failed(format!("{name}: {what} after {seconds} s; nothing more is restarted"))
    }
}
