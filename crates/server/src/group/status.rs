//! The group as `towline status` shows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use towline_admin::status::{GroupRole, GroupStatus, InstanceState, InstanceStatus};
use towline_group::{Mode, PeerProgress, Progress, Role};

use super::addresses::ClientAddresses;
use super::region;
use super::region_intervals;
use super::report::{Report, Stand};
use towline_config::GroupConfig;
use towline_engine::GroupView;
use towline_link::{FrameBody, LinkState, Peer, Where};
use towline_process::Clock;
use towline_replication::disk_condition::DiskCondition;
use towline_replication::disk_watch;
use towline_replication::driver::Driver;
use towline_replication::frames::{KIND_ROWS, member_of, peer_of};
use towline_replication::region_intervals::SentIntervals;
use towline_replication::region_part::RegionPart;
use towline_types::Lsn;

/// Makes the status; remembers when each instance was last seen in sync.
pub(crate) struct View {
    driver: Arc<Driver>,
    clock: Clock,
    config: GroupConfig,
    builds: Arc<Mutex<Vec<String>>>,
    in_sync_at: Mutex<Vec<u64>>,
    /// The active instance reported.
    news: Notify,
    /// That this instance is ready was printed.
    ready_printed: AtomicBool,
    /// What the active instance reported last.
    told: Mutex<Option<ActiveReport>>,
    /// The other region, if there is one.
    region: OnceLock<Arc<RegionPart>>,
    /// Where clients find the queue manager.
    addresses: Arc<ClientAddresses>,
    /// What was sent to the other region in the last interval.
    pub(super) sent: Arc<SentIntervals>,
}

/// What the active instance reported of all instances.
struct ActiveReport {
    from: Peer,
    /// The term in which it was active.
    term: u64,
    received: Instant,
    rows: Vec<InstanceStatus>,
    /// Up to where its own log was on its disk then; `None`: its row does not say.
    reached: Option<Lsn>,
}

impl ActiveReport {
    fn new(from: Peer, term: u64, rows: Vec<InstanceStatus>) -> ActiveReport {
        let reached = rows.get(from).and_then(|row| row.ack_lsn.parse().ok());
        ActiveReport { from, term, received: Instant::now(), rows, reached }
    }

    /// Whether it is recent and of the instance that is active now. That of the former one, or of
    /// an earlier term of this one, does not say that the door of this one is open.
    fn holds(&self, active: Option<Peer>, term: u64) -> bool {
        let is_of_active = active == Some(self.from) && term == self.term;
        is_of_active && self.received.elapsed() < TOLD_MAX
    }

    /// What a replica shows of itself, of which the log is `committed` up to there on its disk.
    ///
    /// The active instance knows better that a replica is not in sync, but its report is up to half
    /// a second old. It is out of date when the replica has all that the active instance had then.
    fn apply_to_own(&self, row: &mut InstanceStatus, reported: &InstanceStatus, committed: Lsn) {
        let has_all = self.reached.is_some_and(|reached| committed >= reached);
        let is_outdated = !reported.in_sync && row.in_sync && has_all;
        row.backlog_kb = if is_outdated { 0 } else { reported.backlog_kb };
        if !reported.in_sync && !is_outdated {
            row.in_sync = false;
            if row.status == InstanceState::Normal {
                row.status = not_in_sync(reported.status);
            }
        }
    }
}

/// How long the others show what the active instance reported.
const TOLD_MAX: Duration = Duration::from_secs(3);

impl View {
    pub(crate) fn new(
        driver: Arc<Driver>,
        clock: Clock,
        config: GroupConfig,
        builds: Arc<Mutex<Vec<String>>>,
        addresses: Arc<ClientAddresses>,
    ) -> View {
        let in_sync_at = Mutex::new(vec![0; config.member.len()]);
        let (news, ready_printed) = (Notify::new(), AtomicBool::new(false));
        View {
            driver,
            clock,
            config,
            builds,
            in_sync_at,
            news,
            ready_printed,
            told: Mutex::new(None),
            region: OnceLock::new(),
            addresses,
            sent: Arc::default(),
        }
    }

    /// This instance takes part in the traffic with the other region.
    pub(crate) fn set_region(&self, region: Arc<RegionPart>) {
        assert!(self.region.set(region).is_ok(), "there is one other region");
    }

    /// Waits until clients are served, here or through the active instance.
    pub(crate) async fn until_served(&self) {
        let mut place = self.driver.whereabouts();
        loop {
            let news = self.news.notified();
            let now = *place.borrow_and_update();
            let served = match now {
                Where::Here => true,
                // It reports when its door is open, and not before.
                Where::At(peer) => {
                    let Progress { leader, term, .. } = self.driver.group();
                    let active = leader.map(peer_of);
                    let told = self.told.lock();
                    let holds = told.as_ref().is_some_and(|report| report.holds(active, term));
                    holds && active == Some(peer)
                }
                Where::NoActive => false,
            };
            if served && !self.driver.is_fenced() {
                return;
            }
            tokio::select! {
                () = news => {}
                changed = place.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Waits until this group is fenced.
    pub(crate) async fn until_fenced(&self) {
        /// Nothing else says it here.
        const LOOK_INTERVAL: Duration = Duration::from_millis(100);
        while !self.driver.is_fenced() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Whether `ready` was printed.
    pub(crate) fn was_ready_told(&self) -> bool {
        self.ready_printed.load(Ordering::SeqCst)
    }

    /// See [`View::was_ready_told`].
    pub(crate) fn ready_is_told(&self) {
        self.ready_printed.store(true, Ordering::SeqCst);
    }

    /// Notes when the certificate that this instance shows to the other region is valid.
    pub(super) fn note_certificate(&self) {
        if let Some(part) = self.region.get() {
            let valid_s = part.certificate_begins_s()..=part.certificate_expires_s();
            self.driver.conditions().shows_certificate(valid_s);
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Reports to the others what this instance, which is active, knows of all.
    pub(crate) fn tell(&self) {
        let tells = self.driver.leads() || self.driver.relays();
        let Some(links) = self.driver.links().filter(|_| tells) else { return };
        let Ok(rows) = serde_json::to_vec(&self.group().instances) else { return };
        let this = self.driver.this();
        for peer in (0..self.config.member.len()).filter(|peer| *peer != this) {
            // A replica that misses it gets the next one.
            links.send(peer, KIND_ROWS, true, FrameBody { head: rows.clone(), parts: Vec::new() });
        }
    }

    /// The active instance reported this.
    pub(crate) fn told(&self, peer: Peer, body: &[u8]) {
        let progress = self.driver.group();
        if first_of(&progress) != Some(peer) {
            return;
        }
        match serde_json::from_slice::<Vec<InstanceStatus>>(body) {
            Ok(rows) if rows.len() == self.config.member.len() => {
                *self.told.lock() = Some(ActiveReport::new(peer, progress.term, rows));
                self.news.notify_waiters();
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, peer, "what the active instance tells"),
        }
    }

    /// On a replica, what only the active instance knows is as it reported.
    fn apply_report(&self, rows: &mut [InstanceStatus], progress: &Progress) {
        let this = self.driver.this();
        let report = self.told.lock();
        let active = first_of(progress);
        let Some(report) = report.as_ref().filter(|report| report.holds(active, progress.term))
        else {
            return;
        };
        for (peer, (row, reported)) in rows.iter_mut().zip(&report.rows).enumerate() {
            let connected_here = row.connected_here;
            let reason = std::mem::take(&mut row.reason);
            if peer == this {
                report.apply_to_own(row, reported, progress.committed.end);
            } else {
                *row = reported.clone();
            }
            row.connected = reported.connected;
            row.held_back_bytes = reported.held_back_bytes;
            row.connected_here = connected_here;
            // What this instance knows by itself of its own connection, if anything is wrong with
            // it.
            if !reason.is_empty() {
                row.reason = reason;
            }
        }
    }

    /// The answer to an operator that asks in the name of another instance.
    pub(super) fn report(&self) -> Report {
        Report { group: self.group(), stand: self.stand() }
    }

    /// Where this instance stands.
    fn stand(&self) -> Stand {
        let progress = self.driver.group();
        Stand {
            term: progress.term,
            may_vote: progress.may_vote,
            last_index: progress.last.index,
            last_term: progress.last.term,
            committed: progress.committed.index,
        }
    }

    /// Whether an instance gives no vote: this one, or another one as it reported last (`votes`).
    /// One of an earlier version said it when it came: while no instance is active it does not get
    /// its vote back, unless it is in recovery.
    fn is_blank(&self, peer: Peer, progress: &Progress, votes: Option<bool>) -> bool {
        let link = self.driver.links().map(|links| links.state(peer)).unwrap_or_default();
        let is_there = link.connected_in && link.connected_out;
        if peer == self.driver.this() {
            return !progress.may_vote;
        }
        if progress.leader.is_some() || !is_there {
            return false;
        }
        let said = || self.driver.standing_of(peer).is_some_and(|standing| standing.blank);
        votes.map_or_else(said, |votes| !votes)
    }

    fn instance(&self, peer: Peer, progress: &Progress, now_ms: u64) -> InstanceStatus {
        let this = self.driver.this();
        let leads = leads_or_relays(progress, this);
        let link = self.driver.links().map(|links| links.state(peer)).unwrap_or_default();
        let row = progress.peers.iter().find(|row| peer_of(row.id) == peer);
        let is_leader = progress.leader == Some(member_of(peer));
        let connected_here = peer == this || (link.connected_in && link.connected_out);
        let in_sync = match row {
            // One that needs a copy does not know how far the others are.
            None => progress.is_in_sync && !self.driver.is_copying(),
            Some(row) if leads => row.is_in_sync,
            Some(_) => is_leader && connected_here && !self.driver.stood_still(),
        };
        let mut seen = self.in_sync_at.lock();
        let sync_time = seen.get_mut(peer).map_or(0, |seen| {
            if in_sync {
                *seen = now_ms;
            }
            *seen
        });
        drop(seen);
        let Some(member) = self.config.member.get(peer) else {
            unreachable!("instance {peer} is none of {}", self.config.member.len())
        };
        let held =
            if leads { self.driver.retention().bytes(peer, self.driver.log()) } else { None };
        let condition = match peer == this {
            true => disk_watch::own(&self.driver),
            false => self.driver.conditions().of(peer).unwrap_or_default(),
        };
        let DiskCondition { log_full, sync_overdue_ms, address_refused, votes, .. } = condition;
        let is_brought_a_copy = match row {
            None => self.driver.is_copying(),
            Some(row) => leads && (row.needs_copy || self.driver.retention().is_rebasing(peer)),
        };
        InstanceStatus {
            instance: member.name.clone(),
            role: role_of(progress, peer, peer == this || connected_here),
            replication_address: member.address.clone(),
            connected: if leads { connected_here } else { is_leader || connected_here },
            in_sync,
            backlog_kb: row.map_or(0, |row| row.backlog_bytes.div_ceil(1024)),
            held_back_bytes: held.unwrap_or(0),
            connected_here,
            ack_lsn: match row {
                None => progress.durable.to_string(),
                Some(row) => row.acknowledged.to_string(),
            },
            status: match is_brought_a_copy && !in_sync && connected_here {
                _ if sync_overdue_ms > 0 => InstanceState::SyncOverdue,
                true => InstanceState::Rebasing,
                false if log_full => InstanceState::LogFull,
                false if self.is_blank(peer, progress, votes) => InstanceState::Blank,
                false => state_of((leads, row), in_sync, connected_here, progress),
            },
            log_full,
            sync_overdue_ms,
            address_refused,
            sync_time,
            round_trip_us: link.round_trip_us.unwrap_or(0),
            version: match row {
                None => towline_types::program_version().to_owned(),
                Some(_) => self.builds.lock().get(peer).cloned().unwrap_or_default(),
            },
            sent_bytes: bytes_sent(&link),
            sent_bytes_uncompressed: link.sent_bytes,
            reason: match self.driver.links() {
                Some(links) if peer != this => links.trouble(peer),
                _ => self.driver.why_silent(&progress.unheard),
            },
        }
    }
}

/// The state of this instance when the active one says that it is not in sync.
fn not_in_sync(told: InstanceState) -> InstanceState {
    match told {
        InstanceState::Rebasing => InstanceState::Rebasing,
        _ => InstanceState::Synchronizing,
    }
}

fn bytes_sent(link: &LinkState) -> u64 {
    link.sent_wire_bytes
}

/// The instance that reports of all: the active one; in recovery the one to which live ships.
fn first_of(progress: &Progress) -> Option<Peer> {
    progress.leader.or(progress.relay).map(peer_of)
}

/// A relay knows of the others what a leader knows.
fn leads_or_relays(progress: &Progress, this: Peer) -> bool {
    progress.role == Role::Leader || progress.relay == Some(member_of(this))
}

fn role_of(progress: &Progress, peer: Peer, is_known: bool) -> GroupRole {
    let is = |member| member == Some(member_of(peer));
    match is_known {
        _ if is(progress.leader) => GroupRole::Active,
        _ if is(progress.relay) => GroupRole::Leader,
        true => GroupRole::Replica,
        false => GroupRole::Unknown,
    }
}

fn state_of(
    (leads, row): (bool, Option<&PeerProgress>),
    in_sync: bool,
    connected: bool,
    progress: &Progress,
) -> InstanceState {
    match row {
        None if in_sync => InstanceState::Normal,
        // How far the others are is not known without an active instance that is heard.
        None if !progress.hears_leader => InstanceState::Unknown,
        None => InstanceState::Synchronizing,
        Some(_) if !connected => InstanceState::Disconnected,
        Some(_) if in_sync => InstanceState::Normal,
        Some(_) if !leads => InstanceState::Unknown,
        Some(row) if row.is_heard => InstanceState::Synchronizing,
        Some(_) => InstanceState::Checking,
    }
}

/// What stands in the rows too is as they say it: they may know better than this instance.
fn of_rows(instances: Vec<InstanceStatus>, this: Peer) -> GroupStatus {
    GroupStatus {
        in_sync: instances.get(this).is_some_and(|row| row.in_sync),
        in_sync_count: instances.iter().filter(|row| row.in_sync).count() as u64,
        instances,
        ..GroupStatus::default()
    }
}

/// A process that stood still: how the others are it does not know before it has heard.
fn knows_nothing(progress: &mut Progress) {
    (progress.is_in_sync, progress.hears_leader) = (false, false);
    for peer in &mut progress.peers {
        (peer.is_heard, peer.is_in_sync) = (false, false);
    }
}

impl View {
    /// For how long the live group has not been heard, here or by the instance to which it ships.
    fn live_unheard_ms(&self) -> u64 {
        let here = self.region.get().map_or(0, |part| part.live_unheard_ms());
        self.addresses.live_told_ms().map_or(here, |told| here.min(told))
    }

    /// The other region, as it is known here or was reported by the instance that has the link.
    fn add_region(&self, group: &mut GroupStatus) {
        let Some(part) = self.region.get() else { return };
        let here = region::condition(part, &self.driver, group);
        let Some(mut other) = group.other_region.take() else { return };
        other.here = here;
        if let Some(reported) = self.addresses.reported() {
            other = reported;
        } else if let Some(told) = self.driver.told_live()
            && group.group_role == "recovery"
        {
            // Of what live had this is known still when the one that reported it is gone.
            let own = other.live_lsn.parse().unwrap_or(Lsn::ZERO);
            other.live_lsn = own.max(Lsn(told.live.committed)).to_string();
        }
        let histories = part.histories();
        other.advertised = self.addresses.advertised();
        (other.redirects, other.turned_away) = self.addresses.sent_away();
        other.interval = region_intervals::status(&self.sent, self.driver.now());
        other.role_changes = histories.count().saturating_sub(1);
        group.other_region = Some(other);
        group.history = histories.newest().map(|it| it.id.to_string()).unwrap_or_default();
        group.role_changes = towline_node::role_changes(&histories);
    }
}

impl GroupView for View {
    fn group(&self) -> GroupStatus {
        let mut progress = self.driver.group();
        let stood_still = self.driver.stood_still();
        if stood_still {
            knows_nothing(&mut progress);
        }
        let now_ms = self.driver.now().as_millis();
        let mut instances: Vec<InstanceStatus> = (0..self.config.member.len())
            .map(|peer| self.instance(peer, &progress, now_ms))
            .collect();
        let first = first_of(&progress);
        let is_led = first.is_some_and(|first| first != self.driver.this());
        if progress.role != Role::Leader && is_led && !stood_still {
            self.apply_report(&mut instances, &progress);
        }
        let active = progress.leader.and_then(|leader| self.config.member.get(peer_of(leader)));
        // Between losing leadership and re-executing the door still exists, and no client is
        // served.
        let overdue = self.driver.overdue();
        let here = self.driver.active().is_some() && progress.role == Role::Leader;
        let is_led = progress.leader.is_some() && progress.role != Role::Leader;
        let follows = is_led && !stood_still;
        let unheard_ms = self.live_unheard_ms();
        let when = (progress.mode, self.driver.now(), unheard_ms);
        let mut group = GroupStatus {
            instance: self.config.instance.clone(),
            role: match (here, progress.role) {
                (true, _) => GroupRole::Active,
                _ if progress.relay == Some(member_of(self.driver.this())) => GroupRole::Leader,
                (false, Role::Follower | Role::Leader) => GroupRole::Replica,
                (false, Role::Candidate) => GroupRole::Unknown,
            },
            configured_count: self.config.member.len() as u64,
            group_lsn: progress.committed.end.to_string(),
            catch_up_lsn: progress.base.end.to_string(),
            group_name: self.config.name.clone(),
            group_role: match progress.mode {
                Mode::Voting if self.driver.is_fenced() => "fenced".into(),
                Mode::Voting => "live".into(),
                Mode::Recovery => "recovery".into(),
                Mode::Promoting => "pending_live".into(),
            },
            other_region: self
                .region
                .get()
                .zip(self.config.recovery.as_ref())
                .map(|(part, recovery)| region::status(part, recovery, when)),
            active: active.map(|member| member.name.clone()).unwrap_or_default(),
            term: progress.term,
            serving: (here || follows) && !self.driver.is_fenced(),
            fence: region::fence(&self.driver),
            sync_overdue_ms: disk_watch::own(&self.driver).sync_overdue_ms,
            sync_overdue_file: overdue.map(|overdue| overdue.file).unwrap_or_default(),
            repaired_batches: self.driver.repairs().repaired(),
            unrepaired_batches: self.driver.repairs().lacking(),
            format_level: u64::from(self.driver.stored_level()),
            format_level_waits_for: self.driver.level_waits_for(),
            floating_address: match &self.config.floating {
                Some(floating) => floating.address.to_string(),
                None => String::new(),
            },
            ..of_rows(instances, self.driver.this())
        };
        self.add_region(&mut group);
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_in_sync_as_soon_as_it_has_what_the_active_instance_had_when_it_said_no() {
        let state = |instance: &str, in_sync, status, ack: u64| InstanceStatus {
            instance: instance.into(),
            in_sync,
            status,
            ack_lsn: Lsn(ack).to_string(),
            backlog_kb: 4,
            ..InstanceStatus::default()
        };
        let lags = state("b", false, InstanceState::Synchronizing, 50);
        let report = ActiveReport::new(
            0,
            1,
            vec![state("a", true, InstanceState::Normal, 80), lags.clone()],
        );
        let shown = |in_sync, committed| {
            let status = if in_sync { InstanceState::Normal } else { InstanceState::Blank };
            let mut own = state("b", in_sync, status, committed);
            report.apply_to_own(&mut own, &lags, Lsn(committed));
            (own.in_sync, own.status, own.backlog_kb)
        };
        assert_eq!(shown(true, 79), (false, InstanceState::Synchronizing, 4), "it knows better");
        assert_eq!(shown(true, 80), (true, InstanceState::Normal, 0), "the report is out of date");
        assert_eq!(shown(false, 90), (false, InstanceState::Blank, 4), "its own no stands");
        let silent = ActiveReport::new(7, 1, vec![lags.clone()]);
        let mut own = state("b", true, InstanceState::Normal, 90);
        silent.apply_to_own(&mut own, &lags, Lsn(90));
        assert!(!own.in_sync, "nothing shows that the report is out of date");
    }

    /// A new active instance opens its door some time after its election.
    #[test]
    fn only_a_report_of_the_instance_that_is_active_now_says_that_clients_are_served() {
        let report = ActiveReport::new(0, 5, Vec::new());
        assert!(report.holds(Some(0), 5));
        assert!(!report.holds(Some(2), 6), "that of the former active instance");
        assert!(!report.holds(Some(0), 7), "that of its former term");
        assert!(!report.holds(None, 5));
        let old = Instant::now().checked_sub(TOLD_MAX).unwrap();
        let late = ActiveReport { received: old, ..report };
        assert!(!late.holds(Some(0), 5), "it may have ended since");
    }

    #[test]
    fn an_instance_is_in_sync_when_its_row_says_so() {
        let row = |in_sync| InstanceStatus { in_sync, ..InstanceStatus::default() };
        let rows = [true, false, true].map(row).to_vec();
        for (this, in_sync) in [true, false, true].into_iter().enumerate() {
            let status = of_rows(rows.clone(), this);
            assert_eq!((status.in_sync, status.in_sync_count), (in_sync, 2));
        }
    }
}
