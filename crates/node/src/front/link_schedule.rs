//! Which links with something to send are to be looked at, and in which order.
//!
//! A link is looked at only after something happened that it waits for, so that a response costs
//! the same however many links wait. One that waits for its own credit, or for a get to become
//! durable, stands in no line. One that waits for the window stands in the line of its session, of
//! which only the first is looked at: it goes before all others, so that a large message is not
//! overtaken for ever. A delivery that would wait inside for the window with its body, while too
//! many bytes do already, stands apart: it does not stop the smaller ones of its session.
//!
//! Invariants: a link stands in one line at most; the first of a line that is not `due` was found
//! held back by the window, and nothing has changed since.

use std::collections::{BTreeMap, VecDeque};

use crate::request::LinkToken;

/// Where a link stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// In no line.
    #[default]
    Nowhere,
    /// It is to be looked at.
    Ready(i64),
    /// It waits for the window of its session.
    Window(i64),
    /// It waits until fewer bytes wait inside of the AMQP machine.
    Large(i64),
}

/// Where a link is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetLine {
    Nowhere,
    Ready,
    /// At the end of the line of its session.
    Window,
    /// Before the others: its messages are got already.
    WindowFirst,
    Large,
}

/// Links in an order from which any can be taken out.
#[derive(Debug, Default)]
struct Line(BTreeMap<i64, LinkToken>);

impl Line {
    fn add_last(&mut self, token: LinkToken) -> i64 {
        let key = self.0.last_key_value().map_or(0, |(last, _)| last + 1);
        self.0.insert(key, token);
        key
    }

    fn add_first(&mut self, token: LinkToken) -> i64 {
        let key = self.0.first_key_value().map_or(0, |(first, _)| first - 1);
        self.0.insert(key, token);
        key
    }

    /// # Panics
    /// When no link stands there: the link that does would be looked at twice, or never.
    fn remove(&mut self, key: i64) {
        assert!(self.0.remove(&key).is_some(), "a link leaves a line in which it does not stand");
    }

    fn first(&self) -> Option<LinkToken> {
        self.0.first_key_value().map(|(_, token)| *token)
    }
}

/// The links of one session that wait for its window.
#[derive(Debug, Default)]
struct SessionLine {
    line: Line,
    /// The first may have got what it waits for.
    due: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Lines {
    ready: Line,
    sessions: BTreeMap<u16, SessionLine>,
    /// Sessions that are `due`, in the order of their turns.
    due: VecDeque<u16>,
    large: Line,
}

impl Lines {
    /// Takes a link from where it stood.
    pub(super) fn leave(&mut self, session: u16, standing: Standing) {
        match standing {
            Standing::Nowhere => {}
            Standing::Ready(key) => self.ready.remove(key),
            Standing::Large(key) => self.large.remove(key),
            Standing::Window(key) => {
                self.line(session).remove(key);
                self.window_moved(session);
            }
        }
    }

    /// Adds a link that stands nowhere.
    pub(super) fn enter(&mut self, session: u16, token: LinkToken, place: TargetLine) -> Standing {
        match place {
            TargetLine::Nowhere => Standing::Nowhere,
            TargetLine::Ready => Standing::Ready(self.ready.add_last(token)),
            TargetLine::Large => Standing::Large(self.large.add_last(token)),
            TargetLine::Window => Standing::Window(self.line(session).add_last(token)),
            TargetLine::WindowFirst => Standing::Window(self.line(session).add_first(token)),
        }
    }

    fn line(&mut self, session: u16) -> &mut Line {
        &mut self.sessions.entry(session).or_default().line
    }

    /// Whether a link waits for the window of the session: others have to stand behind it.
    pub(super) fn any_waits(&self, session: u16) -> bool {
        self.sessions.get(&session).is_some_and(|of| !of.line.0.is_empty())
    }

    /// Something happened that the first of this session may wait for.
    pub(super) fn window_moved(&mut self, session: u16) {
        if let Some(of) = self.sessions.get_mut(&session)
            && !of.line.0.is_empty()
            && !std::mem::replace(&mut of.due, true)
        {
            self.due.push_back(session);
        }
    }

    /// The first link of each session that waits.
    pub(super) fn firsts(&self) -> impl Iterator<Item = LinkToken> {
        self.sessions.values().filter_map(|of| of.line.first())
    }

    /// The first of the session that is next was looked at, and is held back by the window.
    pub(super) fn not_due(&mut self) {
        let of = self.due.pop_front().and_then(|session| self.sessions.get_mut(&session));
        if let Some(of) = of {
            of.due = false;
        }
    }

    /// The next session has its turn.
    pub(super) fn rotate(&mut self) {
        if let Some(session) = self.due.pop_front() {
            self.due.push_back(session);
        }
    }

    /// Whether there is no link to look at, as nearly always.
    pub(super) fn are_empty(&self) -> bool {
        self.ready.0.is_empty() && self.due.is_empty() && self.large.0.is_empty()
    }

    /// The link that stands first of those that are to be looked at.
    pub(super) fn next(&mut self) -> Option<LinkToken> {
        if let Some(token) = self.ready.first() {
            return Some(token);
        }
        while let Some(session) = self.due.front() {
            let of = self.sessions.get_mut(session)?;
            if let Some(token) = of.line.first() {
                return Some(token);
            }
            of.due = false;
            self.due.pop_front();
        }
        None
    }

    /// The first of those that wait until fewer bytes wait inside.
    pub(super) fn large(&self) -> Option<LinkToken> {
        self.large.first()
    }

    /// How many of them there are.
    pub(super) fn large_count(&self) -> usize {
        self.large.0.len()
    }
}
