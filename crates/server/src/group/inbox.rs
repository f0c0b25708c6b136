//! What the links bring: messages for the member, wishes for the active instance, streams.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use towline_admin::catalogue::{GROUP_INSTANCE_CAME, GROUP_INSTANCE_WENT};
use towline_group::Role;

use super::driver::Driver;
use super::start::Opened;
use super::status::View;
use super::switch::Wish;
use super::{KIND_CONDITION, KIND_CONSENSUS, KIND_ROWS, KIND_WISH};
use crate::link::{Greeting, Inbox, LinkStream, Peer, Standing, StreamPurpose};
use crate::logging::log as say;

/// Takes relayed clients.
pub(crate) type TakeClient = dyn Fn(Peer, StreamPurpose, LinkStream) + Send + Sync;

/// See the module.
pub(crate) struct GroupInbox {
    pub(crate) driver: Arc<Driver>,
    pub(crate) opened: Arc<Opened>,
    /// Where relayed clients go, once it is known.
    pub(crate) clients: Arc<OnceLock<Box<TakeClient>>>,
    /// Builds of the peers, for the status.
    pub(crate) builds: Arc<parking_lot::Mutex<Vec<String>>>,
    /// What the status shows, once it is there.
    pub(crate) view: Arc<OnceLock<Arc<View>>>,
}

impl Inbox for GroupInbox {
    fn standing(&self) -> Standing {
        self.driver.standing()
    }

    fn opened(&self, peer: Peer, incoming: bool, greeting: &Greeting) {
        if let Some(place) = self.builds.lock().get_mut(peer) {
            *place = greeting.build.to_string();
        }
        if !incoming {
            let name = self.driver.names().get(peer).map_or("", String::as_str);
            say(&GROUP_INSTANCE_CAME, &[name, &greeting.build]);
            self.driver.opened(peer, greeting.standing);
            // It need not wait for the next time to know that clients are served.
            if let Some(view) = self.view.get() {
                view.tell();
            }
        }
    }

    fn closed(&self, peer: Peer, incoming: bool) {
        if incoming {
            let name = self.driver.names().get(peer).map_or("", String::as_str);
            say(&GROUP_INSTANCE_WENT, &[name]);
            self.driver.closed(peer);
        }
    }

    fn frame(&self, peer: Peer, kind: u8, body: Bytes) {
        match kind {
            KIND_CONSENSUS => self.driver.frame(&body),
            KIND_WISH => match serde_json::from_slice::<Wish>(&body) {
                Ok(wish) => super::switch::grant(&self.driver, wish),
                Err(error) => tracing::warn!(%error, peer, "a wish from another instance"),
            },
            KIND_ROWS => {
                if let Some(view) = self.view.get() {
                    view.told(peer, &body);
                }
            }
            KIND_CONDITION => self.driver.conditions().told(peer, &body),
            // Of a later version: what must be understood has another protocol version.
            other => tracing::debug!(other, peer, "a frame of an unknown kind"),
        }
    }

    fn admits(&self, _peer: Peer, purpose: &StreamPurpose) -> Result<(), String> {
        let active = self.driver.leads();
        match purpose {
            StreamPurpose::Relay { .. } if active && self.clients.get().is_some() => Ok(()),
            // Also before its door is open: without the copy there may be no majority that would open it.
            StreamPurpose::Copy if self.driver.group().role == Role::Leader => Ok(()),
            StreamPurpose::Relay { .. } | StreamPurpose::Copy => {
                Err("this instance is not active".into())
            }
        }
    }

    fn stream(&self, peer: Peer, purpose: StreamPurpose, stream: LinkStream) {
        match purpose {
            StreamPurpose::Relay { .. } => {
                if let Some(take) = self.clients.get() {
                    take(peer, purpose, stream);
                }
            }
            StreamPurpose::Copy => {
                super::copy::give(Arc::clone(&self.opened), peer, stream);
            }
        }
    }
}
