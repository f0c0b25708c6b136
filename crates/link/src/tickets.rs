//! Tickets with which streams to a peer are resumed (RFC 8446 section 2.2): a thousand relayed
//! clients that come back at once should not cost a thousand times two signatures and two chains of
//! certificates.
//!
//! Each ticket is used once, the newest first: after a peer restarted, its earlier tickets are
//! worth nothing, and each open stream delivers new ones.
//!
//! Not here: what a resumed stream must show all the same (`towline_tls::in_date`, `names`);
//! connections for frames, which are few and never resumed. Invariant: at most [`PER_PEER_MAX`] for
//! each peer.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Tickets kept for each peer: some times as many as handshakes are under way at once
/// (`relay::HANDSHAKES_MAX`), of about a kilobyte and a half.
const PER_PEER_MAX: usize = 64;
/// Tickets that a server gives with each connection: one is used up for it, so the stock grows.
pub(super) const GIVEN: usize = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    peers: Mutex<HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>>,
}

impl ClientSessionStore for Tickets {
    // Which group to offer first is settled by the other end being of the same program.
    fn set_kx_hint(&self, _peer: ServerName<'static>, _group: NamedGroup) {}

    fn kx_hint(&self, _peer: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    // Links speak TLS 1.3 only.
    fn set_tls12_session(&self, _peer: ServerName<'static>, _session: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _peer: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _peer: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, peer: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut peers = self.peers.lock();
        let tickets = peers.entry(peer).or_default();
        if tickets.len() >= PER_PEER_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, peer: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.peers.lock().get_mut(peer)?.pop_back()
    }
}
