//! A live group that is to serve no client: it was superseded, or an operator fenced it. Kept in
//! the data folder of each instance (`region-fence`), so that it stays so without the other region.
//!
//! Both parts say of which history of this log they are: the newest one when they were made. When
//! the next one has begun in this log they are over, whichever instance still says them. So no
//! fence of former times stops a group that was made live again.
//!
//! Instances that hear different things come to the same: what two of them have is joined, in
//! whatever order, as often as it is said. An order that is taken back is a later order.
//!
//! Not here: how it is said and what it does (`driver::fencing`), what finds out that a group was
//! superseded (`region_part`), the operator's order (`towline_replica::fence_order`).

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use towline_types::HistoryId;

use crate::region_clients::GroupClients;
use crate::return_order::{self, KnownFork};

const FENCE: &str = "region-fence";
/// Instead of the newest history, of a log that has none.
pub const NO_HISTORY: [u8; 16] = [0; 16];
/// Instead of the user, if a group stops because its log was lost.
pub const BY_ITSELF: &str = "this group";
/// Characters of the reason of an operator.
pub const REASON_CHARACTERS_MAX: usize = 100;

/// The other group went on in a history that this log does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Supersession {
    /// The newest history of this log then.
    pub of: [u8; 16],
    /// Where both logs part, and the history that this one lacks.
    pub fork: KnownFork,
    /// Where clients find the other group, as it said.
    pub clients: GroupClients,
    /// When it was heard, milliseconds since 1970.
    pub at_ms: u64,
}

/// An operator had this group stop, or go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct FenceOrder {
    /// The newest history of this log then.
    pub of: [u8; 16],
    /// The later of two orders has the higher one.
    pub number: u64,
    /// Its name: random bytes.
    pub id: [u8; 16],
    /// Whether it is to stop.
    pub is_on: bool,
    /// The user that ordered it.
    pub by: String,
    /// Why; may be empty.
    pub reason: String,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RegionFence {
    /// It was superseded.
    pub superseded: Option<Supersession>,
    /// The newest order.
    pub order: Option<FenceOrder>,
}

/// By what an instance knows whether another one has the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct FenceMark {
    /// The history of [`Supersession`].
    pub superseded: [u8; 16],
    /// Number and name of the newest order.
    pub order: (u64, [u8; 16]),
}

impl RegionFence {
    /// That of this data folder; nothing is kept: none.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn kept(data: &Path) -> io::Result<RegionFence> {
        Ok(return_order::read(data, FENCE)?.unwrap_or_default())
    }

    /// Keeps it; it is on the disk when this returns.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn keep(&self, data: &Path) -> io::Result<()> {
        return_order::write(data, FENCE, self)
    }

    /// Whether it stops a group that votes and has begun these histories.
    #[must_use]
    pub fn is_on(&self, begun: &[HistoryId]) -> bool {
        self.is_superseded(begun) || self.order_in_force(begun).is_some_and(|order| order.is_on)
    }

    /// Whether such a group was superseded.
    #[must_use]
    pub fn is_superseded(&self, begun: &[HistoryId]) -> bool {
        let newest = begun.last().map(|newest| newest.0);
        self.superseded.as_ref().is_some_and(|it| Some(it.of) == newest)
    }

    /// The order that counts for such a group.
    #[must_use]
    pub fn order_in_force(&self, begun: &[HistoryId]) -> Option<&FenceOrder> {
        self.order.as_ref().filter(|order| order.of == newest_of(begun))
    }

    /// What both have together, as far as it is not over for a log that has begun these histories.
    #[must_use]
    pub fn joined(self, other: RegionFence, begun: &[HistoryId]) -> RegionFence {
        let is_over = |of: [u8; 16]| {
            let had = |older: &[HistoryId]| of == NO_HISTORY || older.iter().any(|it| it.0 == of);
            begun.split_last().is_some_and(|(_, older)| had(older))
        };
        let has_history = |it: &Supersession| begun.iter().any(|had| had.0 == it.fork.history);
        let both = [self.superseded, other.superseded].into_iter().flatten();
        let superseded = both
            .filter(|it| !is_over(it.of) && !has_history(it))
            .min_by_key(|it| (it.fork.fork, it.fork.history, !it.fork.is_compared));
        let both = [self.order, other.order].into_iter().flatten();
        // One of a history that is not known here is of a later time.
        let is_known = |of: [u8; 16]| of == NO_HISTORY || begun.iter().any(|had| had.0 == of);
        let order =
            both.filter(|it| !is_over(it.of)).max_by_key(|it| (!is_known(it.of), it.number, it.id));
        RegionFence { superseded, order }
    }

    /// See [`FenceMark`].
    #[must_use]
    pub fn mark(&self) -> FenceMark {
        let order = self.order.as_ref().map(|order| (order.number, order.id));
        FenceMark {
            superseded: self.superseded.as_ref().map(|it| it.fork.history).unwrap_or_default(),
            order: order.unwrap_or_default(),
        }
    }

    /// Why no client is served, for clients and for people.
    #[must_use]
    pub fn why(&self, begun: &[HistoryId]) -> String {
        let superseded = self.superseded.as_ref().filter(|_| self.is_superseded(begun));
        let Some(Supersession { fork, clients, .. }) = superseded else {
            let reason = self.order.as_ref().map(|order| order.reason.as_str()).unwrap_or_default();
            if self.order.as_ref().is_some_and(|order| order.by == BY_ITSELF) {
                return format!("this group serves no client: {reason}");
            }
            return match reason {
                "" => "this group serves no client: an operator fenced it".to_owned(),
                why => format!("this group serves no client: an operator fenced it ({why})"),
            };
        };
        let other = &fork.other;
        let mut text = format!(
            "this group serves no client: group '{other}' of another region took over from it"
        );
        let known = clients.of_listener(0, "amqp", "").unwrap_or_default();
        if !known.is_empty() {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            text += &format!(" and serves at {}", known.join(", "));
        }
        text
    }
}

/// The newest history of a log that has begun these, as an order names it.
#[must_use]
pub fn newest_of(begun: &[HistoryId]) -> [u8; 16] {
    begun.last().map_or(NO_HISTORY, |newest| newest.0)
}

/// What is kept is of a tail that was cut off.
///
/// # Errors
/// What the disk said.
pub fn forget_fence(data: &Path) -> io::Result<()> {
    return_order::forget(data, FENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: HistoryId = HistoryId([1; 16]);
    const TWO: HistoryId = HistoryId([2; 16]);
    const THREE: HistoryId = HistoryId([3; 16]);

    fn order(of: HistoryId, number: u64, is_on: bool) -> RegionFence {
        let id = [u8::from(is_on); 16];
        let order = FenceOrder { of: of.0, number, id, is_on, ..FenceOrder::default() };
        RegionFence { order: Some(order), superseded: None }
    }

    fn superseded(of: HistoryId, by: HistoryId) -> RegionFence {
        let fork = KnownFork {
            fork: 7,
            other: "EAST".into(),
            history: by.0,
            is_old: true,
            ..KnownFork::default()
        };
        let superseded = Supersession { of: of.0, fork, ..Supersession::default() };
        RegionFence { superseded: Some(superseded), order: None }
    }

    #[test]
    fn what_is_heard_in_any_order_and_again_comes_to_the_same() {
        let said = [order(ONE, 1, true), order(ONE, 2, false), superseded(ONE, TWO)];
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let joined = orders.map(|order| {
            let all = order.iter().chain(&order);
            all.fold(RegionFence::default(), |has, at| has.joined(said[*at].clone(), &[ONE]))
        });
        assert!(joined.iter().all(|it| *it == joined[0] && it.mark() == joined[0].mark()));
        assert!(joined[0].is_superseded(&[ONE]) && joined[0].is_on(&[ONE]));
        assert!(!joined[0].order_in_force(&[ONE]).unwrap().is_on, "the later one counts");
    }

    #[test]
    fn a_fence_of_a_former_history_stops_nobody_and_is_not_taken_again() {
        let of_one = order(ONE, 9, true).joined(superseded(ONE, TWO), &[ONE]);
        assert!(of_one.is_on(&[ONE]) && !of_one.is_on(&[ONE, THREE]) && !of_one.is_on(&[]));
        let now = RegionFence::default().joined(of_one.clone(), &[ONE, THREE]);
        assert_eq!(now, RegionFence::default());
        let now = order(THREE, 1, true).joined(of_one.clone(), &[ONE, THREE]);
        assert_eq!(now, order(THREE, 1, true));
        let followed = RegionFence::default().joined(of_one, &[ONE, TWO]);
        assert_eq!(followed, RegionFence::default(), "its log has that history");
    }

    #[test]
    fn an_order_of_a_history_that_has_not_come_here_is_kept_and_does_not_count_yet() {
        let now = order(ONE, 9, false).joined(order(THREE, 1, true), &[ONE]);
        assert_eq!(now, order(THREE, 1, true));
        assert!(!now.is_on(&[ONE]) && now.is_on(&[ONE, THREE]));
    }

    #[test]
    fn a_group_with_a_new_log_is_stopped_until_its_first_history_begins() {
        let of_new_log = |number, is_on| {
            let (by, reason) = (BY_ITSELF.to_owned(), "its log is new".to_owned());
            let order =
                FenceOrder { of: NO_HISTORY, number, is_on, by, reason, ..FenceOrder::default() };
            RegionFence { order: Some(order), superseded: None }
        };
        let lost = of_new_log(1, true);
        assert!(lost.is_on(&[]) && !lost.is_on(&[ONE]));
        assert_eq!(lost.why(&[]), "this group serves no client: its log is new");
        let now = RegionFence::default().joined(lost.clone(), &[ONE]);
        assert_eq!(now, RegionFence::default(), "an instance of a group whose log has a history");
        assert!(!lost.clone().joined(of_new_log(2, false), &[]).is_on(&[]));
        assert!(!of_new_log(2, false).joined(lost, &[]).is_on(&[]));
    }

    #[test]
    fn it_comes_back_from_the_data_folder_and_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        assert_eq!(RegionFence::kept(data).unwrap(), RegionFence::default());
        let fence = order(ONE, 1, true).joined(superseded(ONE, TWO), &[ONE]);
        fence.keep(data).unwrap();
        assert_eq!(RegionFence::kept(data).unwrap(), fence);
        let mut bytes = std::fs::read(data.join(FENCE)).unwrap();
        bytes[5] ^= 1;
        std::fs::write(data.join(FENCE), bytes).unwrap();
        assert!(RegionFence::kept(data).is_err());
        forget_fence(data).unwrap();
        forget_fence(data).unwrap();
        assert_eq!(RegionFence::kept(data).unwrap(), RegionFence::default());
    }

    #[test]
    fn clients_are_told_who_took_over_and_where_it_is() {
        let mut fence = superseded(ONE, TWO);
        assert!(fence.why(&[ONE]).ends_with("group 'EAST' of another region took over from it"));
        let clients = vec![vec!["east-a:5672".to_owned()], vec!["east-b:5672".to_owned()]];
        let instances = vec!["a".to_owned(), "b".to_owned()];
        let known = GroupClients { instances, clients, schemes: vec!["amqps".into()] };
        fence.superseded.as_mut().unwrap().clients = known;
        let why = fence.why(&[ONE]);
        assert!(why.ends_with("serves at amqps://east-a:5672, amqps://east-b:5672"), "{why}");
        assert!(order(ONE, 1, true).why(&[ONE]).ends_with("an operator fenced it"));
    }
}
