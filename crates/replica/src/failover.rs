//! A fail-over: this recovery group is promoted, because the live one is lost. It can be ordered at
//! any of its instances.
//!
//! The instance that is asked looks first where each member stands: what the group would lose, and
//! what stands in the way. Then each member marks itself; when a majority has, the one with most of
//! the log asks for votes, begins the history, and serves.
//!
//! Not here: marks and elections (`towline_replication`, `towline_group`), the record of the
//! history (`promotion`). Invariants: before the first mark nothing is changed, and a refusal has a
//! reason; after it there is no way back: a promotion of marked members goes on by itself,
//! and is gone on with under the same name when it is ordered again.

use std::time::Duration;

use towline_config::GroupConfig;
use towline_group::may_begin_behind;
use towline_link::{Peer, Where};
use towline_os::time::Instant;
use towline_replication::driver::{Driver, HeardLive, LiveSync, MemberStand, PromotionOrder};
use towline_types::{ChangeCause, ChangeKind, HistoryId, Lsn};

use crate::open::OpenReplica;

/// What is not answered is asked again after this.
const AGAIN: Duration = Duration::from_millis(200);
/// Members have so long to say where they stand.
const ANSWERS_MAX: Duration = Duration::from_secs(2);

/// What is to be expected of a fail-over, ordered now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailoverOutlook {
    /// Why it would be refused.
    pub obstacles: Vec<String>,
    /// What the operator should know besides.
    pub notes: Vec<String>,
    /// Names of the members that answered.
    pub reached: Vec<String>,
    /// End of what this group keeps, as far as it is known.
    pub kept: Lsn,
    /// End of what the live group said to have committed; zero: it said nothing to those that
    /// answered, since they started, and none of their group reported anything of it to them.
    pub live: Lsn,
    /// How old that is, milliseconds: at least.
    pub heard_ms: u64,
    /// At most: what live had committed that long ago is before `live`. `None`: that is not known.
    pub heard_most_ms: Option<u64>,
    /// The live group said that it is fenced, and that this is the end of its log.
    pub live_is_still: bool,
    /// For how long it has said so, milliseconds.
    pub still_ms: u64,
    /// Whether this group has all that live answered, as live said last; and how old that is at
    /// most, milliseconds; `None`: that is not known.
    pub sync: (LiveSync, Option<u64>),
    /// The promotion that is under way already.
    pub under_way: Option<HistoryId>,
}

impl FailoverOutlook {
    /// For how long the live group may have served no client, milliseconds: since it said last how
    /// it is, or since it said that it is fenced. `None`: that is not known.
    #[must_use]
    pub fn away_ms(&self) -> Option<u64> {
        let since = if self.live_is_still { Some(self.still_ms) } else { self.heard_most_ms };
        since.filter(|_| self.live > Lsn::ZERO)
    }

    /// Bytes of log that live said to have committed, and that this group does not have. More may
    /// have been committed since.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.live.0.saturating_sub(self.kept.0)
    }
}

/// How a promotion went that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverCourse {
    /// The history that begins.
    pub history: HistoryId,
    /// The instance that serves; empty: none yet.
    pub active: String,
    /// Each step, and when it was done: milliseconds since the order.
    pub steps: Vec<(&'static str, u64)>,
    /// As it was when it was ordered.
    pub outlook: FailoverOutlook,
}

/// What becomes of a fail-over.
#[derive(Debug)]
pub enum FailoverEnd {
    /// Nothing was begun: why.
    Refused(String),
    /// Members are marked, and none serves yet: why. It goes on by itself.
    InDoubt(FailoverCourse, String),
    /// An instance serves.
    Done(FailoverCourse),
}

/// Looks where each member stands.
#[must_use]
pub fn outlook(opened: &OpenReplica, group: &GroupConfig, force: bool) -> FailoverOutlook {
    let driver = &opened.driver;
    driver.ask_for_stands();
    let all = driver.names().len();
    driver.wait_until(ANSWERS_MAX, || driver.stands().iter().flatten().count() == all);
    let stands = driver.stands();
    let has_histories =
        opened.replica.look_if_there(|instance| !instance.histories().is_empty()).unwrap_or(false);
    let mut found = of_stands(driver, &stands, has_histories, group);
    if let Some(peer) = with_later(&stands, |history| driver.knows_history(history)) {
        found.obstacles.push(format!(
            "instance '{}' knows of a later change of roles, which this one has not applied: order \
             it there",
            driver.name(peer)
        ));
    }
    let named = driver.names().iter().zip(&stands);
    let mut relays = named.filter(|(_, stand)| stand.as_ref().is_some_and(|it| it.hears_live));
    // Nothing more comes of a group that stands still.
    let is_still = found.live_is_still && found.lost_bytes() == 0;
    if let (Some((relay, _)), false) = (relays.next(), is_still) {
        let why = format!(
            "the live group is connected with instance '{relay}' now: 'towline region switch' at its \
             active instance loses nothing"
        );
        match force {
            true => found.notes.push(why),
            false => {
                found.obstacles.push(format!("{why}; --force promotes this group all the same"))
            }
        }
    }
    found
}

fn of_stands(
    driver: &Driver,
    stands: &[Option<MemberStand>],
    has_histories: bool,
    group: &GroupConfig,
) -> FailoverOutlook {
    let named = || driver.names().iter().zip(stands);
    let known = || named().filter_map(|(name, stand)| Some((name, stand.as_ref()?)));
    let mut found = FailoverOutlook {
        reached: known().map(|(name, _)| name.clone()).collect(),
        ..FailoverOutlook::default()
    };
    let majority = stands.len() / 2 + 1;
    let own = stands.get(driver.this()).and_then(Option::as_ref);
    if own.is_some_and(|own| own.mode == "voting") {
        let active = driver.active_peer().map(|peer| driver.name(peer));
        let active = active.map_or(String::new(), |active| format!("; '{active}' is active"));
        found
            .obstacles
            .push(format!("group '{}' is live: it is no recovery group{active}", group.name));
    }
    if let Some((name, _)) = known().find(|(_, stand)| stand.serves) {
        found.obstacles.push(format!("instance '{name}' serves clients"));
    }
    if found.reached.len() < majority {
        let silent: Vec<&str> =
            named().filter(|(_, stand)| stand.is_none()).map(|(name, _)| name.as_str()).collect();
        found.obstacles.push(format!(
            "only {} of {} instances answer ({} not): a promotion needs {majority}",
            found.reached.len(),
            stands.len(),
            silent.join(", ")
        ));
    }
    let voting = known().filter(|(_, stand)| stand.may_vote).count();
    if found.reached.len() >= majority && voting < majority {
        found.obstacles.push(format!(
            "only {voting} of {} instances have a vote: the others lost log that they had",
            stands.len()
        ));
    }
    let with_log = known().filter(|(_, stand)| stand.newest != [0; 16]).count();
    if has_histories && found.reached.len() >= majority && with_log < majority {
        // Others are a majority without it: one of them would be elected, and serve nothing.
        found.obstacles.push(format!(
            "only {with_log} of {} instances have received the log of the live group up to its \
             first history",
            stands.len()
        ));
    }
    if !has_histories {
        let why = "this group has not received the log of the live group up to its first history";
        found.obstacles.push(why.to_owned());
    }
    let serves = known().any(|(_, stand)| stand.serves);
    // One that serves already is not gone on with, also if it is not done everywhere.
    found.under_way = known()
        .filter(|_| !serves)
        .find(|(_, stand)| stand.mode == "promoting")
        .map(|(_, stand)| HistoryId(stand.marked_for));
    found.kept = Lsn(known().map(|(_, stand)| stand.last_end).max().unwrap_or(0));
    found.hears(stands);
    found.notes.extend(note_of_relay(&found.reached, stands));
    found.notes.extend(sync_note(found.sync));
    found.notes.push(note_of_loss(&found));
    found
}

/// Roles have changed since what this instance has applied: one that has the later history never
/// takes the order of one that does not, which would be marked alone and take nothing of the live
/// group from then on.
fn with_later(stands: &[Option<MemberStand>], knows: impl Fn(HistoryId) -> bool) -> Option<Peer> {
    // Not of the promotion that is under way, which is gone on with.
    let is_marked = |newest| stands.iter().flatten().any(|stand| stand.marked_for == newest);
    stands.iter().position(|stand| {
        let newest = stand.as_ref().map(|stand| stand.newest).unwrap_or_default();
        newest != [0; 16] && !knows(HistoryId(newest)) && !is_marked(newest)
    })
}

impl FailoverOutlook {
    /// What the members that answered know of the live group.
    fn hears(&mut self, stands: &[Option<MemberStand>]) {
        let known = || stands.iter().flatten();
        // Of a relay that answers no more, what it reported to the others before counts.
        let told = known().filter_map(|stand| stand.told.as_ref()).map(|told| told.live);
        let heard: Vec<HeardLive> = known().map(|stand| stand.live).chain(told).collect();
        let ends = heard.iter().filter(|live| live.committed > 0);
        if let Some(newest) = ends.max_by_key(|live| (live.committed, u64::MAX - live.age_ms)) {
            (self.live, self.heard_ms) = (Lsn(newest.committed), newest.age_ms);
            self.heard_most_ms = newest.age_most_ms;
            (self.live_is_still, self.still_ms) = (newest.is_still, newest.still_ms);
        }
        let said = heard.iter().filter(|live| live.sync_age_ms.is_some());
        // The newest word counts, also if it says less.
        let newest = said.min_by_key(|live| live.sync_age_ms).copied().unwrap_or_default();
        self.sync = (newest.sync, newest.sync_age_most_ms);
    }
}

/// The instance to which the live group shipped, if it does not answer: it may have heard more than
/// it reported to those that do.
fn note_of_relay(reached: &[String], stands: &[Option<MemberStand>]) -> Option<String> {
    let told = stands.iter().flatten().filter_map(|stand| stand.told.as_ref());
    let newest = told.min_by_key(|told| told.live.age_ms)?;
    let own = stands.iter().flatten().map(|stand| stand.live).filter(|live| live.committed > 0);
    if own.map(|live| live.age_ms).min().is_some_and(|age_ms| age_ms <= newest.live.age_ms) {
        // It was one before, and another one is it since then.
        return None;
    }
    (!reached.contains(&newest.by)).then(|| {
        format!(
            "instance '{}', to which the live group shipped, does not answer: of the live group is \
             known what it reported to the others of this group",
            newest.by
        )
    })
}

fn note_of_loss(found: &FailoverOutlook) -> String {
    let heard = found.heard_ms / 1_000;
    match (found.live_is_still, found.lost_bytes()) {
        (true, 0) => format!(
            "the live group said {heard} s ago that it is fenced, and this group has all of its log: \
             nothing is lost, unless it was unfenced since"
        ),
        (true, lost) => format!(
            "the live group said {heard} s ago that it is fenced, and this group lacks {lost} bytes \
             of its log: wait for them if the link stands"
        ),
        (false, _) => {
            "messages that were removed at the live group in the part that is lost come back".into()
        }
    }
}

/// What replies that wait for this group promise (SyncReplication).
fn sync_note((sync, age_most_ms): (LiveSync, Option<u64>)) -> Option<String> {
    let ago = match age_most_ms {
        // Never less than it is: what was ordered meanwhile is not in it.
        Some(ms) => format!("at most {} s ago", ms.div_ceil(1_000)),
        None => "at a time that is not known here".to_owned(),
    };
    match sync {
        LiveSync::Not => None,
        LiveSync::Strict => Some(format!(
            "sync_replication, strict: live said {ago} that this group has all that it \
             acknowledged, and it acknowledges nothing without this group. Nothing acknowledged is \
             lost, unless it was configured otherwise, or ordered to go on alone, since then"
        )),
        LiveSync::Eventual => Some(format!(
            "sync_replication, eventual: live said {ago} that this group has all that it \
             acknowledged. It goes on alone once this group has been away for sync_wait_ms: what it \
             acknowledged from then on is lost"
        )),
    }
}

/// Promotes this group. `by`: the user that ordered it. Returns when an instance serves, or after
/// `most`.
pub fn fail_over(
    opened: &OpenReplica,
    group: &GroupConfig,
    by: &str,
    (most, force): (Duration, bool),
) -> FailoverEnd {
    let began = Instant::now();
    let left = || most.saturating_sub(began.elapsed());
    let driver = &opened.driver;
    let found = outlook(opened, group, force);
    if !found.obstacles.is_empty() {
        return FailoverEnd::Refused(found.obstacles.join("; "));
    }
    if left().is_zero() {
        let why = "the time-out was over when the members had said where they stand: nothing was \
                   changed; give more time";
        return FailoverEnd::Refused(why.to_owned());
    }
    let stands = driver.stands();
    let (by, instance) = (by.to_owned(), group.instance.clone());
    let cause = ChangeCause { kind: ChangeKind::Failover, by, instance }.to_string();
    let history = found.under_way.unwrap_or_else(|| drawn(&stands));
    let order = PromotionOrder { history, cause };
    if !driver.mark(order.clone(), driver.is_alone()) && found.under_way.is_none() {
        let why = "this instance does not take part in a promotion any more";
        return FailoverEnd::Refused(why.to_owned());
    }
    let ms = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let steps = vec![("asked", ms())];
    let mut course = FailoverCourse { history, active: String::new(), steps, outlook: found };
    match promoted(driver, &order, left, |step| course.steps.push((step, ms()))) {
        Ok(active) => {
            driver.name(active).clone_into(&mut course.active);
            FailoverEnd::Done(course)
        }
        Err(why) => FailoverEnd::InDoubt(course, in_doubt(driver, &order, why)),
    }
}

/// Waits until a majority is marked and one of them serves: that one. `step`: it has come so far.
///
/// # Errors
/// What did not come about in time.
fn promoted(
    driver: &Driver,
    order: &PromotionOrder,
    left: impl Fn() -> Duration,
    mut step: impl FnMut(&'static str),
) -> Result<Peer, &'static str> {
    if !until_marked(driver, order, &left) {
        return Err("too few members are marked");
    }
    step("marked");
    if !driver.is_alone() {
        let candidate = with_most(driver, order);
        match candidate == driver.this() {
            true => drop(driver.mark(order.clone(), true)),
            false => driver.say_promotion(candidate, order, true),
        }
    }
    if !driver.wait_until(left(), || driver.active_peer().is_some()) {
        return Err("none was elected");
    }
    step("elected");
    let active = until_served(driver, &left);
    let active = active.ok_or("the one that was elected does not serve yet")?;
    step("serving");
    Ok(active)
}

/// A name for a history that begins behind all terms that the members know.
fn drawn(stands: &[Option<MemberStand>]) -> HistoryId {
    loop {
        let id: [u8; 16] = towline_process::random::bytes();
        if stands.iter().flatten().all(|stand| may_begin_behind(stand.term, &id)) {
            return HistoryId(id);
        }
    }
}

fn marked(driver: &Driver, order: &PromotionOrder) -> Vec<(Peer, MemberStand)> {
    let stands = driver.stands().into_iter().enumerate();
    let known = stands.filter_map(|(peer, stand)| Some((peer, stand?)));
    known.filter(|(_, stand)| stand.has_heard(order.history)).collect()
}

fn until_marked(driver: &Driver, order: &PromotionOrder, left: impl Fn() -> Duration) -> bool {
    let (all, this) = (driver.names().len(), driver.this());
    loop {
        let done = marked(driver, order);
        let is_owed = |peer: &Peer| *peer != this && done.iter().all(|(known, _)| known != peer);
        (0..all).filter(is_owed).for_each(|peer| driver.say_promotion(peer, order, false));
        let most = left().min(AGAIN);
        if driver.wait_until(most, || marked(driver, order).len() > all / 2) {
            return true;
        }
        if left().is_zero() || driver.is_ending() {
            return false;
        }
    }
}

/// The member with most of the log, as an election sees it; this one, if others have no more.
fn with_most(driver: &Driver, order: &PromotionOrder) -> Peer {
    let this = driver.this();
    let all = marked(driver, order).into_iter().filter(|(_, stand)| stand.may_vote);
    all.max_by_key(|(peer, stand)| (stand.last, *peer == this)).map_or(this, |(peer, _)| peer)
}

fn until_served(driver: &Driver, left: impl Fn() -> Duration) -> Option<Peer> {
    let this = driver.this();
    let here = || *driver.whereabouts().borrow() == Where::Here;
    loop {
        driver.ask_for_stands();
        let served = || {
            let stands = driver.stands();
            let served = stands.iter().position(|stand| stand.as_ref().is_some_and(|it| it.serves));
            if here() { Some(this) } else { served.filter(|peer| *peer != this) }
        };
        let mut active = None;
        driver.wait_until(left().min(AGAIN / 4), || {
            active = served();
            active.is_some()
        });
        if active.is_some() || left().is_zero() || driver.is_ending() {
            return active;
        }
    }
}

fn in_doubt(driver: &Driver, order: &PromotionOrder, why: &str) -> String {
    let names: Vec<&str> =
        marked(driver, order).iter().map(|(peer, _)| driver.name(*peer)).collect();
    format!(
        "{why} in time. Marked for history {}: {}. The promotion goes on as soon as a majority of the \
         group is connected, and cannot be taken back; order it again to wait for it",
        order.history,
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    )
}

#[cfg(test)]
mod tests {
    use towline_replication::driver::ToldLive;

    use super::*;

    /// It was marked alone, for a history that began behind one that was over, and took nothing of
    /// the live group from then on.
    #[test]
    fn one_that_has_not_applied_a_later_history_is_not_the_one_to_promote_the_group() {
        let stand = |newest, marked_for| {
            let [newest, marked_for] = [newest, marked_for].map(|id| [id; 16]);
            Some(MemberStand { newest, marked_for, ..MemberStand::default() })
        };
        let knows = |history: HistoryId| history.0 == [1; 16];
        assert_eq!(with_later(&[stand(1, 0), None, stand(0, 0)], knows), None);
        assert_eq!(with_later(&[stand(1, 0), None, stand(2, 0)], knows), Some(2));
        let begun = [stand(1, 2), None, stand(2, 0)];
        assert_eq!(with_later(&begun, knows), None, "it is marked for that one");
    }

    #[test]
    fn what_a_lost_relay_reported_to_the_others_is_known_of_the_live_group() {
        let live = HeardLive {
            committed: 900,
            age_ms: 1_259,
            age_most_ms: Some(1_300),
            sync: LiveSync::Strict,
            sync_age_ms: Some(1_300),
            sync_age_most_ms: Some(1_350),
            ..HeardLive::default()
        };
        let told = |by: &str| Some(ToldLive { by: by.into(), live });
        let stand = |told, live| Some(MemberStand { told, live, ..MemberStand::default() });
        let stands =
            [None, stand(told("a"), HeardLive::default()), stand(None, HeardLive::default())];
        let mut found = FailoverOutlook { kept: Lsn(850), ..Default::default() };
        found.hears(&stands);
        assert_eq!((found.live, found.heard_ms, found.lost_bytes()), (Lsn(900), 1_259, 50));
        assert_eq!(found.heard_most_ms, Some(1_300));
        assert_eq!(found.sync, (LiveSync::Strict, Some(1_350)));
        let reached = ["b".to_owned(), "c".to_owned()];
        assert!(note_of_relay(&reached, &stands).unwrap().starts_with("instance 'a', to which"));
        let all = [reached.as_slice(), &["a".to_owned()]].concat();
        assert_eq!(note_of_relay(&all, &stands), None, "it answers");
        let newer = HeardLive { committed: 950, age_ms: 70, ..HeardLive::default() };
        let then = [None, stand(told("a"), newer), stand(None, HeardLive::default())];
        found.hears(&then);
        assert_eq!((found.live, found.heard_ms), (Lsn(950), 70), "live shipped to 'b' since then");
        assert_eq!(note_of_relay(&reached, &then), None);
    }

    #[test]
    fn clients_are_without_a_live_group_since_it_was_heard_or_since_its_fence() {
        let found = FailoverOutlook {
            live: Lsn(100),
            heard_ms: 3_300,
            heard_most_ms: Some(3_401),
            still_ms: 9_000,
            ..Default::default()
        };
        assert_eq!(found.away_ms(), Some(3_401));
        let still = FailoverOutlook { live_is_still: true, ..found.clone() };
        assert_eq!(still.away_ms(), Some(9_000), "it is heard all the time");
        let unbounded = FailoverOutlook { heard_most_ms: None, ..found.clone() };
        assert_eq!(unbounded.away_ms(), None, "what was heard may have waited for any time");
        assert_eq!(FailoverOutlook { live: Lsn(0), ..found }.away_ms(), None);
    }

    /// It had been ordered to go on alone 6 s before, and its word was called 0 s old.
    #[test]
    fn what_live_said_of_its_replies_is_never_called_younger_than_it_is() {
        let note = |sync, age_most_ms| sync_note((sync, age_most_ms)).unwrap_or_default();
        assert!(note(LiveSync::Strict, Some(5_001)).contains("said at most 6 s ago that"));
        assert!(note(LiveSync::Eventual, Some(999)).contains("said at most 1 s ago that"));
        assert!(
            note(LiveSync::Strict, None).contains("said at a time that is not known here that")
        );
        assert_eq!(note(LiveSync::Not, Some(1)), "");
    }

    #[test]
    fn of_a_live_group_that_is_fenced_nothing_is_lost_once_all_of_its_log_is_here() {
        let note = |live_is_still, live, kept| {
            let (live, kept) = (Lsn(live), Lsn(kept));
            note_of_loss(&FailoverOutlook { live_is_still, live, kept, ..Default::default() })
        };
        assert!(note(true, 100, 100).contains("nothing is lost"));
        assert!(note(true, 100, 160).contains("nothing is lost"), "more was appended here");
        assert!(note(true, 100, 60).contains("lacks 40 bytes"));
        assert!(note(false, 100, 100).contains("come back"), "it goes on");
    }
}
