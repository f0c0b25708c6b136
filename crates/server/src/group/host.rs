//! What this instance receives over its links besides frames for its member: relayed clients,
//! reports, questions of operators.
//!
//! Not here: frames and their kinds (`inbox`).

use std::sync::{Arc, OnceLock};

use super::addresses::ClientAddresses;
use super::report;
use super::status::View;
use towline_link::{LinkStream, Peer, StreamPurpose};
use towline_replica::OpenReplica;
use towline_replication::copy::CopySource;
use towline_replication::inbox::InboxHost;

/// Takes relayed clients.
pub(crate) type TakeClient = dyn Fn(Peer, StreamPurpose, LinkStream) + Send + Sync;

/// See the module.
pub(crate) struct GroupHost {
    pub(crate) opened: Arc<OpenReplica>,
    /// Takes relayed clients, as soon as it is set.
    pub(crate) clients: Arc<OnceLock<Box<TakeClient>>>,
    /// Builds of the peers, for the status.
    pub(crate) builds: Arc<parking_lot::Mutex<Vec<String>>>,
    /// Makes the status, as soon as it is set.
    pub(crate) view: Arc<OnceLock<Arc<View>>>,
    /// Where clients find the queue manager.
    pub(crate) addresses: Arc<ClientAddresses>,
}

impl InboxHost for GroupHost {
    fn build(&self, peer: Peer, build: &str) {
        if let Some(known) = self.builds.lock().get_mut(peer) {
            *known = build.to_owned();
        }
    }

    fn is_connected(&self) {
        if let Some(view) = self.view.get() {
            view.tell();
        }
    }

    fn rows(&self, peer: Peer, body: &[u8]) {
        if let Some(view) = self.view.get() {
            view.told(peer, body);
        }
    }

    fn live(&self, peer: Peer, body: &[u8]) {
        self.addresses.told(peer, body);
    }

    fn takes_clients(&self) -> bool {
        self.clients.get().is_some()
    }

    fn client(&self, peer: Peer, purpose: StreamPurpose, stream: LinkStream) {
        if let Some(take) = self.clients.get() {
            take(peer, purpose, stream);
        }
    }

    fn answers(&self) -> bool {
        self.view.get().is_some()
    }

    fn answer(&self, stream: LinkStream) {
        if let Some(view) = self.view.get() {
            let view = Arc::clone(view);
            tokio::spawn(async move { report::send(view.report(), stream).await });
        }
    }

    fn copy_source(&self) -> Arc<dyn CopySource> {
        self.opened.clone()
    }
}
