//! The settings of the link to another region: the two groups, where the other one listens,
//! certificates, times.
//!
//! Not here: the checks of ranges (`config`).

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use towline_config::{GroupConfig, RecoveryConfig, RetryReporting};

use crate::identity::IdentityFiles;
use crate::names::Names;

/// Silence of this length at least is waited for between regions: a far network has longer pauses
/// than the one inside a group, and nothing hangs on this link.
const HEARTBEAT_TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// What [`super::RegionLinks::start`] needs.
pub struct RegionSettings {
    /// Name of the queue manager, which both groups have.
    pub queue_manager: Arc<str>,
    /// Name of this instance's own group.
    pub group: Arc<str>,
    /// Name of this instance.
    pub instance: Arc<str>,
    /// Name of the group of the other region; not `group`.
    pub other_group: Arc<str>,
    /// Host and port of each instance of the other group, in the order in which they are dialled
    /// (ReplicationAddress).
    pub addresses: Vec<Arc<str>>,
    /// Certificate, key, authorities of the link between regions (GroupCertificateLabel).
    pub identity: IdentityFiles,
    /// Where links of the other region come in (GroupLocalAddress); `None`: only dialled ones.
    pub listener: Option<TcpListener>,
    /// Between two pings of a link.
    pub heartbeat_interval: Duration,
    /// Silence after which a connection counts as dead.
    pub heartbeat_timeout: Duration,
    /// When to dial again.
    pub retries: Retries,
    /// Each try that failed is logged, not only the first one of each timer (RetryReporting).
    pub report_each_try: bool,
    /// Bytes from which on a body is compressed; 0: never.
    pub compression_threshold: usize,
}

/// When the other region is dialled again. In one try each of its addresses is dialled, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The pause after each of the first tries (ShortRetryTimer); not zero.
    pub short_timer: Duration,
    /// So many of them (ShortRetryCount).
    pub short_count: u32,
    /// The pause after each later one, for ever (LongRetryTimer).
    pub long_timer: Duration,
}

impl RegionSettings {
    /// Those of an instance of a checked configuration: `recovery` is the table of `group`.
    #[must_use]
    pub fn of(
        queue_manager: &str,
        group: &GroupConfig,
        recovery: &RecoveryConfig,
        listener: Option<TcpListener>,
    ) -> RegionSettings {
        RegionSettings {
            queue_manager: Arc::from(queue_manager),
            group: Arc::from(group.name.as_str()),
            instance: Arc::from(group.instance.as_str()),
            other_group: Arc::from(recovery.name.as_str()),
            addresses: recovery.addresses.iter().map(|it| Arc::from(it.as_str())).collect(),
            identity: IdentityFiles::of_region(group),
            listener,
            heartbeat_interval: group.heartbeat_interval(),
            heartbeat_timeout: group.heartbeat_timeout().max(HEARTBEAT_TIMEOUT_MIN),
            retries: Retries {
                short_timer: recovery.short_retry_timer(),
                short_count: recovery.short_retry_count,
                long_timer: recovery.long_retry_timer(),
            },
            report_each_try: recovery.retry_reporting == RetryReporting::All,
            compression_threshold: usize::try_from(recovery.compression_threshold)
                .unwrap_or(usize::MAX),
        }
    }

    /// What the certificate of this instance may call it.
    pub(super) fn own_names(&self) -> Names {
        Names::of(&self.queue_manager, &self.group, &self.instance)
    }

    /// What the certificate of an instance of the other group may call it.
    pub(super) fn other_names(&self, instance: &str) -> Names {
        Names::of(&self.queue_manager, &self.other_group, instance)
    }
}
