//! Where clients find the queue manager, in this group and in that of the other region: the list in
//! the open frame of each connection, and where a recovery instance sends its clients.
//!
//! The list replaces the one that a client was configured with (Qpid JMS), so it is complete or
//! left out: each instance of both groups has an address for the listener, as configured
//! (`clients`) or, of the other group, as that says when it is connected. It changes with the role:
//! the live group comes first.
//!
//! A recovery instance sends clients to the live group while that ships to it, or to the instance
//! of its own group that said so a moment ago: then it knows which group is live, and that it is
//! there. Otherwise it closes with a reason: a client that is sent to where no one answers loses
//! more time than one that goes on in its list.
//!
//! Not here: the frames (`towline_node`), which connections are turned away (`net::reception`), the
//! redirect of a client that asks for it inside a group (`towline_replication::redirect`).
//! Invariant: nothing here waits for another instance, or for the other region.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use towline_admin::status::OtherRegionStatus;
use towline_amqp::codec::OwnedValue;
use towline_config::{Config, GroupConfig};
use towline_group::Mode;
use towline_link::{FrameBody, Peer};
use towline_node::{Elsewhere, TurnedAway};
use towline_replication::agreement::listener_schemes;
use towline_replication::driver::{Driver, HeardLive};
use towline_replication::frames::KIND_LIVE;
use towline_replication::no_active;
use towline_replication::region_clients::{ClientAddress, GroupClients};
use towline_replication::region_part::{Counts, RecoveryPoint, RegionPart};
use towline_types::BatchPlace;

/// How long such a report holds: a few may be missed.
const TOLD_MAX: Duration = Duration::from_secs(3);

/// The other group, as the instance that has the link reports it to the others of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct OtherReport {
    /// It is live, and ships to this group.
    is_live: bool,
    /// Its active instance, if it is live.
    instance: String,
    clients: GroupClients,
    /// What that said of itself, if it is live: of an older version nothing.
    live: HeardLive,
    /// What the status of that instance says.
    other: OtherRegionStatus,
}

/// Such a report, as it came.
struct ToldReport {
    from: Peer,
    at: Instant,
    report: OtherReport,
}

/// See the module.
pub(crate) struct ClientAddresses {
    driver: Arc<Driver>,
    group: GroupConfig,
    /// Of each listener here: `amqp` or `amqps`.
    schemes: Vec<String>,
    own: GroupClients,
    /// The traffic with the other region, if there is one.
    region: OnceLock<Arc<RegionPart>>,
    told: Mutex<Option<ToldReport>>,
    /// Clients sent to the live group.
    redirects: AtomicU64,
    /// Clients of a recovery group that got a reason and no address.
    turned_away: AtomicU64,
}

/// Those of one listener.
#[derive(Clone)]
pub(crate) struct ListenerAddresses {
    pub(crate) all: Arc<ClientAddresses>,
    /// Its number in the configuration.
    pub(crate) listener: usize,
}

impl ListenerAddresses {
    /// What the open frame says; `None`: not all addresses are known.
    pub(crate) fn list(&self) -> Option<OwnedValue> {
        let list = self.all.list(self.listener)?;
        let list: Vec<Elsewhere> = list.into_iter().map(elsewhere).collect();
        Some(Elsewhere::list(&list))
    }
}

impl ClientAddresses {
    /// Of the instance with this configuration.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        config: &Config,
        group: &GroupConfig,
    ) -> Arc<ClientAddresses> {
        Arc::new(ClientAddresses {
            driver: Arc::clone(driver),
            group: group.clone(),
            schemes: listener_schemes(&config.listener),
            own: GroupClients::own(group, &config.listener),
            region: OnceLock::new(),
            told: Mutex::default(),
            redirects: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
        })
    }

    /// This instance takes part in the traffic with the other region.
    pub(crate) fn set_region(&self, region: Arc<RegionPart>) {
        assert!(self.region.set(region).is_ok(), "there is one other region");
    }

    /// Whether clients are turned away here, and nowhere else in this group served.
    pub(crate) fn serves_nobody(&self) -> bool {
        self.driver.mode() == Mode::Recovery || self.driver.is_fenced()
    }

    /// Whether the other group is the one that serves, as far as this one knows.
    fn other_serves(&self) -> bool {
        self.driver.mode() == Mode::Recovery || self.driver.superseded().is_some()
    }

    /// All addresses of a listener, the live group's first; `None`: not all are known.
    pub(crate) fn list(&self, listener: usize) -> Option<Vec<ClientAddress>> {
        let scheme = self.schemes.get(listener)?;
        let own = self.own.of_listener(listener, scheme, &self.group.instance)?;
        if self.group.recovery.is_none() {
            return Some(own);
        }
        let live = self.live().unwrap_or_default();
        let other = self.other()?.of_listener(listener, scheme, &live)?;
        let [mut first, then] = if self.other_serves() { [other, own] } else { [own, other] };
        // An address that leads to whichever group is live may be given for both.
        first.extend(then);
        let mut once: Vec<ClientAddress> = Vec::with_capacity(first.len());
        for address in first {
            if !once.contains(&address) {
                once.push(address);
            }
        }
        Some(once)
    }

    /// Those of the first listener, for people; none: not all are known.
    pub(super) fn advertised(&self) -> Vec<String> {
        self.list(0).unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    /// Clients sent to the live group, and closed with a reason alone, since the process started.
    pub(super) fn sent_away(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.redirects), of(&self.turned_away))
    }

    /// Why a client that came to this listener (`None`: the local socket) is not served here.
    pub(crate) fn turned_away(&self, listener: Option<usize>) -> TurnedAway {
        if !self.serves_nobody() {
            return TurnedAway::Forced { why: no_active::why(&self.driver) };
        }
        if self.driver.is_fenced() {
            // Not a redirect: nothing says here that it is there now.
            return TurnedAway::Forced { why: self.driver.fence_why() };
        }
        let name = &self.group.name;
        let other = self.group.recovery.as_ref().map_or("", |recovery| recovery.name.as_str());
        let live = self.live();
        // A client on the local socket cannot follow, and hears where it is all the same.
        let found = live.as_ref().and_then(|live| {
            let listener = listener.unwrap_or(0);
            let scheme = self.schemes.get(listener)?;
            self.other()?.one_of(listener, scheme, live)
        });
        match found {
            Some(address) if listener.is_none() => {
                self.turned_away.fetch_add(1, Ordering::Relaxed);
                TurnedAway::Forced {
                    why: format!(
                        "group '{name}' is in recovery and serves no client: group '{other}' is \
                         live, at {address}"
                    ),
                }
            }
            Some(address) => {
                self.redirects.fetch_add(1, Ordering::Relaxed);
                let there = address.to_string();
                let why =
                    format!("group '{name}' is in recovery; group '{other}' is live, at {there}");
                TurnedAway::To { elsewhere: elsewhere(address), why }
            }
            None => {
                self.turned_away.fetch_add(1, Ordering::Relaxed);
                let known = match live {
                    Some(_) => "where clients find that is not known here (group.recovery.clients)",
                    None => "that group is not connected now",
                };
                let why = match self.group.recovery {
                    Some(_) => format!(
                        "group '{name}' is in recovery and serves no client: it follows group \
                         '{other}' of another region; {known}"
                    ),
                    None => format!(
                        "group '{name}' is in recovery and serves no client, and its configuration \
                         names no other region ([group.recovery])"
                    ),
                };
                TurnedAway::Forced { why }
            }
        }
    }

    /// Reports the other group to the other instances of this one, if this instance knows of it by
    /// itself: it is active, or the live group ships to it.
    pub(super) fn tell(&self, other: &OtherRegionStatus) {
        let (live, links) = (self.connected_live(), self.driver.links());
        let Some(links) = links.filter(|_| live.is_some() || self.driver.leads()) else { return };
        let clients = self.region.get().and_then(|region| region.clients());
        let report = OtherReport {
            is_live: live.is_some(),
            instance: live.unwrap_or_default(),
            clients: clients.map(|it| GroupClients::clone(&it)).unwrap_or_default(),
            live: self.driver.live_heard(),
            other: other.clone(),
        };
        let Ok(head) = serde_json::to_vec(&report) else { return };
        let this = self.driver.this();
        for peer in (0..self.group.member.len()).filter(|peer| *peer != this) {
            // One that misses it gets the next one.
            let body = FrameBody { head: head.clone(), parts: Vec::new() };
            links.send(peer, KIND_LIVE, true, body);
        }
    }

    /// The instance that has the link reported this.
    pub(super) fn told(&self, peer: Peer, body: &[u8]) {
        match serde_json::from_slice::<OtherReport>(body) {
            Ok(report) => {
                self.notes_point(&report);
                if report.is_live {
                    self.driver.told_of_live(peer, report.live);
                }
                *self.told.lock() = Some(ToldReport { from: peer, at: Instant::now(), report });
            }
            Err(error) => tracing::warn!(%error, peer, "what is said of the other group"),
        }
    }

    /// What the active instance of this group knows of the other region, this one goes on from when
    /// it becomes active.
    fn notes_point(&self, report: &OtherReport) {
        let (Some(region), other) = (self.region.get(), &report.other) else { return };
        if report.is_live {
            // Nothing is left to be handed over, and no one dials for it.
            return region.note_taken_over();
        }
        if !other.is_known {
            return;
        }
        if let Some(point) = point_of(other) {
            let age_us = if other.backlog_bytes > 0 { other.backlog_age_us } else { 0 };
            region.hears_of_point(point, age_us);
        }
    }

    /// How long ago another instance of this group said that the live one ships to it; `None`: none
    /// has.
    pub(super) fn live_told_ms(&self) -> Option<u64> {
        let told = self.told.lock();
        let told = told.as_ref().filter(|told| told.report.is_live)?;
        Some(u64::try_from(told.at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The other group as another instance reported it a moment ago, on one that does not know it
    /// by itself.
    pub(super) fn reported(&self) -> Option<OtherRegionStatus> {
        if self.driver.leads() || self.connected_live().is_some() {
            return None;
        }
        let told = self.told.lock();
        let told = told.as_ref().filter(|told| told.at.elapsed() < TOLD_MAX)?;
        let heard_age_ms = u64::try_from(told.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut other = told.report.other.clone();
        other.heard_from = self.driver.name(told.from).to_owned();
        other.heard_age_ms = heard_age_ms;
        // What it heard of the other group is as much older.
        other.there_age_ms = other.there_age_ms.saturating_add(heard_age_ms);
        Some(other)
    }

    /// The active instance of the live group, if that ships to this group now.
    fn live(&self) -> Option<String> {
        self.connected_live().or_else(|| {
            let told = self.told.lock();
            let recent = told.as_ref().filter(|told| told.at.elapsed() < TOLD_MAX);
            let live = recent.filter(|told| told.report.is_live);
            live.map(|told| told.report.instance.clone())
        })
    }

    fn connected_live(&self) -> Option<String> {
        let region = self.region.get()?;
        region.live_instance().map(|instance| instance.to_string())
    }

    /// Where clients find the other group: as configured, or as it said when it was connected, to
    /// this instance or to another one.
    fn other(&self) -> Option<GroupClients> {
        let recovery = self.group.recovery.as_ref()?;
        let said = self.region.get().and_then(|region| region.clients());
        let said = said.map(|clients| GroupClients::clone(&clients)).or_else(|| {
            let told = self.told.lock();
            told.as_ref().map(|told| told.report.clients.clone())
        });
        let said = said.or_else(|| self.driver.superseded().map(|superseded| superseded.clients));
        Some(said.unwrap_or_default().as_configured(recovery))
    }
}

/// What the other region had reported to the instance of which this is the status.
fn point_of(other: &OtherRegionStatus) -> Option<RecoveryPoint> {
    let end = other.recovery_lsn.parse().ok()?;
    let (put, removed) = (other.recovery_puts, other.recovery_removals);
    Some(RecoveryPoint {
        place: BatchPlace { end, ..BatchPlace::default() },
        received: other.received_lsn.parse().ok()?,
        counts: Counts { put, removed },
        bytes: other.log_bytes_received,
        wire_bytes: other.wire_bytes_received,
        rebases: other.rebases,
        ..RecoveryPoint::default()
    })
}

fn elsewhere(ClientAddress { scheme, host, port }: ClientAddress) -> Elsewhere {
    Elsewhere { scheme: scheme.into(), host: host.into(), port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_region_reported_to_the_active_instance_the_next_one_goes_on_from() {
        let other = OtherRegionStatus {
            recovery_lsn: "<0:0:2:31232>".into(),
            received_lsn: "<0:0:2:31300>".into(),
            recovery_puts: 7,
            recovery_removals: 3,
            log_bytes_received: 900,
            ..OtherRegionStatus::default()
        };
        let point = point_of(&other).unwrap();
        assert_eq!(point.place.end.to_string(), other.recovery_lsn);
        assert_eq!((point.counts, point.bytes), (Counts { put: 7, removed: 3 }, 900));
        let earlier = OtherRegionStatus { recovery_lsn: String::new(), ..other };
        assert!(point_of(&earlier).is_none(), "it says nothing of it");
    }
}
