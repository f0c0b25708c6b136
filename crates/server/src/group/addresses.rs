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
use towline_amqp::codec::OwnedValue;
use towline_config::{Config, GroupConfig};
use towline_group::Mode;
use towline_link::{FrameBody, Peer};
use towline_node::{Elsewhere, TurnedAway};
use towline_replication::agreement::listener_schemes;
use towline_replication::driver::Driver;
use towline_replication::frames::KIND_LIVE;
use towline_replication::no_active;
use towline_replication::region_clients::{ClientAddress, GroupClients};
use towline_replication::region_part::RegionPart;

/// Between two reports of a relay to the other instances of its group about the live one.
const TELL_INTERVAL: Duration = Duration::from_millis(500);
/// How long such a report holds: a few may be missed.
const TOLD_MAX: Duration = Duration::from_secs(3);

/// The live group, as the instance to which it ships reports it to the others of its group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct LiveReport {
    /// Its active instance.
    instance: String,
    clients: GroupClients,
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
    told: Mutex<Option<(Instant, LiveReport)>>,
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
        self.driver.mode() == Mode::Recovery
    }

    /// All addresses of a listener, the live group's first; `None`: not all are known.
    pub(crate) fn list(&self, listener: usize) -> Option<Vec<ClientAddress>> {
        let scheme = self.schemes.get(listener)?;
        let own = self.own.of_listener(listener, scheme, &self.group.instance)?;
        if self.group.recovery.is_none() {
            return Some(own);
        }
        let live = self.live().unwrap_or_default();
        let other = self.other()?.of_listener(listener, scheme, &live.instance)?;
        let [mut first, then] = if self.serves_nobody() { [other, own] } else { [own, other] };
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
        self.list(0).unwrap_or_default().iter().map(url).collect()
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
        let name = &self.group.name;
        let other = self.group.recovery.as_ref().map_or("", |recovery| recovery.name.as_str());
        let live = self.live();
        let found = listener.zip(live.as_ref()).and_then(|(listener, live)| {
            let scheme = self.schemes.get(listener)?;
            self.other()?.one_of(listener, scheme, &live.instance)
        });
        match found {
            Some(address) => {
                self.redirects.fetch_add(1, Ordering::Relaxed);
                let there = url(&address);
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
                let why = format!(
                    "group '{name}' is in recovery and serves no client: it follows group '{other}' \
                     of another region; {known}"
                );
                TurnedAway::Forced { why }
            }
        }
    }

    /// Reports the live group to the other instances of this one, while it ships to this instance;
    /// until dropped.
    pub(super) async fn tell(self: Arc<Self>) {
        let mut interval = tokio::time::interval(TELL_INTERVAL);
        loop {
            interval.tick().await;
            let Some(links) = self.driver.links() else { continue };
            let Some(report) = self.connected_live() else { continue };
            let Ok(head) = serde_json::to_vec(&report) else { continue };
            let this = self.driver.this();
            for peer in (0..self.group.member.len()).filter(|peer| *peer != this) {
                // One that misses it gets the next one.
                let body = FrameBody { head: head.clone(), parts: Vec::new() };
                links.send(peer, KIND_LIVE, true, body);
            }
        }
    }

    /// The instance to which the live group ships reported this.
    pub(super) fn told(&self, peer: Peer, body: &[u8]) {
        match serde_json::from_slice::<LiveReport>(body) {
            Ok(report) => *self.told.lock() = Some((Instant::now(), report)),
            Err(error) => tracing::warn!(%error, peer, "what is said of the live group"),
        }
    }

    /// The live group, if it ships to this group now.
    fn live(&self) -> Option<LiveReport> {
        self.connected_live().or_else(|| {
            let told = self.told.lock();
            let recent = told.as_ref().filter(|(at, _)| at.elapsed() < TOLD_MAX);
            recent.map(|(_, report)| report.clone())
        })
    }

    fn connected_live(&self) -> Option<LiveReport> {
        let region = self.region.get()?;
        let instance = region.live_instance()?.to_string();
        let clients = region.clients().map(|clients| GroupClients::clone(&clients));
        Some(LiveReport { instance, clients: clients.unwrap_or_default() })
    }

    /// Where clients find the other group: as configured, or as it said when it was connected, to
    /// this instance or to another one.
    fn other(&self) -> Option<GroupClients> {
        let recovery = self.group.recovery.as_ref()?;
        let said = self.region.get().and_then(|region| region.clients());
        let said = said.map(|clients| GroupClients::clone(&clients)).or_else(|| {
            let told = self.told.lock();
            told.as_ref().map(|(_, report)| report.clients.clone())
        });
        Some(said.unwrap_or_default().as_configured(recovery))
    }
}

fn elsewhere(ClientAddress { scheme, host, port }: ClientAddress) -> Elsewhere {
    Elsewhere { scheme: scheme.into(), host: host.into(), port }
}

/// As people write it.
fn url(ClientAddress { scheme, host, port }: &ClientAddress) -> String {
    match host.contains(':') {
        true => format!("{scheme}://[{host}]:{port}"),
        false => format!("{scheme}://{host}:{port}"),
    }
}
