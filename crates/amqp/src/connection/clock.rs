//! The four timers of a connection as one table: login, our patience with silence, the peer's
//! patience with ours, and the wait for the peer's close.
//!
//! It reads no clock: `now` is the time that the driver gave last.

use std::time::Duration;

use towline_types::Time;

/// How long we wait for the answer to our close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// The shortest idle time-out of a peer that we serve; below it empty frames would be a flood.
pub(super) const PEER_IDLE_MIN: Duration = Duration::from_millis(100);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Clock {
    now: Time,
    heard: Time,
    wrote: Time,
    login_until: Option<Time>,
    close_until: Option<Time>,
    /// We close after so much silence.
    silence_max: Option<Duration>,
    /// We say something at least so often: half of the peer's idle time-out (AMQP 2.4.5).
    beat: Option<Duration>,
}

/// What a timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    LoginTooSlow,
    CloseUnanswered,
    PeerSilent,
    SendEmptyFrame,
}

impl Clock {
    pub(super) fn new(now: Time, login_timeout: Duration, idle_timeout: Duration) -> Clock {
        Clock {
            now,
            heard: now,
            wrote: now,
            login_until: Some(now + login_timeout),
            close_until: None,
            silence_max: (!idle_timeout.is_zero()).then_some(idle_timeout),
            beat: None,
        }
    }

    pub(super) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// A whole frame came in.
    pub(super) fn heard(&mut self) {
        self.heard = self.now;
    }

    /// Bytes went out. `now` may be a little old, which only makes the next empty frame early.
    pub(super) fn wrote(&mut self) {
        self.wrote = self.now;
    }

    pub(super) fn login_done(&mut self) {
        self.login_until = None;
    }

    pub(super) fn set_peer_idle(&mut self, idle: Duration) {
        self.beat = Some(idle / 2);
    }

    /// Our close frame is out: nothing may follow it, and only its answer is awaited.
    pub(super) fn closing(&mut self) {
        self.stop();
        self.close_until = Some(self.now + CLOSE_WAIT);
    }

    pub(super) fn stop(&mut self) {
        self.login_until = None;
        self.close_until = None;
        self.silence_max = None;
        self.beat = None;
    }

    /// During the login its own limit bounds silence.
    fn silent_at(&self) -> Option<Time> {
        let silence = self.silence_max.filter(|_| self.login_until.is_none())?;
        Some(self.heard + silence)
    }

    fn alarms(&self) -> [(Option<Time>, Alarm); 4] {
        [
            (self.close_until, Alarm::CloseUnanswered),
            (self.login_until, Alarm::LoginTooSlow),
            (self.silent_at(), Alarm::PeerSilent),
            (self.beat.map(|beat| self.wrote + beat), Alarm::SendEmptyFrame),
        ]
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.alarms().into_iter().filter_map(|(at, _)| at).min()
    }

    pub(super) fn due(&self) -> Option<Alarm> {
        let due = |(at, alarm): (Option<Time>, Alarm)| {
            at.is_some_and(|at| at <= self.now).then_some(alarm)
        };
        self.alarms().into_iter().find_map(due)
    }
}
