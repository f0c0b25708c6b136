//! The link to the other region, as the part that this instance takes in its traffic uses it. In
//! the product that is [`RegionLinks`]; the simulator has a network of its own.
//!
//! Not here: what answers; both ends call a [`RegionInbox`](super::RegionInbox).

use std::io;
use std::pin::Pin;

use towline_os::task::{Handle, handle_of};

use super::{LinkStream, RegionHello, RegionLinkState, RegionLinks};

/// A stream for a copy that is being opened, with what its other end says of itself.
pub type OpeningCopy = Pin<Box<dyn Future<Output = io::Result<(RegionHello, LinkStream)>> + Send>>;

/// See the module, and the methods of the same names of [`RegionLinks`].
pub trait RegionDialler: Send + Sync {
    /// Whether this side dials the other one.
    fn dial(&self, on: bool);

    /// Dials at once, if no connection that was dialled stands and this side dials.
    fn kick(&self);

    /// Opens a stream for a copy, in the runtime of [`RegionDialler::streams`].
    fn open_stream(&self) -> OpeningCopy;

    /// The condition of the link, and its statistics.
    fn state(&self) -> RegionLinkState;

    /// When the certificate in force expires, seconds since 1970.
    fn certificate_expires_s(&self) -> u64;

    /// When it begins to be valid, seconds since 1970.
    fn certificate_begins_s(&self) -> u64;

    /// Where streams are served.
    fn streams(&self) -> Handle;

    /// Ends all connections; the inbox gets nothing any more.
    fn stop(&self);
}

impl RegionDialler for RegionLinks {
    fn dial(&self, on: bool) {
        RegionLinks::dial(self, on);
    }

    fn kick(&self) {
        RegionLinks::kick(self);
    }

    fn open_stream(&self) -> OpeningCopy {
        Box::pin(RegionLinks::open_stream(self))
    }

    fn state(&self) -> RegionLinkState {
        RegionLinks::state(self)
    }

    fn certificate_expires_s(&self) -> u64 {
        RegionLinks::certificate_expires_s(self)
    }

    fn certificate_begins_s(&self) -> u64 {
        RegionLinks::certificate_begins_s(self)
    }

    fn streams(&self) -> Handle {
        handle_of(RegionLinks::streams(self))
    }

    fn stop(&self) {
        RegionLinks::stop(self);
    }
}
