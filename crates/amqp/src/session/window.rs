//! The session window: transfer frames (not deliveries) that each side may send (AMQP 2.5.6).

use crate::types::{Begin, Flow};

/// Frames that a peer may send in one session before we widen the window again (AMQP 2.5.6).
pub(super) const INCOMING_WINDOW: u32 = 2_048;
/// Transfer frames that we say we may send: we are held back by the peer's window alone.
pub(super) const OUTGOING_WINDOW: u32 = i32::MAX as u32;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Window {
    /// The id of the next transfer frame of the peer; none before its begin came.
    pub(super) next_incoming_id: Option<u32>,
    /// Frames that the peer may still send, as announced to it.
    incoming: u32,
    pub(super) next_outgoing_id: u32,
    /// Frames that we may still send.
    outgoing: u32,
}

impl Window {
    pub(super) fn new() -> Window {
        Window {
            next_incoming_id: None,
            incoming: INCOMING_WINDOW,
            next_outgoing_id: 0,
            outgoing: 0,
        }
    }

    pub(super) fn begun(&mut self, begin: &Begin) {
        self.next_incoming_id = Some(begin.next_outgoing_id);
        self.outgoing = begin.incoming_window;
    }

    /// Counts a transfer frame of the peer; false when it had no right to send it.
    pub(super) fn came_in(&mut self) -> bool {
        let Some(left) = self.incoming.checked_sub(1) else { return false };
        self.incoming = left;
        self.next_incoming_id = self.next_incoming_id.map(|id| id.wrapping_add(1));
        true
    }

    /// Whether it is time to widen the peer's window.
    pub(super) fn is_narrow(&self) -> bool {
        self.incoming <= INCOMING_WINDOW / 2
    }

    /// The window to announce to the peer: full again.
    pub(super) fn widen(&mut self) -> u32 {
        self.incoming = INCOMING_WINDOW;
        self.incoming
    }

    pub(super) fn is_open(&self) -> bool {
        self.outgoing > 0
    }

    /// Frames that we may send now.
    pub(super) fn outgoing(&self) -> u32 {
        self.outgoing
    }

    /// Counts a transfer frame of ours.
    pub(super) fn went_out(&mut self) {
        assert!(self.outgoing > 0, "a transfer frame beyond the peer's session window");
        self.outgoing -= 1;
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
    }

    /// Takes the peer's flow. A null next-incoming-id means that the peer had not seen our begin
    /// with next-outgoing-id 0 (AMQP 2.5.6); one ahead of us is taken as up to date.
    pub(super) fn flowed(&mut self, flow: &Flow) {
        let behind = self.next_outgoing_id.wrapping_sub(flow.next_incoming_id.unwrap_or(0));
        let on_the_way = if behind > u32::MAX / 2 { 0 } else { behind };
        self.outgoing = flow.incoming_window.saturating_sub(on_the_way);
        self.next_incoming_id = Some(flow.next_outgoing_id);
    }
}
