//! Connections that end soon, for the same reason as the one before: two logs that have diverged
//! find that out only when the first batch is compared, behind a connection that stands. The same
//! words are logged once, until they are others, or a connection stays.
//!
//! Not here: when it is dialled again (`retry`). Invariant: what is remembered is bounded.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// One that stood for so long, and then was ended with a reason, was none that was refused.
pub(super) const SETTLED: Duration = Duration::from_secs(10);
/// One behind another that was refused is not reported before it has stood for so long.
pub(super) const QUIET: Duration = Duration::from_secs(2);
/// Instances of the other group that are remembered: a group has fewer.
const INSTANCES_MAX: usize = 16;

/// Why the last connection to each instance was refused.
#[derive(Debug, Default)]
pub(super) struct RefusedLinks(Mutex<Vec<(Arc<str>, String)>>);

impl RefusedLinks {
    /// Whether the last connection to an instance was refused.
    pub(super) fn is_refused(&self, instance: &str) -> bool {
        self.0.lock().iter().any(|(of, _)| **of == *instance)
    }

    /// One was refused, for this reason; whether the one before was not, or for another reason.
    pub(super) fn refused(&self, instance: &Arc<str>, why: &str) -> bool {
        let mut all = self.0.lock();
        let known = all.iter_mut().find(|(of, _)| of == instance);
        if let Some((_, known)) = known {
            return std::mem::replace(known, why.to_owned()) != why;
        }
        if all.len() == INSTANCES_MAX {
            all.remove(0);
        }
        all.push((Arc::clone(instance), why.to_owned()));
        true
    }

    /// One ended in another way.
    pub(super) fn forget(&self, instance: &str) {
        self.0.lock().retain(|(of, _)| **of != *instance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_reason_is_news_once_until_it_is_another_one_or_a_connection_stays() {
        let (repeats, [a, b]) = (RefusedLinks::default(), ["a", "b"].map(Arc::<str>::from));
        assert!(!repeats.is_refused("a"));
        let diverged = "its log has another batch 9";
        assert!(repeats.refused(&a, diverged));
        assert!(repeats.is_refused("a") && !repeats.is_refused("b"));
        for _ in 0..100 {
            assert!(!repeats.refused(&a, diverged));
        }
        assert!(repeats.refused(&b, diverged), "another instance");
        assert!(repeats.refused(&a, "its log has another batch 10"));
        repeats.forget("a");
        assert!(!repeats.is_refused("a") && repeats.is_refused("b"));
        assert!(repeats.refused(&a, diverged));
        for at in 0..100 {
            repeats.refused(&format!("c{at}").into(), "no");
        }
        assert_eq!(repeats.0.lock().len(), INSTANCES_MAX);
    }
}
