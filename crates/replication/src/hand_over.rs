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

/// Why a group of one has no switch.
pub const NO_OTHER: &str =
    "this instance is the only one of its group: there is no other to switch to";

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
    if driver.is_alone() {
        return Err(NO_OTHER.to_owned());
    }
    if *driver.whereabouts().borrow() != Where::Here {
        return Err("a change of roles of both regions is under way".into());
    }
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
    choose(driver, to, &|_| true)?;
    let mut search = HeirSearch::default();
    driver.wait_until(most, || {
        let heard = driver.heard_since(asked);
        let choice = choose(driver, to, &|peer| heard.contains(&peer)).ok();
        search.look(choice, |peer| driver.conditions().loses_address(peer))
    });
    search.found.ok_or_else(|| {
        let heir = to.map_or("no other instance".to_owned(), |to| format!("'{to}'"));
        let not = if to.is_some() { "has not answered" } else { "has answered" };
        let most = most.as_millis();
        format!(
            "{heir} {not} for {most} ms: its process or machine stands still, or the network is gone"
        )
    })
}

/// The best of those that have answered so far.
#[derive(Default)]
struct HeirSearch {
    found: Option<Peer>,
}

impl HeirSearch {
    /// `choice`: the best now. Whether it need not be waited for another one: one that can hold the
    /// floating address may only be late.
    fn look(&mut self, choice: Option<Peer>, loses_address: impl Fn(Peer) -> bool) -> bool {
        self.found = choice.or(self.found);
        choice.is_some_and(|peer| !loses_address(peer))
    }
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
    let fits = |peer| answers(peer) && wanted.is_none_or(|wanted| wanted == peer);
    let best = best(&group.peers, fits, |peer| driver.conditions().loses_address(peer));
    match (best, to) {
        (Some(best), _) => Ok(best),
        (None, Some(name)) => Err(format!("'{name}' is not in sync: see `towline status`")),
        (None, None) => Err("no other instance is in sync: see `towline status`".into()),
    }
}

/// Of those in sync that fit.
fn best(
    peers: &[PeerProgress],
    fits: impl Fn(Peer) -> bool,
    loses_address: impl Fn(Peer) -> bool,
) -> Option<Peer> {
    let fit = peers.iter().filter(|peer| peer.is_in_sync && fits(peer_of(peer.id)));
    // Clients at the floating address matter more than a few batches that are on their way.
    let best = fit.max_by_key(|peer| (!loses_address(peer_of(peer.id)), peer.acknowledged));
    best.map(|best| peer_of(best.id))
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

#[cfg(test)]
mod tests {
    use towline_types::Lsn;

    use super::*;
    use crate::frames::member_of;

    const B: Peer = 1;
    /// It cannot hold the floating address.
    const C: Peer = 2;

    fn in_sync(peer: Peer, acknowledged: u64) -> PeerProgress {
        PeerProgress {
            id: member_of(peer),
            acknowledged: Lsn(acknowledged),
            backlog_bytes: 0,
            is_heard: true,
            is_in_sync: true,
            needs_copy: false,
        }
    }

    /// What comes of looks at which these had answered, and at how many looks the search ended.
    fn search(looks: &[&[Peer]], loses_address: impl Fn(Peer) -> bool) -> (Option<Peer>, usize) {
        let peers = [in_sync(B, 500), in_sync(C, 900)];
        let mut search = HeirSearch::default();
        let ends = |heard: &&[Peer]| {
            let choice = best(&peers, |peer| heard.contains(&peer), &loses_address);
            search.look(choice, &loses_address)
        };
        let ended = looks.iter().position(ends).map_or(looks.len(), |at| at + 1);
        (search.found, ended)
    }

    #[test]
    fn an_answer_that_comes_late_is_waited_for_when_the_first_cannot_hold_the_address() {
        let only_b_can = |peer| peer == C;
        assert_eq!(search(&[&[], &[C], &[C], &[C, B], &[C, B]], only_b_can), (Some(B), 4));
        assert_eq!(search(&[&[], &[C], &[C]], only_b_can), (Some(C), 3), "b never answered");
        assert_eq!(search(&[&[], &[]], only_b_can), (None, 2));
    }

    #[test]
    fn the_first_answer_is_enough_when_no_client_loses_the_address_by_it() {
        assert_eq!(search(&[&[], &[B], &[B, C]], |peer| peer == C), (Some(B), 2));
        assert_eq!(search(&[&[C], &[C, B]], |_| false), (Some(C), 1));
        assert_eq!(search(&[&[B, C]], |_| false), (Some(C), 1), "it has more of the log");
    }
}
