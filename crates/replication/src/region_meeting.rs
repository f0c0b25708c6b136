//! What two groups say of themselves when they connect, and whether one of them may ship its log to
//! the other.
//!
//! ```text
//! sections of the hello of a link between regions, by tag
//!   1  configuration (`region_agreement`)          2, 4  position and checksums (`region_position`)
//!   3  histories of the log (`towline_types::Histories::to_bytes`)
//!   5  id of the log: 16
//!   6  what the group can be promoted with (`towline_region::RecoveryPoint`); may be left out
//!   7, 8  some batches of the log, and others that are asked for (`batch_marks`); may be left out
//! ```
//!
//! Sections with other tags are of a later version, and skipped.
//!
//! Not here: the connection (`towline_link`), what is done about an answer (`region_part`).
//! Invariant: both sides come to the same answer, whichever asks.

use bytes::Bytes;
use towline_link::RegionSections;
use towline_log::LogId;
use towline_region::RecoveryPoint;
use towline_types::{FORMAT_LEVEL_OF_REGIONS, Histories, History, HistoryId, RegionLog, Standing};

use crate::batch_marks::{BatchMarks, TAG_ASKED, decode_asked, encode_asked};
use crate::region_agreement::RegionAgreement;
use crate::region_differences::{RegionDifference, refusal};
use crate::region_odds::{OddGroup, both_live, other_log, partition};
use crate::region_position::{PositionSums, RegionPosition};
use crate::return_order::KnownFork;

const TAG_AGREEMENT: u8 = 1;
const TAG_HISTORIES: u8 = 3;
const TAG_LOG: u8 = 5;
const TAG_POINT: u8 = 6;

/// What an instance says of itself and its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSaid {
    /// Its configuration.
    pub agreement: RegionAgreement,
    /// Where it is in its log.
    pub position: RegionPosition,
    /// Checksums of that.
    pub sums: PositionSums,
    /// The histories of its log.
    pub histories: Histories,
    /// The id of its log.
    pub log_id: LogId,
    /// What its group can be promoted with, if it is in recovery.
    pub point: Option<RecoveryPoint>,
    /// Some batches of its log.
    pub batches: BatchMarks,
    /// Batches of the other log that it asks for.
    pub asked: Vec<u64>,
}

impl RegionSaid {
    /// As sections.
    #[must_use]
    pub fn encode(&self) -> RegionSections {
        let point = self.point.map(|point| (TAG_POINT, Bytes::from(point.encode())));
        let sections = [
            (TAG_AGREEMENT, Bytes::from(self.agreement.encode())),
            (RegionPosition::TAG, Bytes::from(self.position.encode())),
            (TAG_HISTORIES, Bytes::from(self.histories.to_bytes())),
            (PositionSums::TAG, Bytes::from(self.sums.encode())),
            (TAG_LOG, Bytes::copy_from_slice(&self.log_id.0.to_le_bytes())),
            (BatchMarks::TAG, Bytes::from(self.batches.encode())),
            (TAG_ASKED, Bytes::from(encode_asked(&self.asked))),
        ];
        sections.into_iter().chain(point).collect()
    }

    /// Reads them.
    ///
    /// # Errors
    /// What is missing, or cannot be read.
    pub fn decode(sections: &RegionSections) -> Result<RegionSaid, String> {
        let section = |tag: u8, what: &str| {
            let found = sections.iter().find(|(said, _)| *said == tag).map(|(_, bytes)| bytes);
            found.ok_or_else(|| format!("it does not say its {what}"))
        };
        let agreement = section(TAG_AGREEMENT, "configuration")?;
        let position = section(RegionPosition::TAG, "position")?;
        let histories = section(TAG_HISTORIES, "histories")?;
        let sums = section(PositionSums::TAG, "checksums")?;
        let id = section(TAG_LOG, "log")?.first_chunk().ok_or("the id of its log is cut")?;
        let point = sections.iter().find(|(said, _)| *said == TAG_POINT);
        let point = point.map(|(_, bytes)| RecoveryPoint::decode(bytes)).transpose();
        let batches = sections.iter().find(|(said, _)| *said == BatchMarks::TAG);
        let batches = batches.and_then(|(_, bytes)| BatchMarks::decode(bytes)).unwrap_or_default();
        let asked = sections.iter().find(|(said, _)| *said == TAG_ASKED);
        let asked = asked.and_then(|(_, bytes)| decode_asked(bytes)).unwrap_or_default();
        let said = RegionSaid {
            agreement: RegionAgreement::decode(agreement).map_err(|error| error.to_string())?,
            position: RegionPosition::decode(position).ok_or("its position cannot be read")?,
            sums: PositionSums::decode(sums).ok_or("its checksums cannot be read")?,
            histories: Histories::from_bytes(histories).map_err(|error| error.to_string())?,
            log_id: LogId(u128::from_le_bytes(*id)),
            point: point.map_err(|error| error.to_string())?,
            batches,
            asked,
        };
        said.is_of_a_log()?;
        Ok(said)
    }

    /// Of a history that begins behind the end of a log there is no byte in it. A live group stops
    /// for a history that it does not know, so it must not be an impossible one.
    fn is_of_a_log(&self) -> Result<(), String> {
        let (end, newest) = (self.position.last.end, self.histories.newest());
        match newest.filter(|newest| newest.fork > end) {
            None => Ok(()),
            Some(newest) => Err(format!(
                "it says that its log ends at {end}, and that history {} begins at {} in it",
                newest.id, newest.fork
            )),
        }
    }

    fn as_odd(&self) -> OddGroup<'_> {
        OddGroup {
            name: &self.agreement.group,
            is_live: self.agreement.is_live,
            has_history: !self.histories.is_empty(),
            log_id: self.log_id,
        }
    }

    fn log(&self) -> RegionLog<'_> {
        RegionLog { histories: &self.histories, end: self.position.last.end }
    }
}

/// Why one group does not ship to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeetingRefusal {
    /// For people.
    pub why: String,
    /// Whether it is about the logs of both: an operator must decide.
    pub is_partition: bool,
}

impl MeetingRefusal {
    fn of(why: String) -> MeetingRefusal {
        MeetingRefusal { why, is_partition: false }
    }
}

/// Where the other group went on from in a history that this log does not have, if it did; whether
/// this log has one either that the other does not have.
pub(crate) fn fork_of(own: &RegionSaid, other: &RegionSaid) -> Option<KnownFork> {
    if own.log_id != other.log_id {
        return None;
    }
    let (fork, is_old) = match Standing::of(own.log(), other.log()) {
        Standing::ShippingIsOld { fork, .. } => (fork, true),
        Standing::Diverged { fork } => (fork, false),
        Standing::Empty
        | Standing::Continues
        | Standing::ReceivingHasTail { .. }
        | Standing::ReceivingIsAhead
        | Standing::Unrelated => return None,
    };
    let first = first_lacked(own, other)?;
    let void = if is_old { None } else { void_switch(own, other) };
    let void = void.map(|history| history.0).unwrap_or_default();
    let other = other.agreement.group.clone();
    let history = first.id.0;
    Some(KnownFork { fork: fork.0, other, history, is_old, void, ..KnownFork::default() })
}

/// The history by which this group, which is in recovery, handed over to the other one, if that one
/// is live in another, and has the one before: it was promoted while the last batch of the switch
/// was on its way, and never takes that any more. What a live group says is committed there.
fn void_switch(own: &RegionSaid, other: &RegionSaid) -> Option<HistoryId> {
    let newest = own.histories.newest()?;
    let in_recovery = own.agreement.is_live == Some(false);
    let is_live = other.agreement.is_live == Some(true);
    let handed_over = was_handed_over(&own.histories, &own.agreement.group, &other.agreement.group);
    let has = |history| other.histories.get(history).is_some();
    let is_void = newest.parent.is_some_and(has) && !has(newest.id);
    (in_recovery && is_live && handed_over && is_void).then_some(newest.id)
}

/// The first history of the other chain that is not in this one.
pub(crate) fn first_lacked<'a>(own: &RegionSaid, other: &'a RegionSaid) -> Option<&'a History> {
    other.histories.iter().find(|history| own.histories.get(history.id).is_none())
}

/// Compares what both sides say: may `shipping` ship to `receiving`? Yields what differs in their
/// configurations and does not stand in the way. `is_one`, asked of a receiving log that goes on
/// behind a fork: as far as this side can see in its own log, what is there is the record of that
/// fork, or what the shipping log has there; so it is no tail.
///
/// # Errors
/// Why not.
pub fn meet(
    shipping: &RegionSaid,
    receiving: &RegionSaid,
    is_one: &dyn Fn() -> bool,
) -> Result<Vec<RegionDifference>, MeetingRefusal> {
    let differences = shipping.agreement.differences(&receiving.agreement);
    if let Some(why) = refusal(&differences) {
        return Err(MeetingRefusal::of(why));
    }
    roles(shipping, receiving)?;
    levels(shipping, receiving)?;
    let standing = Standing::of(shipping.log(), receiving.log());
    if standing != Standing::Empty && shipping.log_id != receiving.log_id {
        let why = other_log(&shipping.as_odd(), &receiving.as_odd());
        return Err(MeetingRefusal { why, is_partition: true });
    }
    let is_handed_over = shipping.agreement.is_live != Some(true);
    if is_handed_over && has_last_words(standing, &shipping.histories) {
        return Ok(differences);
    }
    if matches!(standing, Standing::ReceivingHasTail { .. }) && is_one() {
        return Ok(differences);
    }
    // One that hands over may have been overtaken, and does not know it yet.
    let is_late = is_handed_over && matches!(standing, Standing::ShippingIsOld { .. });
    match partition(standing, &shipping.as_odd(), &receiving.as_odd()) {
        None => Ok(differences),
        Some(why) => Err(MeetingRefusal { why, is_partition: !is_late }),
    }
}

/// Whether what the receiving log has behind the newest fork may be the batch with which that
/// history begins: it came over a link of which the hello did not know it, and is not applied. The
/// batches are compared before anything is taken, as on any link. A group that hands over has
/// nothing else to ship; of a live one it is looked at.
fn has_last_words(standing: Standing, shipping: &Histories) -> bool {
    let newest = shipping.newest().map(|newest| newest.fork);
    matches!(standing, Standing::ReceivingHasTail { fork } if newest == Some(fork))
}

fn roles(shipping: &RegionSaid, receiving: &RegionSaid) -> Result<(), MeetingRefusal> {
    let [live, other] = [&shipping.agreement, &receiving.agreement];
    let is_diverged =
        || matches!(Standing::of(shipping.log(), receiving.log()), Standing::Diverged { .. });
    match (live.is_live, other.is_live) {
        (Some(true), Some(false)) => Ok(()),
        (Some(true), Some(true)) => {
            let why = both_live(&shipping.as_odd(), &receiving.as_odd());
            Err(MeetingRefusal { why, is_partition: true })
        }
        (Some(true), None) => {
            let why = format!(
                "group '{}' is being promoted: it takes nothing more of group '{}'",
                other.group, live.group
            );
            Err(MeetingRefusal { why, is_partition: true })
        }
        (Some(false), Some(false)) if hands_over(shipping, receiving) => Ok(()),
        // It was promoted before it had the last batch, and lacks it for good: that is no end of
        // the switch, and both say where the logs part.
        (Some(false), Some(true)) if hands_over(shipping, receiving) && is_diverged() => Ok(()),
        (Some(false), Some(true)) if hands_over(shipping, receiving) => {
            Err(MeetingRefusal::of(format!("group '{}' has taken over", other.group)))
        }
        (Some(false) | None, _) => {
            Err(MeetingRefusal::of(format!("group '{}' is not live", live.group)))
        }
    }
}

/// Whether the shipping group was live until its log said that the receiving one is: then it ships
/// the batch that says so, and what is before it, until the other one has taken over.
fn hands_over(shipping: &RegionSaid, receiving: &RegionSaid) -> bool {
    let [own, other] = [shipping, receiving].map(|said| said.agreement.group.as_str());
    was_handed_over(&shipping.histories, own, other)
}

/// Whether group `other` is live in the newest of these histories, and `own` was in the one before.
pub(crate) fn was_handed_over(histories: &Histories, own: &str, other: &str) -> bool {
    let newest = histories.newest().filter(|newest| newest.live == other);
    let parent = newest.and_then(|newest| histories.get(newest.parent?));
    parent.is_some_and(|parent| parent.live == own)
}

/// Whether the receiving group reads the log of the shipping one, at its level and at that which it
/// gets with its first history.
fn levels(shipping: &RegionSaid, receiving: &RegionSaid) -> Result<(), MeetingRefusal> {
    let needed = shipping.agreement.levels.in_force.max(FORMAT_LEVEL_OF_REGIONS);
    let reads = receiving.agreement.levels.read;
    if reads >= needed {
        return Ok(());
    }
    Err(MeetingRefusal::of(format!(
        "the log of group '{}' has or gets format level {needed}, and version {} of group '{}' reads \
         up to {reads}: upgrade the recovery group first",
        shipping.agreement.group, receiving.agreement.version, receiving.agreement.group
    )))
}

#[cfg(test)]
mod tests {
    use towline_types::{BatchPlace, FORMAT_LEVEL, FormatLevels, History, HistoryId, Lsn, Time};

    use super::*;
    use crate::region_agreement::tests::{agreement_of, configuration};

    fn chain(ids: &[u8]) -> Histories {
        let lives: Vec<(u8, &str)> = ids.iter().map(|id| (*id, "WEST")).collect();
        chain_of(&lives)
    }

    fn chain_of(lives: &[(u8, &str)]) -> Histories {
        let mut chain = Histories::default();
        for (at, (id, live)) in lives.iter().enumerate() {
            let parent = chain.newest().map(|newest| newest.id);
            let history = History {
                id: HistoryId([*id; 16]),
                parent,
                fork: Lsn(at as u64 * 5_000),
                live: (*live).to_owned(),
                began: Time(1),
                cause: String::new(),
            };
            chain.push(history).unwrap();
        }
        chain
    }

    /// Live and recovery, that ends at `end` with a chain.
    fn both(end: u64, live: &[u8], recovery: &[u8]) -> [RegionSaid; 2] {
        let west = agreement_of(&configuration("west", "east", ""));
        let east = agreement_of(&configuration("east", "west", ""));
        let said = |mut agreement: RegionAgreement, is_live, end: u64, histories| {
            agreement.is_live = Some(is_live);
            agreement.levels = FormatLevels { in_force: 3, read: FORMAT_LEVEL };
            let last = BatchPlace { index: end / 10, term: 1, lsn: Lsn(end), end: Lsn(end) };
            let position = RegionPosition { blank: end == 0, last, committed: last };
            let (sums, log_id) = (PositionSums::default(), LogId(7));
            let (batches, asked) = (BatchMarks::default(), Vec::new());
            RegionSaid { agreement, position, sums, histories, log_id, point: None, batches, asked }
        };
        let live_end = if live.is_empty() { 400 } else { 9_000 };
        [said(west, true, live_end, chain(live)), said(east, false, end, chain(recovery))]
    }

    fn refused(both: &[RegionSaid; 2]) -> (String, bool) {
        let refusal = meet(&both[0], &both[1], &|| false).unwrap_err();
        (refusal.why, refusal.is_partition)
    }

    #[test]
    fn what_is_said_comes_back_and_what_lacks_a_section_does_not() {
        let [live, _] = both(0, &[1, 2], &[]);
        let mut sections = live.encode();
        sections.push((99, Bytes::from_static(b"of a later version")));
        assert_eq!(RegionSaid::decode(&sections), Ok(live));
        for at in 0..5 {
            let mut fewer = sections.clone();
            fewer.remove(at);
            assert!(RegionSaid::decode(&fewer).is_err());
        }
    }

    #[test]
    fn a_log_that_ends_before_its_newest_history_begins_is_none() {
        let [mut live, _] = both(0, &[1, 2], &[]);
        (live.position.last.lsn, live.position.last.end) = (Lsn(5_000), Lsn(5_000));
        assert_eq!(RegionSaid::decode(&live.encode()), Ok(live.clone()));
        (live.position.last.lsn, live.position.last.end) = (Lsn(4_999), Lsn(4_999));
        let why = RegionSaid::decode(&live.encode()).unwrap_err();
        assert!(why.contains("begins at <0:0:0:5000> in it"), "{why}");
    }

    #[test]
    fn a_log_is_shipped_to_its_beginning_and_to_an_empty_one() {
        for (end, live, recovery) in [
            (0, &[][..], &[][..]),
            (0, &[1], &[]),
            (8_000, &[1, 2], &[1, 2]),
            (5_000, &[1, 2], &[1]),
        ] {
            let [live, recovery] = both(end, live, recovery);
            assert!(meet(&live, &recovery, &|| false).is_ok(), "{end}");
        }
    }

    #[test]
    fn logs_that_part_are_not_shipped() {
        for (end, live, recovery, why) in [
            (100, &[][..], &[][..], "nothing in common"),
            (100, &[1], &[], "nothing in common"),
            (100, &[1], &[2], "nothing in common"),
            (8_000, &[1, 2], &[1], "has a tail behind"),
            (9_001, &[1, 2], &[1, 2], "goes further"),
            (9_000, &[1], &[1, 2], "an old live group"),
            (9_000, &[1, 3], &[1, 2], "both groups went on"),
        ] {
            let (said, is_partition) = refused(&both(end, live, recovery));
            assert!(said.contains(why) && is_partition, "{said}");
        }
    }

    /// The live group's disk was lost, or its site was built anew with its old file.
    #[test]
    fn no_reason_advises_to_empty_the_only_copy() {
        let mut groups = both(9_000, &[], &[1]);
        let in_recovery = refused(&groups).0;
        groups[1].agreement.is_live = Some(true);
        let live = refused(&groups).0;
        groups[1].log_id = LogId(8);
        groups[1].agreement.is_live = Some(false);
        let restored = refused(&groups).0;
        for why in [in_recovery, live, restored] {
            assert!(why.contains("do not empty 'east'"), "{why}");
            assert!(!why.contains("begins with empty folders"), "{why}");
        }
        // Two promoted groups, each with messages of its own.
        let mut groups = both(9_000, &[1, 3], &[1, 2]);
        groups[1].agreement.is_live = Some(true);
        let why = refused(&groups).0;
        assert!(why.contains("'towline region rejoin'") && !why.contains("empty"), "{why}");
    }

    /// A switch was cut short when the other group had the last batch and had not applied it, and
    /// the old group was promoted again.
    #[test]
    fn a_live_group_ships_behind_the_record_of_a_fork_that_the_other_one_has_not_applied() {
        let [mut live, mut other] = both(5_100, &[1, 2], &[1]);
        live.histories = chain_of(&[(1, "WEST"), (2, "EAST"), (3, "WEST")]);
        live.position.last.end = Lsn(20_000);
        assert!(meet(&live, &other, &|| true).is_ok(), "it is seen in the log");
        let refusal = meet(&live, &other, &|| false).unwrap_err();
        assert!(refusal.why.contains("has a tail behind") && refusal.is_partition);
        other.agreement.is_live = Some(true);
        assert!(meet(&live, &other, &|| true).is_err(), "it serves: that is not looked at");
    }

    #[test]
    fn an_old_live_group_knows_the_fork_and_the_history_that_it_lacks() {
        for (own, other, found) in [
            (&[1][..], &[1, 2][..], Some((5_000, 2, true))),
            (&[1, 3], &[1, 2], Some((5_000, 2, false))),
            (&[1], &[1, 2, 3], Some((5_000, 2, true))),
            (&[1, 2], &[1], None),
            (&[1], &[1], None),
            (&[1], &[2], None),
        ] {
            let [mut own, mut other] = both(9_000, own, other);
            let known = fork_of(&own, &other);
            let known = known.map(|known| (known.fork, known.history[0], known.is_old));
            assert_eq!(known, found);
            own.log_id = LogId(1);
            other.agreement.is_live = Some(true);
            assert_eq!(fork_of(&own, &other), None, "another log");
        }
    }

    #[test]
    fn a_log_of_another_id_is_another_log_unless_it_is_empty() {
        for (end, is_refused) in [(8_000, true), (0, false)] {
            let mut groups = both(end, &[1], if end > 0 { &[1] } else { &[] });
            groups[1].log_id = LogId(8);
            let met = meet(&groups[0], &groups[1], &|| false);
            assert_eq!(met.is_err_and(|refusal| refusal.is_partition), is_refused);
        }
    }

    #[test]
    fn a_group_that_handed_over_ships_until_the_other_one_is_live() {
        let [mut live, mut other] = both(8_000, &[1, 2], &[1]);
        let [west, east] = [&live, &other].map(|said| said.agreement.group.clone());
        live.agreement.is_live = Some(false);
        assert!(refused(&[live.clone(), other.clone()]).0.contains("is not live"));
        live.histories = chain_of(&[(1, &west), (2, &east)]);
        other.histories = chain_of(&[(1, &west)]);
        other.position.last.end = Lsn(5_000);
        assert!(meet(&live, &other, &|| false).is_ok(), "it lacks the last batch");
        assert!(meet(&other, &live, &|| false).is_err(), "not the other way round");
        other.position.last.end = Lsn(5_100);
        assert!(
            meet(&live, &other, &|| false).is_ok(),
            "it has that batch, and has not applied it"
        );
        other.histories = chain_of(&[(1, &west), (2, &east), (3, &west)]);
        let (why, is_partition) = refused(&[live.clone(), other.clone()]);
        assert!(why.contains("an old live group") && !is_partition, "{why}");
        other.histories = chain_of(&[(1, &west)]);
        other.agreement.is_live = Some(true);
        let (why, is_partition) = refused(&[live, other]);
        assert!(why.contains("has taken over") && !is_partition, "{why}");
    }

    /// West handed over, and east was promoted before it had the last batch.
    fn void() -> [RegionSaid; 2] {
        let [mut west, mut east] = both(8_000, &[1, 2], &[1]);
        let names = [&west, &east].map(|said| said.agreement.group.clone());
        let [of_west, of_east] = names.each_ref().map(String::as_str);
        west.histories = chain_of(&[(1, of_west), (2, of_east)]);
        east.histories = chain_of(&[(1, of_west), (3, of_east)]);
        (west.agreement.is_live, east.agreement.is_live) = (Some(false), Some(true));
        [west, east]
    }

    #[test]
    fn a_group_that_was_promoted_without_the_last_batch_of_a_switch_has_not_taken_over() {
        let [west, east] = void();
        for both in [[west.clone(), east.clone()], [east, west]] {
            let (why, is_partition) = refused(&both);
            assert!(why.contains("the logs part at <0:0:0:5000>") && is_partition, "{why}");
        }
    }

    #[test]
    fn a_switch_to_a_group_that_is_live_without_it_is_void() {
        let [west, east] = void();
        let of = |own: &RegionSaid, other: &RegionSaid| {
            let known = fork_of(own, other).unwrap();
            (known.fork, known.history[0], known.is_old, known.void[0])
        };
        assert_eq!(of(&west, &east), (5_000, 3, false, 2));
        assert_eq!(of(&east, &west), (5_000, 2, false, 0), "it is the live one");
        for is_live in [Some(false), None] {
            let mut other = east.clone();
            other.agreement.is_live = is_live;
            assert_eq!(of(&west, &other).3, 0, "it is not live");
            let mut own = west.clone();
            own.agreement.is_live = is_live.is_some().then_some(true);
            assert_eq!(of(&own, &east).3, 0, "this one is not in recovery");
        }
        let names = [&west, &east].map(|said| said.agreement.group.clone());
        let [of_west, of_east] = names.each_ref().map(String::as_str);
        for lives in [
            [(1, of_west), (2, of_west)].as_slice(),
            &[(1, of_east), (2, of_east)],
            &[(1, of_west), (2, of_east), (4, of_west), (5, of_east)],
        ] {
            let own = RegionSaid { histories: chain_of(lives), ..west.clone() };
            assert_eq!(of(&own, &east).3, 0, "{lives:?}: more than one switch is void");
        }
        let mut later = east.clone();
        later.histories = chain_of(&[(1, of_west), (2, of_east), (3, of_east)]);
        assert_eq!(fork_of(&west, &later).map(|known| known.void), Some([0; 16]), "it came");
    }

    #[test]
    fn two_live_groups_and_one_that_is_not_live_and_an_older_program_are_refused() {
        let mut groups = both(0, &[1], &[]);
        groups[1].agreement.is_live = Some(true);
        let (why, is_partition) = refused(&groups);
        assert!(why.contains("are both live") && is_partition, "{why}");
        let [one, other] = groups.clone();
        assert_eq!(refused(&[other, one]).0, why, "each dials the other one");
        let mut groups = both(0, &[1], &[]);
        groups[0].agreement.is_live = None;
        assert!(refused(&groups).0.contains("is not live"));
        let mut groups = both(0, &[1], &[]);
        groups[1].agreement.is_live = None;
        let (why, is_partition) = refused(&groups);
        assert!(why.contains("is being promoted") && is_partition, "{why}");
        let mut groups = both(0, &[], &[]);
        groups[0].agreement.levels.in_force = 2;
        groups[1].agreement.levels = FormatLevels { in_force: 2, read: 2 };
        assert!(refused(&groups).0.contains("upgrade the recovery group first"));
    }
}
