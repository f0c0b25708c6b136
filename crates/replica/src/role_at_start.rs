//! Which part an instance has in its group when it starts: kept with its hard state, else what the
//! log says, else, for an empty log, what is configured.
//!
//! Not here: the rule itself (`towline_group::Mode::at_start`); how a role changes. Invariant: a
//! group with a history in its log is live or in recovery by that, whatever is configured.

use std::path::Path;

use towline_config::{FirstRole, GroupConfig};
use towline_engine::StartError;
use towline_group::{HardState, LogSays, Mode, RecoveredLog};
use towline_log::offline::{self, Filter, Item};
use towline_log::record::Records;
use towline_log::{Log, LogError};
use towline_types::{BatchPlace, Histories, History, Lsn};

/// What of a log says which role its group has.
pub(crate) struct LogAtStart<'a> {
    /// All that is known of it, applied or not.
    pub(crate) held: &'a RecoveredLog,
    /// The histories of what is applied.
    pub(crate) histories: &'a Histories,
    /// The newest one behind that, if it was looked for. It need not be committed.
    pub(crate) tail: Option<&'a History>,
}

impl LogAtStart<'_> {
    fn says(&self, group: &str) -> LogSays {
        match self.tail.or_else(|| self.histories.newest()) {
            Some(newest) if newest.live == group => LogSays::OwnLive,
            Some(_) => LogSays::OtherLive,
            None if self.held.last().index == 0 => LogSays::Empty,
            None => LogSays::Nothing,
        }
    }

    /// The term of the last batch of the time when this group was live; 0: it never was, or that is
    /// before what is known of the log.
    fn left_term(&self, group: &str) -> u64 {
        let after_own = self.histories.iter().rev().take_while(|history| history.live != group);
        let next = after_own.last();
        // The first history of a log has all of it from the beginning.
        let Some(end) = next.filter(|next| next.parent.is_some()).map(|next| next.fork) else {
            return 0;
        };
        let RecoveredLog { base, places, .. } = self.held;
        let last = std::iter::once(base).chain(places).rfind(|place| place.end <= end);
        last.map_or(0, |place| place.term)
    }
}

/// The hard state with which this instance starts, in its mode.
///
/// # Errors
/// [`StartError::UnknownRole`].
pub(crate) fn in_its_mode(
    kept: HardState,
    log: &LogAtStart<'_>,
    group: &GroupConfig,
) -> Result<HardState, StartError> {
    let has_begun =
        |begun: &History| kept.mode == Mode::Promoting && begun.id.0 == kept.promoted_to;
    if log.histories.newest().is_some_and(has_begun) {
        // The process ended between the record of its promotion and the mark.
        return Ok(HardState { mode: Mode::Voting, promoted_to: [0; 16], ..kept });
    }
    let begins_as = match group.role {
        FirstRole::Live => Mode::Voting,
        FirstRole::Recovery => Mode::Recovery,
    };
    match Mode::at_start(kept.mode, log.says(&group.name), begins_as) {
        Ok(mode) if mode == kept.mode => Ok(kept),
        Ok(Mode::Recovery) => Ok(kept.behind_other(log.left_term(&group.name))),
        Ok(Mode::Voting | Mode::Promoting) => unreachable!("a mark is kept, or there is none"),
        Err(_) => Err(StartError::UnknownRole { group: group.name.clone() }),
    }
}

/// Whether the tail of the log is to be looked through for a history: it costs reading, and no
/// group without a second region has any. In a group of one all of it is committed.
pub(crate) fn looks_at_tail(log: &LogAtStart<'_>, kept: Mode, group: &GroupConfig) -> bool {
    let may_have_any =
        group.recovery.is_some() || group.role == FirstRole::Recovery || !log.histories.is_empty();
    let is_needed = group.member.len() == 1 || log.histories.is_empty();
    kept == Mode::Voting && may_have_any && is_needed
}

/// With which of these batches a history that is not the first of its log begins; `None`: with none
/// of them. Between its fork and its record a log has no other record.
pub(crate) fn begun_at(
    log: &Log,
    history: &History,
    places: &[BatchPlace],
) -> Result<Option<BatchPlace>, LogError> {
    /// Read at once: the first batches of leaders, which are empty, and the record.
    const BATCHES_MAX: usize = 16;
    const BYTES_MAX: usize = 1024 * 1024;
    let behind = places.partition_point(|place| place.lsn < history.fork);
    let mut rest = places.get(behind..).unwrap_or_default();
    while let Some(next) = rest.get(..rest.len().min(BATCHES_MAX)).filter(|it| !it.is_empty()) {
        let batches = log.read_batches(next, BYTES_MAX)?;
        assert!(!batches.is_empty(), "one batch at least is read");
        for batch in &batches {
            let mut records = Records::new(&batch.payload).map_while(Result::ok);
            let is_it = records.any(|found| {
                towline_node::history_begun(found.bytes).is_some_and(|begun| begun.id == history.id)
            });
            if is_it {
                return Ok(Some(batch.place()));
            }
            if !batch.payload.is_empty() {
                return Ok(None);
            }
        }
        rest = rest.get(batches.len()..).unwrap_or_default();
    }
    Ok(None)
}

/// The newest history that begins in the log in `folder` behind `from`.
pub(crate) fn newest_begun(folder: &Path, from: Lsn) -> Result<Option<History>, LogError> {
    let mut newest = None;
    let show = &mut |item: Item<'_>| {
        if let Item::Record { lsn, bytes, .. } = item
            && lsn >= from
        {
            newest = towline_node::history_begun(bytes).or(newest.take());
        }
    };
    // What is damaged was found out by the start.
    offline::dump(folder, Filter { from, ..Filter::default() }, show)?;
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use towline_config::Config;
    use towline_types::{BatchPlace, HistoryId, Time};

    use super::*;

    fn group(role: &str) -> GroupConfig {
        let text = format!(
            "[group]\nname = 'EAST'\ninstance = 'a'\ncertificate = ''\nprivate_key = ''\n\
             authorities = ''\nrole = '{role}'\n[group.recovery]\nname = 'WEST'\n\
             addresses = ['w:1']\n[[group.member]]\nname = 'a'\naddress = 'a:1'\n\
             region_address = 'a:2'\n"
        );
        Config::parse(&text).unwrap().group.unwrap()
    }

    fn place(index: u64, term: u64) -> BatchPlace {
        BatchPlace { index, term, lsn: Lsn(index * 4_096), end: Lsn(index * 4_096 + 100) }
    }

    /// Nine batches: of term 1, from the fourth on of 2, from the seventh on of 3.
    fn held() -> RecoveredLog {
        let places = (1..=9).map(|index| place(index, 1 + (index - 1) / 3)).collect();
        RecoveredLog { places, ..RecoveredLog::default() }
    }

    /// A chain of histories: which group is live, and the batch behind which it is.
    fn chain(lives: &[(&str, u64)]) -> Histories {
        let mut histories = Histories::default();
        for (ordinal, (live, behind)) in (1..).zip(lives) {
            let parent = histories.newest().map(|newest| newest.id);
            let fork = if *behind == 0 { Lsn::ZERO } else { place(*behind, 1).end };
            let (live, cause) = ((*live).to_owned(), String::new());
            let id = HistoryId([ordinal; 16]);
            histories.push(History { id, parent, fork, live, began: Time(1), cause }).unwrap();
        }
        histories
    }

    fn mode_of(
        kept: HardState,
        held: &RecoveredLog,
        histories: &Histories,
        role: &str,
    ) -> Result<(Mode, u64), String> {
        let log = LogAtStart { held, histories, tail: None };
        let found = in_its_mode(kept, &log, &group(role)).map_err(|error| error.to_string())?;
        Ok((found.mode, found.left_term))
    }

    #[test]
    fn the_newest_history_of_the_log_says_the_mode_and_the_configuration_that_of_an_empty_log() {
        let (kept, held, empty) = (HardState::default(), held(), RecoveredLog::default());
        let of = |lives: &[(&str, u64)]| mode_of(kept, &held, &chain(lives), "live");
        assert_eq!(of(&[]), Ok((Mode::Voting, 0)));
        assert_eq!(of(&[("EAST", 0)]), Ok((Mode::Voting, 0)));
        assert_eq!(of(&[("EAST", 0), ("WEST", 6)]), Ok((Mode::Recovery, 2)), "it left in term 2");
        assert_eq!(of(&[("WEST", 0)]), Ok((Mode::Recovery, 0)), "it never was live");
        let again = [("EAST", 0), ("WEST", 3), ("WEST", 6)];
        assert_eq!(of(&again), Ok((Mode::Recovery, 1)), "the other group was promoted twice");
        assert_eq!(of(&[("WEST", 0), ("EAST", 6)]), Ok((Mode::Voting, 0)));
        let west = chain(&[("WEST", 0), ("EAST", 6)]);
        assert_eq!(mode_of(kept, &held, &west, "recovery"), Ok((Mode::Voting, 0)));
        let none = Histories::default();
        assert_eq!(mode_of(kept, &empty, &none, "recovery"), Ok((Mode::Recovery, 0)));
        assert_eq!(mode_of(kept, &empty, &none, "live"), Ok((Mode::Voting, 0)));
        let why = mode_of(kept, &held, &none, "recovery").unwrap_err();
        for part in ["group.role is 'recovery'", "group 'EAST'", "empty folder", "role = \"live\""]
        {
            assert!(why.contains(part), "no '{part}' in: {why}");
        }
    }

    #[test]
    fn a_mark_counts_before_the_log() {
        let (held, histories) = (held(), chain(&[("WEST", 0), ("EAST", 6)]));
        for mode in [Mode::Recovery, Mode::Promoting] {
            let kept = HardState { mode, left_term: 5, ..HardState::default() };
            assert_eq!(mode_of(kept, &held, &histories, "live"), Ok((mode, 5)));
        }
    }

    #[test]
    fn a_mark_for_the_newest_history_of_the_log_is_over() {
        let (held, histories) = (held(), chain(&[("WEST", 0), ("EAST", 6)]));
        let marked = |history| {
            let kept = HardState {
                mode: Mode::Promoting,
                promoted_to: [history; 16],
                term: 9,
                ..HardState::default()
            };
            let log = LogAtStart { held: &held, histories: &histories, tail: None };
            in_its_mode(kept, &log, &group("recovery")).unwrap()
        };
        let begun = marked(2);
        assert_eq!((begun.mode, begun.promoted_to, begun.term), (Mode::Voting, [0; 16], 9));
        assert_eq!(marked(7).mode, Mode::Promoting, "it has not begun");
    }

    #[test]
    fn a_history_that_is_not_applied_counts_where_it_was_looked_for() {
        let (held, histories) = (held(), chain(&[("EAST", 0), ("WEST", 3)]));
        let promoted = chain(&[("EAST", 0), ("WEST", 3), ("EAST", 6)]);
        let log = LogAtStart { held: &held, histories: &histories, tail: promoted.newest() };
        assert!(looks_at_tail(&log, Mode::Voting, &group("live")), "it is alone");
        let found = in_its_mode(HardState::default(), &log, &group("live")).unwrap();
        assert_eq!(found.mode, Mode::Voting);
        let none = Histories::default();
        let log = LogAtStart { held: &held, histories: &none, tail: None };
        assert!(!looks_at_tail(&log, Mode::Recovery, &group("live")));
        let no_region = GroupConfig { recovery: None, ..group("live") };
        assert!(!looks_at_tail(&log, Mode::Voting, &no_region), "no log is read for nothing");
    }
}
