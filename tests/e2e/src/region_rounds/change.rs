//! What can happen to two regions in a round, drawn from a seed. Not here: how it is done.

use std::fmt;
use std::time::Duration;

use crate::chance::Chance;
use crate::slow_net::command::Ways;

/// Where something strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrikePlace {
    /// The active instance of the live group.
    Active,
    /// The instance of recovery to which is shipped.
    Relay,
    /// An instance of the live group, by number.
    Live(usize),
    /// An instance of recovery, by number.
    Recovery(usize),
}

/// What happens to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// Nothing passes, no new connection either.
    Cut(Ways),
    /// Nothing passes; new connections do.
    Stalled(Ways),
    /// All connections are reset, again and again.
    Refused,
}

/// What happens in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleChange {
    /// A planned switch.
    Switch,
    /// An instance is killed in the middle of a switch, so long after the order.
    SwitchKilled(StrikePlace, Duration),
    /// The link breaks in the middle of a switch, and is healed after as long again.
    SwitchBroken(LinkFault, Duration),
    /// All of live is killed; the other group is promoted.
    FailOver {
        /// The link was broken so long before.
        before: Option<(LinkFault, Duration)>,
        /// An instance of the group that is promoted is killed so long after the order.
        killed: Option<Duration>,
        /// An instance that returns is killed so long after the order to.
        rejoin_killed: Option<Duration>,
    },
    /// The link breaks for so long.
    Link(LinkFault, Duration),
    /// An instance is killed and started again after so long.
    Restart(StrikePlace, Duration),
    /// The recovery group loses its data and gets a copy; it is killed so long after its start.
    Rebase(Duration),
}

impl RoleChange {
    /// A change of groups with so many instances.
    pub fn draw(chance: &mut Chance, size: usize) -> RoleChange {
        let middle = |chance: &mut Chance| Duration::from_micros(chance.within(0, 250_000));
        let maybe = |chance: &mut Chance, percent: u64, most: u64| {
            let drawn = Duration::from_micros(chance.within(0, most));
            chance.percent(percent).then_some(drawn)
        };
        match chance.within(0, 100) {
            0..22 => RoleChange::Switch,
            22..38 => RoleChange::SwitchKilled(StrikePlace::draw(chance, size), middle(chance)),
            38..50 => RoleChange::SwitchBroken(LinkFault::draw(chance), middle(chance)),
            50..78 => {
                let broken = LinkFault::draw(chance);
                RoleChange::FailOver {
                    before: maybe(chance, 60, 1_500_000).map(|time| (broken, time)),
                    killed: maybe(chance, 40, 200_000),
                    rejoin_killed: maybe(chance, 40, 400_000),
                }
            }
            78..87 => RoleChange::Link(
                LinkFault::draw(chance),
                Duration::from_millis(chance.within(50, 3_000)),
            ),
            87..95 => {
                let time = Duration::from_millis(chance.within(0, 1_000));
                RoleChange::Restart(StrikePlace::draw(chance, size), time)
            }
            _ => RoleChange::Rebase(Duration::from_micros(chance.within(0, 500_000))),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            RoleChange::Switch => "switch",
            RoleChange::SwitchKilled(..) => "switch, killed",
            RoleChange::SwitchBroken(..) => "switch, link broken",
            RoleChange::FailOver { killed: None, rejoin_killed: None, .. } => "fail-over",
            RoleChange::FailOver { killed: Some(_), .. } => "fail-over, killed",
            RoleChange::FailOver { .. } => "fail-over, return killed",
            RoleChange::Link(..) => "link broken",
            RoleChange::Restart(..) => "restart",
            RoleChange::Rebase(_) => "rebase, killed",
        }
    }
}

impl StrikePlace {
    fn draw(chance: &mut Chance, size: usize) -> StrikePlace {
        let at = chance.index(size);
        match chance.index(4) {
            0 => StrikePlace::Active,
            1 => StrikePlace::Relay,
            2 => StrikePlace::Live(at),
            _ => StrikePlace::Recovery(at),
        }
    }
}

impl LinkFault {
    fn draw(chance: &mut Chance) -> LinkFault {
        let ways = [Ways::There, Ways::Back, Ways::Both][chance.index(3)];
        match chance.index(3) {
            0 => LinkFault::Cut(ways),
            1 => LinkFault::Stalled(ways),
            _ => LinkFault::Refused,
        }
    }
}

impl fmt::Display for RoleChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self:?}")
    }
}
