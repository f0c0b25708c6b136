//! Starts of processes: how a data folder that was put back whole, or cloned, is recognised.
//!
//! Each start of a member's process draws a random number and keeps it. A member keeps the numbers
//! of its own newest starts, and of each other member those that it has heard of. When a connection
//! is made, each side says what it has noted. When a peer noted a start that a member's own folder
//! does not know, the folder is older than it once was, or another process has the same name: what
//! that start promised is not known here. A start *declares* itself to a peer only when it knows
//! all starts that the peer noted; the peer then notes it, durably, instead of the others, before
//! it accepts any other message of it. So each promise of a member was made to a peer that had
//! noted the start.
//!
//! A start has a number too, higher than all that this folder knew of before. A folder that was
//! lost, or put back and recognised, has given up all promises of the starts that were noted of it:
//! up to the highest of their numbers it knows all starts from then on (`floor`), also those that
//! some old folder of a peer still has noted.
//!
//! ```text
//!   0   1  number of own starts        1   1  number of noted ones
//!   2   1  1: the folder was put back, and its member has not caught up since        3  5  zero
//!   8   8  floor
//!  16 1024 own starts, the newest last: number 8, nonce 8
//! 1040 96  noted starts: member 8, number 8, nonce 8
//! ```
//!
//! Not here: files, connections, what a member does that was put back. Invariants: the start that a
//! member declared stays noted until it declares another one, whatever third members say; of the
//! starts that they report, the newest is noted beside it; a member notes nothing of itself.

use crate::member_id::MemberId;

/// Own starts that are kept. A peer may have noted an older one, and was away since.
const OWN_MAX: usize = 64;
/// Of one member, so many starts are kept noted. One, but for a member that was put back or cloned.
const NOTED_MAX: usize = 2;
/// Of both others.
const ALL_NOTED_MAX: usize = 2 * NOTED_MAX;
/// More starts than a folder ever had that an operator overrules.
const OVERRULED: u64 = 1 << 32;
const FLOOR_AT: usize = 8;
const OWN_AT: usize = 16;
const NOTED_AT: usize = OWN_AT + 16 * OWN_MAX;

/// One start of a process of a member. Its nonce distinguishes it from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Higher than that of each start that its folder knew of.
    pub number: u64,
    /// Random, never 0.
    pub nonce: u64,
}

impl Start {
    /// Whether it is one at all: programs before this one say none.
    #[must_use]
    pub fn is_said(self) -> bool {
        self.nonce != 0
    }
}

/// What follows from what another member has noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartsChange {
    /// It noted a start of this member that is not known here.
    pub of_unknown_start: bool,
    /// Something was noted here that is to be kept.
    pub has_news: bool,
    /// The other members are to hear it: the one that it is about may be connected with this one
    /// only. Not so when it replaced another note: two that swap theirs would never end.
    pub is_to_be_forwarded: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    own: Vec<Start>,
    noted: Vec<(MemberId, Start)>,
    is_put_back: bool,
    /// Starts up to this number are known.
    floor: u64,
}

impl Starts {
    /// Bytes of the encoded form.
    pub const BYTES: usize = NOTED_AT + 24 * ALL_NOTED_MAX;
    /// Noted starts that are said at once, at most.
    pub const SAID_MAX: usize = ALL_NOTED_MAX;

    /// A process starts. To be durable before anything is promised.
    pub fn begin(&mut self, nonce: u64) {
        let number = self.own().number.max(self.floor).saturating_add(1);
        self.own.push(Start { number, nonce });
        let too_many = self.own.len().saturating_sub(OWN_MAX);
        self.own.drain(..too_many);
    }

    /// The start of the process that runs, or ran last; all zero before the first one.
    #[must_use]
    pub fn own(&self) -> Start {
        self.own.last().copied().unwrap_or_default()
    }

    /// What is said to other members with each connection.
    #[must_use]
    pub fn noted(&self) -> &[(MemberId, Start)] {
        &self.noted
    }

    /// What another member has noted: of `this` one, and of others.
    pub fn hear(&mut self, this: MemberId, noted: &[(MemberId, Start)]) -> StartsChange {
        let mut heard = StartsChange::default();
        for (member, start) in noted {
            if *member == this {
                heard.of_unknown_start |= !self.knows(*start);
            } else {
                let has_room = self.count_noted(*member) < NOTED_MAX;
                let is_news = self.note(*member, *start);
                heard.has_news |= is_news;
                heard.is_to_be_forwarded |= is_news && has_room;
            }
        }
        heard
    }

    /// A start with a number below those that are still kept is an old one of this folder, or of
    /// one that was put back and recognised since: numbers grow, so what a newer life of the folder
    /// began has a higher one.
    fn knows(&self, start: Start) -> bool {
        let is_forgotten = || {
            let oldest = self.own.first().filter(|_| self.own.len() == OWN_MAX);
            oldest.is_some_and(|oldest| start.number < oldest.number)
        };
        start.number <= self.floor
            || is_forgotten()
            || self.own.iter().any(|own| own.nonce == start.nonce)
    }

    /// This member gives up all that it may have promised in starts that were noted of it: they are
    /// known to the next start, which can declare itself. To be kept with that consequence.
    pub fn admit(&mut self, this: MemberId, noted: &[(MemberId, Start)]) {
        let of_it = noted.iter().filter(|(member, _)| *member == this);
        let highest = of_it.map(|(_, start)| start.number).max();
        self.floor = self.floor.max(highest.unwrap_or(0));
    }

    /// An operator said that what is here counts, whatever was promised before: all starts until
    /// now are known, also those that a peer noted that is away. To be kept with the vote.
    pub fn overrule(&mut self) {
        self.floor = self.own().number.max(self.floor).saturating_add(OVERRULED);
    }

    /// This folder was put back, or is that of a clone: for a status that says why its member gives
    /// no vote.
    pub fn put_back(&mut self) {
        self.is_put_back = true;
    }

    /// See [`Starts::put_back`].
    #[must_use]
    pub fn is_put_back(&self) -> bool {
        self.is_put_back
    }

    /// Its member votes. Whether that is news.
    pub fn votes_again(&mut self) -> bool {
        std::mem::take(&mut self.is_put_back)
    }

    /// A member knows all that was noted of it here, and declares this start. Whether that is news,
    /// to be kept before anything else of it is heard.
    pub fn declare(&mut self, member: MemberId, start: Start) -> bool {
        let mut of_it = self.noted.iter().filter(|(of, _)| *of == member);
        if of_it.next() == Some(&(member, start)) && of_it.next().is_none() {
            return false;
        }
        self.noted.retain(|(of, _)| *of != member);
        self.note(member, start)
    }

    fn note(&mut self, member: MemberId, start: Start) -> bool {
        if !start.is_said() || self.noted.contains(&(member, start)) {
            return false;
        }
        let of_it = |(of, _): &(MemberId, Start)| *of == member;
        if self.count_noted(member) >= NOTED_MAX {
            // The first may have been declared, and promises were counted since: what a third
            // member says never replaces it. It may say starts of long ago, one after the
            // other.
            let last = self.noted.iter().rposition(of_it);
            let Some(last) = last.filter(|at| self.noted[*at].1.number < start.number) else {
                return false;
            };
            self.noted.remove(last);
        }
        if self.noted.len() >= ALL_NOTED_MAX {
            // Of no member: there are two others.
            return false;
        }
        self.noted.push((member, start));
        true
    }

    fn count_noted(&self, member: MemberId) -> usize {
        self.noted.iter().filter(|(of, _)| *of == member).count()
    }

    /// As it is kept.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = |count: usize| match u8::try_from(count) {
            Ok(count) => count,
            Err(_) => unreachable!("{count} starts are more than the table holds"),
        };
        let counts = [count(self.own.len()), count(self.noted.len())];
        let mut bytes = [counts[0], counts[1], u8::from(self.is_put_back)].to_vec();
        bytes.resize(FLOOR_AT, 0);
        let own = self.own.iter().flat_map(|start| [start.number, start.nonce]);
        for number in std::iter::once(self.floor).chain(own) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(NOTED_AT, 0);
        let noted = self.noted.iter();
        for number in noted.flat_map(|(member, start)| [member.0, start.number, start.nonce]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(Starts::BYTES, 0);
        bytes
    }

    /// `None` when the bytes are none of ours. The checksum is that of what they stand in.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Starts> {
        let [own, noted] = [usize::from(*bytes.first()?), usize::from(*bytes.get(1)?)];
        if bytes.len() != Starts::BYTES || own > OWN_MAX || noted > ALL_NOTED_MAX {
            return None;
        }
        let number = |at: usize| {
            let bytes = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let start = |at: usize| Some(Start { number: number(at)?, nonce: number(at + 8)? });
        let own = (0..own).map(|place| start(OWN_AT + 16 * place));
        let noted = (0..noted).map(|place| {
            let at = NOTED_AT + 24 * place;
            Some((MemberId(number(at)?), start(at + 8)?))
        });
        let floor = number(FLOOR_AT)?;
        let own = own.collect::<Option<_>>()?;
        let noted = noted.collect::<Option<_>>()?;
        Some(Starts { own, noted, is_put_back: bytes.get(2) == Some(&1), floor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId(1);
    const B: MemberId = MemberId(2);
    const C: MemberId = MemberId(3);

    fn begun(starts: &[u64]) -> Starts {
        let mut all = Starts::default();
        starts.iter().for_each(|nonce| all.begin(*nonce));
        all
    }

    fn start(number: u64, nonce: u64) -> Start {
        Start { number, nonce }
    }

    fn nonces(starts: &Starts) -> Vec<u64> {
        starts.noted().iter().map(|(_, start)| start.nonce).collect()
    }

    /// One member makes a connection to another: it hears what that one noted, and declares itself
    /// if it knows all of that. Whether it does.
    fn meets(member: MemberId, own: &mut Starts, other: MemberId, others: &mut Starts) -> bool {
        let heard = own.hear(member, others.noted());
        others.hear(other, own.noted());
        if !heard.of_unknown_start {
            others.declare(member, own.own());
        }
        !heard.of_unknown_start
    }

    #[test]
    fn a_folder_of_an_earlier_start_is_recognised_also_after_as_many_starts_as_were_forgotten() {
        let mut b = begun(&[11, 12]);
        let mut a = begun(&[1]);
        assert!(meets(B, &mut b, A, &mut a));
        let older = b.clone();
        b.begin(13);
        assert!(meets(B, &mut b, A, &mut a));
        // Put back, and started twice: as many starts as the folder that was lost.
        let mut back = older;
        back.begin(23);
        assert!(!meets(B, &mut back, A, &mut a));
        back.begin(24);
        assert!(!meets(B, &mut back, A, &mut a), "also when it had met others meanwhile");
        assert_eq!(nonces(&a), [13], "it stays noted until it is known");
        // It has given up what it may have promised, and says so with what was noted of it.
        back.admit(B, a.noted());
        back.begin(25);
        assert!(meets(B, &mut back, A, &mut a));
        assert_eq!(nonces(&a), [25]);
        // The folder that was taken away comes back.
        b.begin(14);
        assert!(!meets(B, &mut b, A, &mut a));
    }

    #[test]
    fn an_old_folder_of_a_peer_raises_no_alarm_about_starts_of_before_a_disk_was_lost() {
        // What the simulator found: two of three took themselves for put back, and one was.
        let mut a = begun(&[1]);
        let mut b = begun(&[11, 12, 13]);
        assert!(meets(B, &mut b, A, &mut a));
        let old_a = a.clone();
        b.begin(14);
        assert!(meets(B, &mut b, A, &mut a));
        // It loses its disk, knows that, and gives up what it promised.
        let mut b = begun(&[21]);
        assert!(!meets(B, &mut b, A, &mut a));
        b.admit(B, a.noted());
        b.begin(22);
        assert!(meets(B, &mut b, A, &mut a));
        let copied = b.clone();
        let mut a = old_a;
        a.begin(2);
        assert!(meets(B, &mut b, A, &mut a));
        // Numbers go on above: a copy of that folder is recognised.
        b.begin(23);
        assert!(meets(B, &mut b, A, &mut a));
        let mut back = copied;
        back.begin(33);
        assert!(!meets(B, &mut back, A, &mut a));
    }

    #[test]
    fn a_peer_that_was_away_for_more_starts_than_are_kept_raises_no_alarm() {
        let mut a = begun(&[1]);
        let mut b = begun(&[100]);
        assert!(meets(B, &mut b, A, &mut a));
        let copied = b.clone();
        (101..300).for_each(|nonce| b.begin(nonce));
        assert!(meets(B, &mut b, A, &mut a), "the start that it noted is not kept any more");
        // Its newest start is higher than all that the older folder can begin unseen.
        let mut back = copied;
        for nonce in 500..500 + OWN_MAX as u64 + 10 {
            back.begin(nonce);
            assert!(!meets(B, &mut back, A, &mut a));
        }
    }

    #[test]
    fn a_peer_that_comes_back_takes_no_vote_that_an_operator_gave() {
        let mut a = begun(&[1]);
        let mut b = begun(&[100, 101, 102]);
        assert!(meets(B, &mut b, A, &mut a));
        // Its hard state was lost, and an operator forced its vote while the other one was away.
        let mut b = begun(&[200]);
        let before = b.clone();
        b.overrule();
        b.begin(201);
        assert!(meets(B, &mut b, A, &mut a));
        let mut back = before;
        back.begin(202);
        assert!(!meets(B, &mut back, A, &mut a), "the folder of before that is an old one");
    }

    #[test]
    fn what_one_peer_noted_is_known_by_the_third_member_too() {
        let mut a = begun(&[1]);
        let mut b = begun(&[11]);
        let mut c = begun(&[21]);
        let older = b.clone();
        b.begin(12);
        assert!(meets(B, &mut b, A, &mut a));
        assert!(meets(C, &mut c, A, &mut a) && meets(A, &mut a, C, &mut c));
        let mut back = older.clone();
        back.begin(13);
        assert!(!meets(B, &mut back, C, &mut c), "it heard it of the one that is away");
        // It met the third one first: what is heard later does not replace what was
        // noted.
        let mut unheard = begun(&[21]);
        assert!(meets(B, &mut back, C, &mut unheard));
        let heard = unheard.hear(C, a.noted());
        assert!(
            heard.has_news && heard.is_to_be_forwarded,
            "the other one may be connected with C only"
        );
        assert_eq!(unheard.hear(C, a.noted()), StartsChange::default());
        assert!(!meets(B, &mut back, C, &mut unheard));
    }

    #[test]
    fn two_processes_of_one_folder_are_recognised_whichever_comes_last() {
        let mut a = begun(&[1]);
        let mut original = begun(&[11]);
        let mut clone = original.clone();
        original.begin(12);
        clone.begin(13);
        assert!(meets(B, &mut original, A, &mut a));
        assert!(!meets(B, &mut clone, A, &mut a));
        // One of a process that runs: it looks like the next start until the original comes again.
        let mut clone = original.clone();
        clone.begin(14);
        assert!(meets(B, &mut clone, A, &mut a));
        assert!(!meets(B, &mut original, A, &mut a));
    }

    #[test]
    fn of_one_member_some_are_noted_and_of_another_one_none_is_lost_for_that() {
        let mut a = begun(&[1]);
        assert!(a.declare(C, start(3, 31)) && !a.declare(C, start(3, 31)));
        for nonce in 0..50 {
            a.hear(A, &[(B, start(1, nonce))]);
        }
        assert_eq!(nonces(&a), [31, 1, 2]);
        assert!(a.hear(A, &[(B, start(2, 50))]).has_news, "a newer one counts more");
        assert_eq!(nonces(&a), [31, 1, 50]);
        assert!(a.declare(B, start(3, 51)), "it knows all of them");
        assert_eq!(nonces(&a), [31, 51]);
    }

    /// Seed 1882618438311148 of the tree e0b06f6: a batch that was committed became another one.
    #[test]
    fn starts_of_long_ago_that_a_third_member_says_do_not_push_out_the_one_that_was_declared() {
        let mut a = begun(&[1]);
        let mut b = begun(&[11]);
        let older = b.clone();
        b.begin(12);
        assert!(meets(B, &mut b, A, &mut a));
        a.hear(A, &[(B, start(1, 7)), (B, start(1, 8)), (B, start(1, 9))]);
        let mut back = older;
        back.begin(13);
        assert!(!meets(B, &mut back, A, &mut a), "it promised more in the start with nonce 12");
    }

    #[test]
    fn what_is_kept_comes_back_and_other_bytes_are_refused() {
        let mut all = begun(&(1..80).collect::<Vec<_>>());
        all.declare(B, start(1, 7));
        all.admit(A, &[(A, start(400, 5))]);
        all.declare(C, start(9, u64::MAX));
        all.put_back();
        let bytes = all.encode();
        assert_eq!(Starts::decode(&bytes), Some(all.clone()));
        assert!(all.votes_again() && !all.votes_again());
        assert_eq!(Starts::decode(&all.encode()), Some(all));
        assert_eq!(Starts::decode(&Starts::default().encode()), Some(Starts::default()));
        assert_eq!(Starts::decode(&bytes[1..]), None);
        for (at, count) in [(0, 65), (1, 5)] {
            let mut wrong = bytes.clone();
            wrong[at] = count;
            assert_eq!(Starts::decode(&wrong), None);
        }
    }
}
