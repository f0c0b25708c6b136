//! What happened in a round and when, for people.
//!
//! Not here: what it means.

use std::time::{Duration, Instant};

use super::fault::Fault;

/// See the module.
pub(super) struct Trace {
    begun: Instant,
    faults: Vec<(Duration, Fault)>,
    /// All that happened, in order.
    lines: Vec<String>,
    /// Steps of the round after its faults, and when each was over.
    steps: Vec<(&'static str, Duration)>,
}

impl Trace {
    /// Of a round that begins now.
    pub(super) fn begin() -> Trace {
        Trace { begun: Instant::now(), faults: Vec::new(), lines: Vec::new(), steps: Vec::new() }
    }

    /// Since the round began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A fault begins.
    pub(super) fn fault(&mut self, fault: Fault) {
        self.faults.push((self.elapsed(), fault));
        self.note(&fault.to_string());
    }

    /// Something else happened.
    pub(super) fn note(&mut self, text: &str) {
        self.lines.push(format!("{:>6} ms {text}", self.elapsed().as_millis()));
    }

    /// A step of the round is over.
    pub(super) fn step(&mut self, name: &'static str) {
        self.note(name);
        self.steps.push((name, self.elapsed()));
    }

    /// Kinds of the faults.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.faults.iter().map(|(_, fault)| fault.kind())
    }

    /// The faults in one line.
    pub(super) fn happened(&self) -> String {
        let faults = self.faults.iter();
        let texts = faults.map(|(at, fault)| format!("{} ms {fault}", at.as_millis()));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// How long each step took, in one line.
    pub(super) fn times(&self) -> String {
        let mut before = Duration::ZERO;
        let mut texts = Vec::new();
        for (name, over) in &self.steps {
            texts.push(format!("{name} {:.1}", over.saturating_sub(before).as_secs_f64()));
            before = *over;
        }
        texts.join(", ")
    }

    /// Everything, a line each.
    pub(super) fn lines(&self) -> String {
        self.lines.join("\n")
    }
}
