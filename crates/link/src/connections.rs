//! The connections to the peers, as the part that this instance takes in its group uses them. In
//! the product that is [`Links`]; the simulator has a network of its own.
//!
//! Not here: who answers; both ends call an [`Inbox`](crate::Inbox).

use std::io;
use std::pin::Pin;

use towline_os::task::{Handle, handle_of};

use crate::{FrameBody, LinkState, LinkStream, Links, Peer, StreamPurpose};

/// A stream that is being opened.
pub type OpeningStream = Pin<Box<dyn Future<Output = io::Result<LinkStream>> + Send>>;

/// See the module, and the methods of the same names of [`Links`].
pub trait Connections: Send + Sync {
    /// Gives a frame to the connection to `peer`; false when it is dropped. Never waits.
    fn send(&self, peer: Peer, kind: u8, urgent: bool, body: FrameBody) -> bool;

    /// Opens a stream, in the runtime of [`Connections::streams`].
    fn open_stream(&self, peer: Peer, purpose: StreamPurpose) -> OpeningStream;

    /// The statistics of the connection to `peer`.
    fn state(&self, peer: Peer) -> LinkState;

    /// Why there is no connection to `peer`; empty when there is.
    fn trouble(&self, peer: Peer) -> String;

    /// Where streams are served.
    fn streams(&self) -> Handle;

    /// Ends all connections.
    fn stop(&self);
}

impl Connections for Links {
    fn send(&self, peer: Peer, kind: u8, urgent: bool, body: FrameBody) -> bool {
        Links::send(self, peer, kind, urgent, body)
    }

    fn open_stream(&self, peer: Peer, purpose: StreamPurpose) -> OpeningStream {
        Box::pin(Links::open_stream(self, peer, purpose))
    }

    fn state(&self, peer: Peer) -> LinkState {
        Links::state(self, peer)
    }

    fn trouble(&self, peer: Peer) -> String {
        Links::trouble(self, peer)
    }

    fn streams(&self) -> Handle {
        handle_of(Links::streams(self))
    }

    fn stop(&self) {
        Links::stop(self);
    }
}
