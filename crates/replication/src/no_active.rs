//! Why a group has no active instance, in words: which instances are not connected with this one,
//! and which may not vote. Clients that are turned away get it as the reason, and it is logged once
//! for each time.
//!
//! Not here: which instance is active (`driver`), what to do about it (the operator). Invariant:
//! during an ordinary failover nothing is logged.

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::{GROUP_ACTIVE_AGAIN, GROUP_NO_ACTIVE};
use towline_group::Mode;
use towline_os::task::sleep;

use crate::driver::Driver;
use crate::frames::peer_of;
use towline_link::{Peer, Where};
use towline_logging::log as say;

/// Longer than an election takes.
const ELECTION_MAX: Duration = Duration::from_secs(1);

/// What is known of one instance, from here.
struct InstanceView<'a> {
    name: &'a str,
    connected: bool,
    may_vote: bool,
    /// Why it is not connected, if that is known.
    trouble: String,
}

/// Why no instance is active, as far as this instance knows.
pub fn why(driver: &Driver) -> String {
    if driver.mode() == Mode::Recovery {
        return "this group is in recovery: it follows the live group of another region, and serves \
                no client"
            .to_owned();
    }
    if driver.is_fenced() {
        return driver.fence_why();
    }
    let leader = driver.group().leader.map(peer_of);
    if let Some(name) = leader.and_then(|leader| driver.names().get(leader)) {
        return if leader == Some(driver.this()) && driver.active().is_some() {
            "this group is about to hand over to another region".to_owned()
        } else if leader == Some(driver.this()) {
            "this instance is about to be active".to_owned()
        } else {
            format!("the active instance '{name}' cannot be reached from here")
        };
    }
    let seen: Vec<InstanceView<'_>> =
        driver.names().iter().enumerate().map(|(peer, name)| look(driver, peer, name)).collect();
    let text = in_words(&seen);
    match driver.why_silent(&driver.group().unheard) {
        silent if silent.is_empty() => text,
        silent => format!("{text}; of this instance: {silent}"),
    }
}

fn look<'a>(driver: &Driver, peer: Peer, name: &'a str) -> InstanceView<'a> {
    let standing = driver.standing_of(peer);
    let may_vote = standing.is_none_or(|standing| !standing.blank);
    let links = driver.links().filter(|_| peer != driver.this());
    let (connected, trouble) = match links {
        None => (true, String::new()),
        Some(links) => {
            let state = links.state(peer);
            (state.connected_in && state.connected_out, links.trouble(peer))
        }
    };
    InstanceView { name, connected, may_vote, trouble }
}

fn in_words(seen: &[InstanceView<'_>]) -> String {
    if let [InstanceView { may_vote: false, .. }] = seen {
        return "the only instance of the group has no vote: its log is not the one that it had, or \
                lacks what was committed (TWL4232E in its log messages)"
            .to_owned();
    }
    let gone: Vec<&InstanceView<'_>> = seen.iter().filter(|one| !one.connected).collect();
    let mut reasons = Vec::new();
    if !gone.is_empty() {
        let names: Vec<String> = gone
            .iter()
            .map(|one| match one.trouble.as_str() {
                "" => format!("'{}'", one.name),
                trouble => format!("'{}': {trouble}", one.name),
            })
            .collect();
        reasons.push(format!(
            "{} of {} not connected with this one ({})",
            gone.len(),
            seen.len(),
            names.join("; ")
        ));
    }
    let dumb: Vec<String> = seen
        .iter()
        .filter(|one| one.connected && !one.may_vote)
        .map(|one| format!("'{}'", one.name))
        .collect();
    if !dumb.is_empty() {
        reasons.push(format!("without a vote, because its log is not whole: {}", dumb.join(", ")));
    }
    let quorum = seen.len() / 2 + 1;
    let able = seen.iter().filter(|one| one.connected && one.may_vote).count();
    let text = if able < quorum {
        "the group has no quorum, and no active instance"
    } else {
        "the group has no active instance"
    };
    if reasons.is_empty() { text.to_owned() } else { format!("{text}: {}", reasons.join("; ")) }
}

/// Logs it, until dropped.
pub async fn watch(driver: Arc<Driver>, patience: Duration) {
    let mut place = driver.whereabouts();
    loop {
        // An end of the sender is an end of the process.
        if place.wait_for(|place| *place == Where::NoActive).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            found = place.wait_for(|place| *place != Where::NoActive) => match found {
                Ok(_) => continue,
                Err(_) => return,
            },
            () = sleep(patience + ELECTION_MAX) => {}
        }
        if driver.mode() == Mode::Recovery || driver.is_fenced() {
            // There is none to be missed. It may change, and nothing else says so here.
            sleep(patience).await;
            continue;
        }
        say(&GROUP_NO_ACTIVE, &[&why(&driver)]);
        if place.wait_for(|place| *place != Where::NoActive).await.is_err() {
            return;
        }
        say(&GROUP_ACTIVE_AGAIN, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, connected: bool, may_vote: bool) -> InstanceView<'_> {
        InstanceView { name, connected, may_vote, trouble: String::new() }
    }

    #[test]
    fn it_is_said_which_instances_are_missing_and_why() {
        let mut lost = [seen("a", true, true), seen("b", false, true), seen("c", false, true)];
        lost[2].trouble = "Connection refused".into();
        assert_eq!(
            in_words(&lost),
            "the group has no quorum, and no active instance: 2 of 3 not connected with this one \
             ('b'; 'c': Connection refused)"
        );
        let blank = [seen("a", true, true), seen("b", false, true), seen("c", true, false)];
        let text = in_words(&blank);
        assert!(text.contains("1 of 3 not connected") && text.contains("no quorum"), "{text}");
        assert!(text.ends_with("without a vote, because its log is not whole: 'c'"), "{text}");
        let alone = in_words(&[seen("a", true, false)]);
        assert!(alone.contains("only instance") && alone.contains("TWL4232E"), "{alone}");
        assert_eq!(in_words(&[seen("a", true, true)]), "the group has no active instance");
        let all = ["a", "b", "c"].map(|name| seen(name, true, true));
        assert_eq!(in_words(&all), "the group has no active instance");
    }
}
