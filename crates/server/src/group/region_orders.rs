//! Changes of roles of two regions, as an administrator orders them at the control socket: what is
//! to be expected (`dry_run`), or what came of it, as JSON.
//!
//! Not here: the changes themselves (`towline_replica::failover`, `region_switch`, `returning`).
//! Invariant: one
//! order at a time in a process.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use towline_config::GroupConfig;
use towline_replica::region_switch::{self, SwitchDone, SwitchEnd};
use towline_replica::{OpenReplica, failover, returning};
use towline_replication::region_part::RegionPart;
use towline_types::Lsn;

use super::region;
use crate::control::{Afterwards, RegionOrder};

/// Characters of the name of the user that ordered it.
const BY_CHARS_MAX: usize = 64;
/// The longest time that an order may take.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// See the module.
pub(super) struct RegionOrders {
    opened: Arc<OpenReplica>,
    group: GroupConfig,
    region: Option<Arc<RegionPart>>,
    /// Held while an order is carried out.
    under_way: Mutex<()>,
}

impl RegionOrders {
    pub(super) fn new(
        opened: &Arc<OpenReplica>,
        group: &GroupConfig,
        region: Option<Arc<RegionPart>>,
    ) -> RegionOrders {
        let under_way = Mutex::new(());
        RegionOrders { opened: Arc::clone(opened), group: group.clone(), region, under_way }
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
                        "heard_ms": found.heard_ms,
                        "sync": found.sync.0,
                    },
                }),
            );
            return Ok(answer);
        }
        let Some(_alone) = self.under_way.try_lock() else { return Err(under_way()) };
        let by = by(order);
        let how = (longest(order), order.force);
        let done = failover::fail_over(&self.opened, &self.group, &by, how)?;
        add(
            &mut answer,
            json!({
                "history": done.history.to_string(),
                "active": done.active,
                "steps": steps(&done.steps),
            }),
        );
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
            let found = region_switch::outlook(&self.opened, part, &self.group);
            add(
                &mut answer,
                json!({
                    "obstacles": found.obstacles,
                    "notes": found.notes,
                    "non_persistent": found.non_persistent,
                    "backlog_bytes": found.backlog_bytes,
                }),
            );
            return Ok((answer, None));
        }
        let Some(_alone) = self.under_way.try_lock() else { return Err(under_way()) };
        let by = by(order);
        let end = region_switch::switch(&self.opened, part, &self.group, (&by, longest(order)));
        let (history, what) = match end {
            SwitchEnd::Refused(why) => return Err(why),
            SwitchEnd::Done(SwitchDone { history, steps: all, closed_ms }) => {
                (history, json!({ "in_doubt": null, "steps": steps(&all), "closed_ms": closed_ms }))
            }
            SwitchEnd::InDoubt(history, why) => (history, json!({ "in_doubt": why })),
        };
        add(&mut answer, what);
        add(&mut answer, json!({ "history": history.to_string() }));
        let opened = Arc::clone(&self.opened);
        let after = move || region_switch::step_down(&opened, history);
        Ok((answer, Some(Box::new(after))))
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
        let ordered = returning::order(&self.opened, part, order.discard, (&by(order), id))?;
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
        if !order.dry_run {
            part.go_alone(&by(order))?;
        }
        add(&mut answer, json!({ "before": sync }));
        Ok(answer)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
