//! The simulated network between three instances: connections, delays, loss, cuts.
//!
//! A connection has a number; a message arrives only while its receiver still has the connection
//! on which it was sent. Each end learns of the beginning and the end of a connection by itself.
//!
//! Not here: what messages mean; when connections are made (the world tries again and again).
//!
//! Invariants: on an ordered network nothing overtakes; the end of a connection comes behind what
//! was sent on it.

use std::time::Duration;

use towline_group::{MemberId, Message, Start, Witness};

use crate::plan::NetworkPlan;
use towline_types::SeededRandom;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Of the connection.
    pub(crate) number: u64,
}

/// What travels.
#[derive(Clone, Debug)]
pub(crate) enum Parcel {
    Message(Box<Message>),
    /// The first on a connection, for this process: the newest index of the sender's log, its term
    /// as it is on its disk, whether it is blank, what it knows of starts.
    Hello {
        receiver: u64,
        last: u64,
        term: u64,
        blank: bool,
        start: Start,
        noted: Vec<(MemberId, Start)>,
        witness: Witness,
    },
    /// What its sender knows of starts, when that is news.
    Noted(Vec<(MemberId, Start)>),
    /// The last on a connection.
    End,
}

/// One direction between two instances.
#[derive(Debug, Default)]
struct Lane {
    is_cut: bool,
    newest_arrival: u64,
    /// Sent into a cut, to arrive when it heals.
    held: Vec<(Link, Parcel)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Network {
    plan: NetworkPlan,
    lanes: [[Lane; 3]; 3],
    /// `open[a][b]`: the connection to `b` that `a` has.
    open: [[Option<u64>; 3]; 3],
    /// No further attempt for a pair before this time.
    next_try: [[u64; 3]; 3],
    connections: u64,
}

impl Network {
    pub(crate) fn new(plan: NetworkPlan) -> Network {
        let lanes = Default::default();
        let open = Default::default();
        Network { plan, lanes, open, next_try: Default::default(), connections: 0 }
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.lanes[from][to].is_cut = true;
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.lanes[from][to].is_cut
    }

    /// All cuts end. What arrives now, and when.
    pub(crate) fn heal(&mut self, now: u64, dice: &mut SeededRandom) -> Vec<(u64, Link, Parcel)> {
        let mut arrivals = Vec::new();
        for (from, to) in pairs() {
            let lane = &mut self.lanes[from][to];
            lane.is_cut = false;
            for (link, parcel) in std::mem::take(&mut lane.held) {
                arrivals.push((self.arrival(now, link, dice), link, parcel));
            }
        }
        arrivals
    }

    /// From now on the network is as it should be.
    pub(crate) fn calm(&mut self) {
        let NetworkPlan { delay_us, delay_more_us, .. } = self.plan;
        self.plan = NetworkPlan {
            delay_us,
            delay_more_us,
            slow_per_mille: 0,
            loss_per_mille: 0,
            duplicate_per_mille: 0,
            ordered: true,
            cuts_hold: true,
        };
    }

    fn arrival(&mut self, now: u64, link: Link, dice: &mut SeededRandom) -> u64 {
        let mut delay = self.plan.delay_us + dice.below(self.plan.delay_more_us);
        if dice.chance(self.plan.slow_per_mille) {
            delay *= 1 + dice.below(100);
        }
        let lane = &mut self.lanes[link.from][link.to];
        let arrival =
            if self.plan.ordered { lane.newest_arrival.max(now + delay) } else { now + delay };
        lane.newest_arrival = lane.newest_arrival.max(arrival);
        arrival
    }

    /// Sends a message; when it arrives, if it does, perhaps twice.
    pub(crate) fn send(
        &mut self,
        now: u64,
        from: usize,
        to: usize,
        message: Message,
        dice: &mut SeededRandom,
    ) -> Vec<(u64, Link, Parcel)> {
        let Some(number) = self.open[from][to] else { return Vec::new() };
        let link = Link { from, to, number };
        let parcel = Parcel::Message(Box::new(message));
        if dice.chance(self.plan.loss_per_mille) {
            return Vec::new();
        }
        if self.lanes[from][to].is_cut {
            if self.plan.cuts_hold {
                self.lanes[from][to].held.push((link, parcel));
            }
            return Vec::new();
        }
        let mut arrivals = Vec::new();
        if dice.chance(self.plan.duplicate_per_mille) {
            arrivals.push((self.arrival(now, link, dice), link, parcel.clone()));
        }
        arrivals.push((self.arrival(now, link, dice), link, parcel));
        arrivals
    }

    /// Whether a pair should be connected and is not; if so, the number of a new connection.
    pub(crate) fn connect(&mut self, now: u64, a: usize, b: usize) -> Option<u64> {
        let stands = self.open[a][b].is_some() && self.open[a][b] == self.open[b][a];
        let cut = self.is_cut(a, b) || self.is_cut(b, a);
        if stands || cut || now < self.next_try[a][b] {
            return None;
        }
        self.next_try[a][b] = now + Duration::from_millis(150).as_micros_u64();
        self.connections += 1;
        Some(self.connections)
    }

    /// A hello or an end, which is not lost unless the way is cut for good.
    pub(crate) fn announce(
        &mut self,
        now: u64,
        link: Link,
        parcel: Parcel,
        dice: &mut SeededRandom,
    ) -> Option<(u64, Link, Parcel)> {
        if self.is_cut(link.from, link.to) {
            if self.plan.cuts_hold {
                self.lanes[link.from][link.to].held.push((link, parcel));
            }
            return None;
        }
        let behind = self.lanes[link.from][link.to].newest_arrival;
        let arrival = self.arrival(now, link, dice).max(behind);
        self.lanes[link.from][link.to].newest_arrival = arrival;
        Some((arrival, link, parcel))
    }

    /// A hello arrives: the connection that its receiver had before, if any.
    pub(crate) fn opened(&mut self, link: Link) -> Option<u64> {
        self.open[link.to][link.from].replace(link.number)
    }

    /// The connection to `to` that `from` has.
    pub(crate) fn number(&self, from: usize, to: usize) -> Option<u64> {
        self.open[from][to]
    }

    /// Whether what came on this link is of the connection that its receiver has.
    pub(crate) fn is_open(&self, link: Link) -> bool {
        self.open[link.to][link.from] == Some(link.number)
    }

    /// An end arrives. True: it was of the connection that its receiver had.
    pub(crate) fn closed(&mut self, link: Link) -> bool {
        let was_open = self.is_open(link);
        if was_open {
            self.open[link.to][link.from] = None;
        }
        was_open
    }

    /// One process is gone: the links on which its end is announced.
    pub(crate) fn ends(&mut self, node: usize) -> Vec<Link> {
        let others = (0..3).filter(|other| *other != node);
        let links = others.filter_map(|to| {
            let number = self.open[node][to].take()?;
            Some(Link { from: node, to, number })
        });
        links.collect()
    }

    /// A connection breaks between two processes that live: both learn of it.
    pub(crate) fn reset(&mut self, a: usize, b: usize) -> Vec<Link> {
        let direction =
            |from: usize, to: usize| self.open[to][from].map(|number| Link { from, to, number });
        [direction(a, b), direction(b, a)].into_iter().flatten().collect()
    }
}

/// All directions.
pub(crate) fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

/// Whole microseconds.
pub(crate) trait Micros {
    fn as_micros_u64(&self) -> u64;
}

impl Micros for Duration {
    fn as_micros_u64(&self) -> u64 {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX)
    }
}
