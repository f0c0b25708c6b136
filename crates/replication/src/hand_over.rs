//! Hands leadership over to another instance on purpose.
//!
//! First all clients are disconnected at once; then what was decided is committed; then leadership
//! goes to an instance that has the whole log. Not here: what becomes of this process after it
//! (`reexec`); a switch as an administrator asks for it.

use std::sync::Arc;
use std::time::Duration;
use towline_os::time::Instant;

use serde::{Deserialize, Serialize};
use towline_admin::catalogue::{GROUP_SWITCH_FAILED, GROUP_SWITCHED};

use crate::driver::Driver;
use crate::frames::{KIND_WISH, peer_of};
use towline_group::PeerProgress;
use towline_link::{FrameBody, Peer, Where};
use towline_logging::log as say;

/// What an administrator asks the active instance for through another instance.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "wish")]
pub enum AdminRequest {
    /// Hand over to `to`, or to the instance that fits best.
    Switch {
        /// Name of an instance.
        to: Option<String>,
    },
}

/// How long what was decided may take to be committed before it is handed over all the same.
const DRAIN_MAX: Duration = Duration::from_millis(60);
/// How long handing over may take.
pub const TRANSFER_MAX: Duration = Duration::from_secs(3);

/// Carries out, on a thread of its own, what another instance passed on.
pub fn carry_out(driver: &Arc<Driver>, request: AdminRequest) {
    let AdminRequest::Switch { to } = request;
    let driver = Arc::clone(driver);
    // It waits, and links must not.
    let started = towline_os::thread::Builder::new().name("switch".into()).spawn(move || {
        if let Err(why) = hand_over(&driver, to.as_deref()) {
            say(&GROUP_SWITCH_FAILED, &[&why]);
        }
    });
    if let Err(error) = started {
        say(&GROUP_SWITCH_FAILED, &[&error.to_string()]);
    }
}

/// Hands over from this instance, which is active.
///
/// # Errors
/// Why not: then this instance stays active, but its clients may have been disconnected.
pub fn hand_over(driver: &Driver, to: Option<&str>) -> Result<(), String> {
    let leads = driver.leads();
    let active = driver.active().filter(|_| leads).ok_or("this instance is not active")?;
    let target = responsive_heir(driver, to)?;
    let name = driver.name(target);
    active.close_clients();
    let began = Instant::now();
    driver.wait_until(DRAIN_MAX, || active.runs_pending() == 0);
    // A batch that is closed while leadership is on its way would end it without an heir.
    let handed = active.hold_still(&mut || {
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
    say(&GROUP_SWITCHED, &[name, &took]);
    Ok(())
}

/// The instance that takes over. It was heard from after this call began: a process that was
/// stopped a moment ago still looks fit, and no client may be disconnected for its sake. Waits
/// about one heartbeat.
fn responsive_heir(driver: &Driver, to: Option<&str>) -> Result<Peer, String> {
    let asked = driver.now();
    let most = driver.heartbeat_timeout();
    let mut found = choose(driver, to, &|_| true)?;
    let mut answers = false;
    driver.wait_until(most, || {
        let heard = driver.heard_since(asked);
        let Ok(choice) = choose(driver, to, &|peer| heard.contains(&peer)) else { return false };
        (found, answers) = (choice, true);
        // Another one that can hold the floating address may only be late.
        !driver.conditions().loses_address(choice)
    });
    answers.then_some(found).ok_or_else(|| {
        let heir = to.map_or("no other instance".to_owned(), |to| format!("'{to}'"));
        let not = if to.is_some() { "has not answered" } else { "has answered" };
        let most = most.as_millis();
        format!(
            "{heir} {not} for {most} ms: its process or machine stands still, or the network is gone"
        )
    })
}

/// The instance that takes over: the wanted one, if it is in sync; without a wish the one that has
/// most of the log.
fn choose(
    driver: &Driver,
    to: Option<&str>,
    answers: &dyn Fn(Peer) -> bool,
) -> Result<Peer, String> {
    let group = driver.group();
    let wanted = to.map(|name| position(driver, name)).transpose()?;
    if wanted == Some(driver.this()) {
        return Err("it is the active instance already".into());
    }
    let fit = group.peers.iter().filter(|peer| peer.is_in_sync && answers(peer_of(peer.id)));
    let fit = fit.filter(|peer| wanted.is_none_or(|wanted| peer_of(peer.id) == wanted));
    // Clients at the floating address matter more than a few batches that are on their way.
    let loses_address = |peer: &PeerProgress| driver.conditions().loses_address(peer_of(peer.id));
    let best = fit.max_by_key(|peer| (!loses_address(peer), peer.acknowledged));
    match (best, to) {
        (Some(best), _) => Ok(peer_of(best.id)),
        (None, Some(name)) => Err(format!("'{name}' is not in sync: see `towline status`")),
        (None, None) => Err("no other instance is in sync: see `towline status`".into()),
    }
}

/// Passes a switch on to the active instance.
///
/// # Errors
/// When there is no connection with it.
pub fn ask(driver: &Driver, active: Peer, to: Option<&str>) -> Result<(), String> {
    let request = AdminRequest::Switch { to: to.map(str::to_owned) };
    let body = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
    let sent = driver.links().is_some_and(|links| {
        links.send(active, KIND_WISH, true, FrameBody { head: body, parts: Vec::new() })
    });
    if sent { Ok(()) } else { Err("there is no connection with the active instance".into()) }
}

/// The position of the instance with this name.
///
/// # Errors
/// When there is none.
pub fn position(driver: &Driver, name: &str) -> Result<Peer, String> {
    let found = driver.names().iter().position(|known| known == name);
    found.ok_or_else(|| format!("'{name}' is no instance; there are {}", driver.names().join(", ")))
}
