//! Whether this instance still has its own data folder, as the others know it
//! (`towline_group::starts`). When the folder was put back or cloned, this instance does not know
//! what it promised: it makes that durable, and re-executes itself without a vote and without a
//! term.
//!
//! Not here: what is said on a connection, and in which order (`link`). Invariants: a start of
//! another instance is on the disk before any other message of it counts; only a thread that writes
//! the file holds a lock of this module while it waits for the disk.

use towline_admin::catalogue::{GROUP_CLONED, GROUP_PUT_BACK};
use towline_group::{Start, Starts};
use towline_log::{Listener, LogError};
use towline_os::sync::{Mutex, MutexGuard};

use super::Driver;
use crate::frames::{KIND_KNOWN, member_of};
use crate::lifecycle::{EndReason, Lifecycle};
use towline_link::{FrameBody, Greeting, Peer, StartsReport};
use towline_logging::log as say;

/// What this process knows of starts.
pub(crate) struct KnownStarts {
    inner: Mutex<Inner>,
    /// Held while they are written, so that the newest are written last.
    writing: Mutex<()>,
}

struct Inner {
    starts: Starts,
    /// Something came that is not on the disk.
    has_news: bool,
    /// Of each peer, the process at the other end of what comes in, and of what was dialled.
    connected: Vec<[Option<Start>; 2]>,
    /// Starts that were refused, and logged.
    refused: Vec<Start>,
}

impl KnownStarts {
    pub(crate) fn new(starts: Starts, members: usize) -> KnownStarts {
        let connected = vec![[None; 2]; members];
        let inner = Inner { starts, has_news: false, connected, refused: Vec::new() };
        KnownStarts { inner: Mutex::new(inner), writing: Mutex::new(()) }
    }
}

impl Driver {
    /// The start of this process.
    pub fn own_start(&self) -> Start {
        self.starts.inner.lock().starts.own()
    }

    /// What this instance says to a peer with a connection.
    pub fn known(&self, peer: Peer) -> StartsReport {
        let witness = self.look(|core| core.member.witness(member_of(peer)));
        let inner = self.starts.inner.lock();
        StartsReport { start: inner.starts.own(), noted: inner.starts.noted().to_vec(), witness }
    }

    /// A connection with a peer is about to stand.
    ///
    /// # Errors
    /// Why it may not.
    pub fn greets(&self, peer: Peer, greeting: &Greeting) -> Result<(), String> {
        self.admits_levels(peer, greeting.levels)?;
        self.admits_log(peer, &greeting.standing)?;
        let known = &greeting.known;
        if !known.start.is_said() {
            // Of a version that says nothing of starts.
            return Ok(());
        }
        self.is_the_only_one(peer, known.start)?;
        self.hears(peer, known)
    }

    /// There is no other process of this name on a connection that lives.
    fn is_the_only_one(&self, peer: Peer, start: Start) -> Result<(), String> {
        let mut inner = self.starts.inner.lock();
        let ends = inner.connected[peer];
        if ends.iter().flatten().all(|connected| connected.nonce == start.nonce) {
            return Ok(());
        }
        let is_new = !inner.refused.contains(&start);
        if is_new {
            // A few: more than that of one name is no clone but a loop of starts.
            inner.refused.truncate(7);
            inner.refused.insert(0, start);
        }
        drop(inner);
        let name = self.name(peer);
        if is_new {
            say(&GROUP_CLONED, &[name]);
        }
        Err(format!(
            "another process that is instance '{name}' is connected: is this a clone of it? One of \
             both must end, and a clone needs an empty data folder"
        ))
    }

    /// What another instance knows of starts.
    ///
    /// # Errors
    /// Why this process cannot go on.
    pub fn hears(&self, peer: Peer, known: &StartsReport) -> Result<(), String> {
        let this = member_of(self.this);
        if self.look(|core| core.lifecycle == Lifecycle::Ended) {
            return Err("it re-executes itself".into());
        }
        let heard = {
            let mut inner = self.starts.inner.lock();
            let heard = inner.starts.hear(this, &known.noted);
            inner.has_news |= heard.has_news;
            heard
        };
        if heard.is_to_be_forwarded {
            // The one that it is about may be connected with this instance only.
            self.send_known();
        }
        let promised_more = self.look(|core| core.member.is_contradicted_by(known.witness));
        if !heard.of_unknown_start && !promised_more {
            return Ok(());
        }
        self.was_put_back(peer, known)
    }

    /// Its data folder is older than it was, or another process has a copy of it. What it may have
    /// promised that is not known here counts for nothing from now on.
    fn was_put_back(&self, peer: Peer, known: &StartsReport) -> Result<(), String> {
        let _writing = self.starts.writing.lock();
        let mut core = self.core.lock();
        if core.lifecycle == Lifecycle::Ended {
            // It learned that on another connection meanwhile.
            return Err("it re-executes itself".into());
        }
        let hard_state = core.member.hard_state();
        let trusts_itself = hard_state.has_newest_term();
        let forgotten = hard_state.forgotten();
        let starts = {
            let mut inner = self.starts.inner.lock();
            if trusts_itself {
                inner.starts.put_back();
            }
            inner.starts.admit(member_of(self.this), &known.noted);
            inner.starts.clone()
        };
        // In one write: what was noted is known from then on, and so is that it was forgotten.
        let written =
            self.disk.keeping(|| core.hard_state_file.write_starts(&starts, Some(&forgotten)));
        if let Err(error) = written {
            let error = LogError::io("keep the state of the group", "group-state", error);
            Listener::failed(self, &error);
        }
        // With an empty disk, or a log that was replaced, it knows already.
        if trusts_itself {
            say(&GROUP_PUT_BACK, &[self.name(peer)]);
        }
        // Its next start is one that it can declare.
        self.ends(&mut core, EndReason::PutBack);
        Err("it re-executes itself: it may have promised more than it knows".into())
    }

    /// A peer declares its start: noted when this returns. A disk that refuses ends the process.
    pub fn declared(&self, peer: Peer, start: Start) {
        let writing = self.starts.writing.lock();
        let (is_news, is_written) = {
            let mut inner = self.starts.inner.lock();
            let is_news = inner.starts.declare(member_of(peer), start);
            // A third instance may have reported it before, and that need not be on the disk yet.
            (is_news, !is_news && !inner.has_news)
        };
        if !is_written {
            self.write_starts(&writing);
        }
        drop(writing);
        if is_news {
            self.send_known();
        }
    }

    /// Makes durable what is not, if anything is.
    pub(crate) fn keep_starts(&self) {
        let votes = self.look(|core| core.member.may_vote());
        let mut inner = self.starts.inner.lock();
        inner.has_news |= votes && inner.starts.votes_again();
        let has_news = inner.has_news;
        drop(inner);
        if has_news {
            self.write_starts(&self.starts.writing.lock());
        }
    }

    fn write_starts(&self, _writing: &MutexGuard<'_, ()>) {
        let starts = {
            let mut inner = self.starts.inner.lock();
            inner.has_news = false;
            inner.starts.clone()
        };
        let written = self.notes.write_starts(&starts, None);
        written.unwrap_or_else(|error| {
            // What the disk has of the file is not known, and a vote is written to it next.
            let error = LogError::io("keep the state of the group", "group-state", error);
            Listener::failed(self, &error);
        });
    }

    /// Sends the others what was noted here: a process that runs learns of another one of its name.
    fn send_known(&self) {
        let Some(links) = self.links.get() else { return };
        for peer in (0..self.names.len()).filter(|peer| *peer != self.this) {
            let mut head = Vec::new();
            self.known(peer).encode(&mut head);
            // A peer that misses it gets it with the next connection.
            links.send(peer, KIND_KNOWN, true, FrameBody { head, parts: Vec::new() });
        }
    }

    /// Such a frame came.
    ///
    /// # Errors
    /// When it is none.
    pub fn take_known(&self, peer: Peer, mut body: &[u8]) -> Result<(), String> {
        let known =
            StartsReport::decode(&mut body).ok_or("what it knows of starts cannot be read")?;
        self.hears(peer, &known)
    }

    /// A connection of the process with this start stands, or stood.
    pub fn connected(&self, peer: Peer, incoming: bool, start: Option<Start>) {
        let start = start.filter(|start| start.is_said());
        let mut inner = self.starts.inner.lock();
        inner.connected[peer][usize::from(incoming)] = start;
    }

    /// Whether its data folder was put back, and it has not caught up since.
    pub fn is_put_back(&self) -> bool {
        self.starts.inner.lock().starts.is_put_back()
    }
}
