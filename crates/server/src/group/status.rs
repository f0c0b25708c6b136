//! The group as `towline status` shows it.

use std::sync::Arc;

use parking_lot::Mutex;
use towline_admin::status::{GroupRole, GroupStatus, InstanceState, InstanceStatus};
use towline_group::{PeerProgress, Progress, Role};

use super::driver::Driver;
use super::{member_of, peer_of};
use crate::config::GroupConfig;
use crate::door::GroupView;
use crate::link::{LinkState, Peer};

/// Makes the status; remembers when each instance was last seen in sync.
pub(crate) struct View {
    driver: Arc<Driver>,
    config: GroupConfig,
    builds: Arc<Mutex<Vec<String>>>,
    in_sync_at: Mutex<Vec<u64>>,
}

impl View {
    pub(crate) fn new(
        driver: Arc<Driver>,
        config: GroupConfig,
        builds: Arc<Mutex<Vec<String>>>,
    ) -> View {
        let in_sync_at = Mutex::new(vec![0; config.member.len()]);
        View { driver, config, builds, in_sync_at }
    }

    fn instance(&self, peer: Peer, progress: &Progress, now_ms: u64) -> InstanceStatus {
        let this = self.driver.this();
        let leads = progress.role == Role::Leader;
        let link = self.driver.links().map(|links| links.state(peer)).unwrap_or_default();
        let row = progress.peers.iter().find(|row| peer_of(row.id) == peer);
        let is_leader = progress.leader == Some(member_of(peer));
        let connected_here = peer == this || (link.connected_in && link.connected_out);
        let in_sync = match row {
            None => progress.is_in_sync,
            Some(row) if leads => row.is_in_sync,
            Some(_) => is_leader && connected_here,
        };
        let mut seen = self.in_sync_at.lock();
        let sync_time = seen.get_mut(peer).map_or(0, |seen| {
            if in_sync {
                *seen = now_ms;
            }
            *seen
        });
        drop(seen);
        let member = self.config.member.get(peer);
        InstanceStatus {
            instance: member.map(|member| member.name.clone()).unwrap_or_default(),
            role: role_of(is_leader, peer == this || connected_here),
            replication_address: member.map(|member| member.address.clone()).unwrap_or_default(),
            connected: if leads { connected_here } else { is_leader || connected_here },
            in_sync,
            backlog_kb: row.map_or(0, |row| row.backlog_bytes.div_ceil(1024)),
            connected_here,
            ack_lsn: match row {
                None => progress.durable.to_string(),
                Some(row) => row.acknowledged.to_string(),
            },
            status: state_of((leads, row), in_sync, connected_here, progress),
            sync_time,
            round_trip_us: link.round_trip_us.unwrap_or(0),
            version: match row {
                None => env!("CARGO_PKG_VERSION").to_owned(),
                Some(_) => self.builds.lock().get(peer).cloned().unwrap_or_default(),
            },
            sent_bytes: bytes_sent(&link),
            sent_bytes_uncompressed: link.sent_bytes,
        }
    }
}

fn bytes_sent(link: &LinkState) -> u64 {
    link.sent_wire_bytes
}

fn role_of(is_leader: bool, is_known: bool) -> GroupRole {
    match (is_leader, is_known) {
        (true, _) => GroupRole::Active,
        (false, true) => GroupRole::Replica,
        (false, false) => GroupRole::Unknown,
    }
}

fn state_of(
    (leads, row): (bool, Option<&PeerProgress>),
    in_sync: bool,
    connected: bool,
    progress: &Progress,
) -> InstanceState {
    match row {
        None if !progress.may_vote => InstanceState::Blank,
        None if in_sync => InstanceState::Normal,
        None => InstanceState::Synchronizing,
        Some(_) if !connected => InstanceState::Disconnected,
        Some(_) if in_sync => InstanceState::Normal,
        Some(_) if !leads => InstanceState::Unknown,
        Some(row) if row.needs_copy => InstanceState::Rebasing,
        Some(row) if row.is_heard => InstanceState::Synchronizing,
        Some(_) => InstanceState::Checking,
    }
}

impl GroupView for View {
    fn group(&self) -> GroupStatus {
        let progress = self.driver.group();
        let now_ms = self.driver.clock().now().as_millis();
        let instances: Vec<InstanceStatus> = (0..self.config.member.len())
            .map(|peer| self.instance(peer, &progress, now_ms))
            .collect();
        let active = progress.leader.and_then(|leader| self.config.member.get(peer_of(leader)));
        let here = self.driver.door().is_some();
        let follows = progress.leader.is_some() && progress.role != Role::Leader;
        GroupStatus {
            instance: self.config.instance.clone(),
            role: match (here, progress.role) {
                (true, _) => GroupRole::Active,
                (false, Role::Follower | Role::Leader) => GroupRole::Replica,
                (false, Role::Candidate) => GroupRole::Unknown,
            },
            in_sync: progress.is_in_sync,
            in_sync_count: instances.iter().filter(|row| row.in_sync).count() as u64,
            configured_count: self.config.member.len() as u64,
            group_lsn: progress.committed.end.to_string(),
            group_name: self.config.name.clone(),
            group_role: "live".into(),
            active: active.map(|member| member.name.clone()).unwrap_or_default(),
            term: progress.term,
            serving: here || follows,
            instances,
        }
    }
}
