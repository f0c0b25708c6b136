//! Handing the active part over on purpose.
//!
//! Clients are told to go first, all at once; what was decided is committed; then leadership goes to an
//! instance that has the whole log. Not here: what becomes of this process after it (`again`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towline_admin::catalogue::{GROUP_SWITCH_FAILED, GROUP_SWITCHED};

use super::driver::Driver;
use super::{KIND_WISH, Where, peer_of};
use crate::link::{FrameBody, Peer};
use crate::logging::log as say;

/// What an administrator asked another instance for.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "wish")]
pub(crate) enum Wish {
    /// Hand over to `to`, or to whoever is best.
    Switch {
        /// Name of an instance.
        to: Option<String>,
    },
}

/// How long what was decided may take to be committed before it is handed over all the same.
const DRAIN_MAX: Duration = Duration::from_millis(60);
/// How long handing over may take.
const TRANSFER_MAX: Duration = Duration::from_secs(3);

/// A wish that another instance passed on.
pub(crate) fn grant(driver: &Arc<Driver>, wish: Wish) {
    let Wish::Switch { to } = wish;
    let driver = Arc::clone(driver);
    // It waits, and links must not.
    let started = std::thread::Builder::new().name("switch".into()).spawn(move || {
        if let Err(why) = hand_over(&driver, to.as_deref()) {
            say(&GROUP_SWITCH_FAILED, &[&why]);
        }
    });
    if let Err(error) = started {
        say(&GROUP_SWITCH_FAILED, &[&error.to_string()]);
    }
}

/// Carries a switch out, here or by asking the active instance; waits until there is a new one.
///
/// # Errors
/// Why not, in words for the operator.
pub(crate) fn switch(driver: &Arc<Driver>, to: Option<&str>) -> Result<Value, String> {
    let began = Instant::now();
    let from = active(driver).ok_or("there is no active instance")?;
    if driver.leads() {
        hand_over(driver, to)?;
    } else {
        ask(driver, from, to)?;
    }
    let next = wait_for_another(driver, from, TRANSFER_MAX)?;
    let name = |peer: Peer| driver.names().get(peer).cloned().unwrap_or_default();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(json!({ "from": name(from), "to": name(next), "took_ms": took_ms }))
}

fn active(driver: &Driver) -> Option<Peer> {
    driver.group().leader.map(peer_of)
}

fn ask(driver: &Driver, active: Peer, to: Option<&str>) -> Result<(), String> {
    let wish = Wish::Switch { to: to.map(str::to_owned) };
    if let Some(to) = to {
        position(driver, to)?;
    }
    let body = serde_json::to_vec(&wish).map_err(|error| error.to_string())?;
    let sent = driver.links().is_some_and(|links| {
        links.send(active, KIND_WISH, true, FrameBody { head: body, parts: Vec::new() })
    });
    if sent { Ok(()) } else { Err("there is no connection with the active instance".into()) }
}

fn position(driver: &Driver, name: &str) -> Result<Peer, String> {
    let found = driver.names().iter().position(|known| known == name);
    found.ok_or_else(|| format!("'{name}' is no instance; there are {}", driver.names().join(", ")))
}

fn wait_for_another(driver: &Driver, from: Peer, most: Duration) -> Result<Peer, String> {
    let mut next = None;
    driver.wait_until(most, || {
        next = active(driver).filter(|next| *next != from);
        next.is_some()
    });
    next.ok_or_else(|| "the active instance did not change in time; see its messages".into())
}

/// Hands over from this instance, which is active.
///
/// # Errors
/// Why not: then it goes on, but its clients may have been told to go.
pub(crate) fn hand_over(driver: &Driver, to: Option<&str>) -> Result<(), String> {
    let leads = driver.leads();
    let door = driver.door().filter(|_| leads).ok_or("this instance is not active")?;
    let target = choose(driver, to)?;
    let name = driver.names().get(target).cloned().unwrap_or_default();
    door.end();
    let began = Instant::now();
    driver.wait_until(DRAIN_MAX, || door.look(|instance| instance.runs_pending()) == 0);
    // A batch that is closed while leadership is on its way would end it without an heir.
    let handed = door.hold_still(|| {
        let log = driver.log();
        driver.wait_until(DRAIN_MAX, || driver.committed_end() >= log.tail());
        driver.transfer(target);
        let place = driver.whereabouts();
        driver.wait_until(TRANSFER_MAX, || *place.borrow() != Where::Here)
    });
    if !handed {
        return Err(format!("'{name}' did not take over in time"));
    }
    let took = began.elapsed().as_millis().to_string();
    say(&GROUP_SWITCHED, &[&name, &took]);
    Ok(())
}

/// Who takes over: the one that is asked for, if it can; else the one that has most of the log.
fn choose(driver: &Driver, to: Option<&str>) -> Result<Peer, String> {
    let group = driver.group();
    let wanted = to.map(|name| position(driver, name)).transpose()?;
    if wanted == Some(driver.this()) {
        return Err("it is the active instance already".into());
    }
    let fit = group.peers.iter().filter(|peer| peer.is_in_sync);
    let fit = fit.filter(|peer| wanted.is_none_or(|wanted| peer_of(peer.id) == wanted));
    let best = fit.max_by_key(|peer| peer.acknowledged);
    match (best, to) {
        (Some(best), _) => Ok(peer_of(best.id)),
        (None, Some(name)) => Err(format!("'{name}' is not in sync: see `towline status`")),
        (None, None) => Err("no other instance is in sync: see `towline status`".into()),
    }
}
