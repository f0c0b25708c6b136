//! One client of a worker: its role, its connection, and how the next connection is made.

use std::time::Duration;

use towline_types::Time;

use crate::client::Role;
use crate::plan::{Plan, Seat};
use crate::wire::Wire;
use towline_amqp::Url;

/// First wait after a lost connection; doubles with each failure up to [`WAIT_MAX`].
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(640);

/// See the module.
pub(crate) struct Client {
    pub(crate) seat: Seat,
    pub(crate) role: Role,
    pub(crate) wire: Option<Wire>,
    /// Whether the broker's open has come.
    pub(crate) is_open: bool,
    /// Position in the fail-over list.
    pub(crate) url: usize,
    /// Where a broker sent it, for one try.
    pub(crate) sent_to: Option<Url>,
    /// Tries in a row that led to no open connection.
    pub(crate) failures: u32,
    /// Whether it ever had an open connection.
    pub(crate) was_open: bool,
    /// When it may be connected.
    pub(crate) dial_at: Time,
    /// When an unanswered connect or close is given up.
    pub(crate) give_up_at: Time,
}

impl Client {
    /// A client that was not connected yet.
    pub(crate) fn new(seat: Seat, plan: &Plan) -> Client {
        Client {
            role: Role::new(&seat, plan),
            seat,
            wire: None,
            is_open: false,
            url: 0,
            sent_to: None,
            failures: 0,
            was_open: false,
            dial_at: Time::ZERO,
            give_up_at: Time::NEVER,
        }
    }

    /// After a loss: the next address of the list, at once the first time round, then later and
    /// later.
    pub(crate) fn try_next_after(&mut self, now: Time) {
        self.url = self.url.wrapping_add(1);
        let wait = WAIT_MIN * 2u32.saturating_pow(self.failures.min(5));
        // Clients that lost the same broker do not come back in one instant.
        let share = self.seat.index % 16;
        self.dial_at = now + wait.min(WAIT_MAX) / 16 * share;
        if self.failures > 0 {
            self.dial_at = self.dial_at + wait.min(WAIT_MAX) / 2;
        }
        self.failures = self.failures.saturating_add(1);
    }
}
