//! File descriptors: as many as the process may have, and some of them reserved for administrators
//! and the log.
//!
//! Invariant: clients never take the descriptors of the local socket and of the recovery log.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towline_admin::catalogue::FEW_DESCRIPTORS;

use crate::net::LOCAL_CONNECTIONS_MAX;
use towline_config::Config;
use towline_logging::log;

/// Kept for the local socket, the socket of a group (64 too), extents, listeners and links.
const KEPT: usize = LOCAL_CONNECTIONS_MAX * 4;

/// Raises the soft limit to the hard one. How many descriptors the process may have then.
pub(crate) fn raise() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limits.maximum, maximum: limits.maximum };
    if limits.current != limits.maximum
        && let Err(error) = setrlimit(Resource::Nofile, wanted)
    {
        tracing::debug!(%error, "the limit of file descriptors stays");
    }
    let current = getrlimit(Resource::Nofile).current;
    // `None` is without a limit.
    current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX))
}

/// Connections of clients that so many descriptors are enough for. In a group a client that is
/// relayed takes two: its socket, and the stream to the active instance.
pub(crate) fn clients_max(descriptors: usize, in_group: bool) -> usize {
    let left = descriptors - KEPT.min(descriptors / 4);
    if in_group { left / 2 } else { left }
}

/// The same for this process, with a warning when it is less than the configuration says.
pub(crate) fn clients_of(config: &Config, descriptors: usize) -> usize {
    let most = clients_max(descriptors, config.group.is_some());
    let wanted = config.limits.connections_max;
    if most < wanted {
        let values = [descriptors, most, wanted].map(|number| number.to_string());
        log(&FEW_DESCRIPTORS, &values.each_ref().map(String::as_str));
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_never_take_all_descriptors() {
        assert_eq!(clients_max(1_024, false), 768);
        assert_eq!(clients_max(1_024, true), 384);
        assert_eq!(clients_max(64, false), 48);
        assert_eq!(clients_max(0, false), 0);
        assert_eq!(clients_max(usize::MAX, false), usize::MAX - KEPT);
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let raised = raise();
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum);
        assert!(raised > 0);
    }
}
