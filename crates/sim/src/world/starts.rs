//! A whole disk is put back as it was after an earlier end of its process, or is that of a clone,
//! and the group recognises it.
//!
//! What is heard of a member before its start is noted does not reach any other; here the first
//! message on a connection stands for the frame that declares it.
//!
//! Not here: what is noted and compared (`towline_group::Starts`).
//!
//! Invariant: a process on such a disk that cannot meet both others in time is not let take part:
//! it is for that case that operators have `towline instance replace`.

use towline_group::{MemberId, Start, Witness};

use super::life::{ProcessEnd, member_id};
use super::{At, Event, World, tell};
use crate::disk::{Disk, DiskPart};
use crate::network::{Link, Micros, Parcel};

impl World {
    /// A disk is put back whole.
    pub(super) fn put_folder_back(&mut self, node: usize) {
        let Some(copy) = self.nodes[node].older.clone() else { return };
        self.starts_on(node, &copy);
    }

    /// The machine was cloned when a process of it ended, and the clone is started instead; or the
    /// machine is started instead of its clone. Both go on where each of them ended: what was
    /// promised with one is not known to the other.
    ///
    /// Not at once: whichever comes second is refused by all that the first is connected with, and
    /// before it is recognised each of both may help another leader, which is what no operator may
    /// let happen.
    pub(super) fn start_clone(&mut self, node: usize) {
        let Some(twin) = self.nodes[node].twin.take() else {
            let is_off = self.nodes[node].process.is_none() && !self.nodes[node].copying;
            let disk = &self.nodes[node].disk;
            if is_off && !disk.forgot() && !disk.rotten {
                self.nodes[node].twin = Some(disk.clone());
            } else {
                self.nodes[node].twin = self.nodes[node].older.clone();
            }
            return;
        };
        let replaced = self.starts_on(node, &twin);
        self.nodes[node].twin = Some(replaced.unwrap_or(twin));
    }

    /// The whole disk becomes that of a copy, if the group survives that; yields the one that it
    /// was.
    fn starts_on(&mut self, node: usize, copy: &Disk) -> Option<Disk> {
        let is_too_much = !self.others_are_sound(node) || self.nodes[node].copying;
        if is_too_much || copy.forgot() || copy.rotten {
            return None;
        }
        let ran = self.nodes[node].process.is_some();
        self.end(node, ProcessEnd::PowerCut);
        let replaced = self.nodes[node].disk.clone();
        self.nodes[node].disk.put_back(copy, DiskPart::Folder);
        self.nodes[node].put_back = true;
        self.nodes[node].was_put_back = true;
        // What it had to have before counts for another disk.
        self.nodes[node].owes = None;
        tell!(self, "{node}: its disk is another one, up to {}", copy.last());
        if ran {
            let after = self.dice.below(self.plan.restart_after_us);
            self.plan_in(after, Event::Start { node });
        }
        Some(replaced)
    }

    /// An instance is started on a copy of the disk of another one.
    pub(super) fn take_folder_of(&mut self, node: usize, other: usize) {
        let Some(copy) = self.nodes[other].older.clone() else { return };
        if self.starts_on(node, &copy).is_some() {
            // It knows that by itself.
            self.nodes[node].put_back = false;
            self.nodes[node].owes = Some(self.committed.len() as u64);
        }
    }

    /// A peer said what it noted. Whether the disk is not what it was: then the process re-executes
    /// itself.
    pub(super) fn is_put_back(
        &mut self,
        at: At,
        noted: &[(MemberId, Start)],
        witness: Witness,
    ) -> bool {
        let this = member_id(at.node);
        let Some(process) = self.nodes[at.node].process.as_ref() else { return false };
        let hard_state = process.member.hard_state();
        let contradicted = process.member.is_contradicted_by(witness);
        let disk = &mut self.nodes[at.node].disk;
        if !disk.starts.hear(this, noted).of_unknown_start && !contradicted {
            return false;
        }
        disk.starts.admit(this, noted);
        disk.hard_state = hard_state.forgotten();
        self.nodes[at.node].put_back = false;
        tell!(self, "{}: learns that it has promised more ({hard_state:?})", at.node);
        self.restart(at.node, ProcessEnd::Exec);
        true
    }

    /// A connection stands, on which this start was said.
    pub(super) fn says_start(&mut self, at: At, link: Link, start: Start) {
        let Some(process) = self.process(at) else { return };
        process.peer_starts[link.from] = (start, link.number, false);
        let others = (0..3).filter(|other| *other != at.node);
        let has_met = others.clone().all(|other| process.peer_starts[other].1 > 0);
        if has_met {
            self.nodes[at.node].put_back = false;
        }
    }

    /// Something comes on a connection: its sender knows all that was noted of it here.
    pub(super) fn note_start(&mut self, at: At, link: Link) {
        let Some(process) = self.process(at) else { return };
        let (start, number, is_noted) = process.peer_starts[link.from];
        if is_noted || number != link.number {
            return;
        }
        process.peer_starts[link.from].2 = true;
        if !self.nodes[at.node].disk.starts.declare(member_id(link.from), start) {
            return;
        }
        let noted = self.nodes[at.node].disk.starts.noted().to_vec();
        for to in (0..3).filter(|to| *to != at.node) {
            if let Some(number) = self.network.number(at.node, to) {
                let link = Link { from: at.node, to, number };
                self.announce(link, Parcel::Noted(noted.clone()));
            }
        }
    }

    /// Whether the time in which others are met is over for a process on a disk that was put back.
    pub(super) fn was_put_back_unseen(&mut self, at: At) -> bool {
        let longest = self.plan.heartbeat_timeout.as_micros_u64();
        let now = self.now;
        let Some(process) = self.process(at) else { return false };
        let began = process.clock.began_local;
        let now = process.clock.local(now).0;
        now.saturating_sub(began) >= longest && self.is_replaced_instead(at)
    }

    /// An operator, knowing that the others cannot be asked, sets the log aside.
    fn is_replaced_instead(&mut self, at: At) -> bool {
        if !self.nodes[at.node].put_back || !self.lives(at) {
            return false;
        }
        tell!(self, "{}: is replaced, because it did not meet the others", at.node);
        self.nodes[at.node].put_back = false;
        self.end(at.node, ProcessEnd::Stop);
        let disk = &mut self.nodes[at.node].disk;
        disk.hard_state = disk.hard_state.forgotten();
        disk.lose_log();
        self.plan_in(1_000, Event::Start { node: at.node });
        true
    }
}
