//! What is configured of a second region: `[group.recovery]`, the other group, and the values of
//! the keys of `[group]` that are about the link to it.
//!
//! `[group.recovery]` describes the *other* group, whatever its role is now: with it, either group
//! can be live. Keys and meanings are those of IBM MQ's stanza NativeHARecoveryGroup where it has
//! them, so a value that holds for the live group stands in the files of both.
//!
//! Not here: which group is live (it stands in the log); what two groups make of differences
//! (`replication::region_differences`).

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use towline_types::limits;

use super::host_port::{check_name, is_same_address, split};
use super::{LogConfig, within};

/// GroupRole: what a group begins as while none of its instances has a log. From then on its role
/// stands in the log, and this says nothing any more.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum FirstRole {
    /// It forms, and serves clients.
    #[default]
    Live,
    /// It waits for the log of the other group.
    Recovery,
}

impl FirstRole {
    /// As the file has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FirstRole::Live => "live",
            FirstRole::Recovery => "recovery",
        }
    }
}

/// GroupCipherSpec: which cipher suites the link between two groups may use. They are those of TLS
/// 1.3 (RFC 8446, appendix B.4), which both ends always speak.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub enum RegionCiphers {
    /// All of them.
    #[default]
    Any,
    /// TLS_AES_128_GCM_SHA256 alone.
    Aes128GcmSha256,
    /// TLS_AES_256_GCM_SHA384 alone.
    Aes256GcmSha384,
    /// TLS_CHACHA20_POLY1305_SHA256 alone.
    Chacha20Poly1305Sha256,
}

impl RegionCiphers {
    const ALL: [RegionCiphers; 4] = [
        RegionCiphers::Any,
        RegionCiphers::Aes128GcmSha256,
        RegionCiphers::Aes256GcmSha384,
        RegionCiphers::Chacha20Poly1305Sha256,
    ];
    /// What IBM MQ calls `any`. TLS 1.2 is allowed by some of them, not demanded.
    const ANY: [&str; 4] = ["ANY", "ANY_TLS12_OR_HIGHER", "ANY_TLS13", "ANY_TLS13_OR_HIGHER"];

    /// As the file has it: `any`, or the name of the suite, which is IBM MQ's too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RegionCiphers::Any => "any",
            RegionCiphers::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            RegionCiphers::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
            RegionCiphers::Chacha20Poly1305Sha256 => "TLS_CHACHA20_POLY1305_SHA256",
        }
    }
}

impl fmt::Display for RegionCiphers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl TryFrom<String> for RegionCiphers {
    type Error = String;

    fn try_from(text: String) -> Result<RegionCiphers, String> {
        if RegionCiphers::ANY.iter().any(|name| name.eq_ignore_ascii_case(&text)) {
            return Ok(RegionCiphers::Any);
        }
        let named = |ciphers: &RegionCiphers| ciphers.name().eq_ignore_ascii_case(&text);
        RegionCiphers::ALL.into_iter().find(named).ok_or_else(|| {
            let names: Vec<&str> = RegionCiphers::ALL.iter().map(|ciphers| ciphers.name()).collect();
            format!(
                "group.region_ciphers = '{text}': must be one of {}; the link between two groups is \
                 always TLS 1.3",
                names.join(", ")
            )
        })
    }
}

/// RetryReporting: which attempts to reach the other group are logged.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RetryReporting {
    /// The first of the short and the first of the long phase.
    #[default]
    Phase,
    /// Each.
    All,
}

/// SyncConsistency: what happens to clients, with `sync_replication`, while recovery is not there.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum SyncConsistency {
    /// They wait.
    #[default]
    Strict,
    /// Live goes on alone.
    Eventual,
}

/// `[group.recovery]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct RecoveryConfig {
    /// GroupName: name of the other group.
    pub name: String,
    /// ReplicationAddress: hosts and ports where its instances take the link, tried in this order.
    pub addresses: Vec<String>,
    /// Enabled: whether this group sends its log to it while it is live.
    pub enabled: bool,
    /// StatusInterval: milliseconds between two reports of the recovery point; 0: one with each
    /// round trip.
    pub status_interval_ms: u64,
    /// StatusCommitThreshold: bytes of log after which a report does not wait for the interval; 0:
    /// it always does.
    pub status_commit_threshold_bytes: u64,
    /// ShortRetryTimer: milliseconds between attempts to connect in the short phase.
    pub short_retry_timer_ms: u64,
    /// ShortRetryCount: attempts of the short phase.
    pub short_retry_count: u32,
    /// LongRetryTimer: milliseconds between attempts after that.
    pub long_retry_timer_ms: u64,
    /// See [`RetryReporting`].
    pub retry_reporting: RetryReporting,
    /// SyncReplication: replies wait for recovery's disks as well.
    pub sync_replication: bool,
    /// See [`SyncConsistency`].
    pub sync_consistency: SyncConsistency,
    /// Milliseconds for which a reply waits for recovery, before live goes on alone (eventual) or
    /// says that it waits (strict).
    pub sync_wait_ms: u64,
    /// CompressionThreshold: bytes from which on what goes over the link is compressed; 0: never.
    pub compression_threshold: u64,
    /// Recovery point objective: bytes of log that may be at risk; 0: none.
    pub rpo_bytes: u64,
    /// The same as seconds: age of the oldest commit that recovery lacks; 0: none.
    pub rpo_s: u64,
    /// Recovery time objective in seconds; 0: none.
    pub rto_s: u64,
    /// Bytes of log that may be on their way unacknowledged.
    pub window_bytes: u64,
    /// Bytes of log that live keeps for recovery at most; 0: see
    /// [`RecoveryConfig::log_bytes_behind`].
    pub log_bytes_behind_max: u64,
    /// Hosts and ports at which clients find the other group: one list for each of its instances,
    /// in it one for each `[[listener]]` in order. Empty: what the other group says when it is
    /// connected.
    pub clients: Vec<Vec<String>>,
}

impl Default for RecoveryConfig {
    /// What holds for keys that are not given; name and addresses must be.
    fn default() -> RecoveryConfig {
        RecoveryConfig {
            name: String::new(),
            addresses: Vec::new(),
            enabled: true,
            status_interval_ms: 0,
            status_commit_threshold_bytes: limits::REGION_STATUS_COMMIT_BYTES_DEFAULT,
            short_retry_timer_ms: limits::REGION_SHORT_RETRY_MS_DEFAULT,
            short_retry_count: limits::REGION_SHORT_RETRIES_DEFAULT,
            long_retry_timer_ms: limits::REGION_LONG_RETRY_MS_DEFAULT,
            retry_reporting: RetryReporting::Phase,
            sync_replication: false,
            sync_consistency: SyncConsistency::Strict,
            sync_wait_ms: limits::REGION_SYNC_WAIT_MS_DEFAULT,
            compression_threshold: 64,
            rpo_bytes: 0,
            rpo_s: 0,
            rto_s: 0,
            window_bytes: limits::REGION_WINDOW_BYTES_DEFAULT,
            log_bytes_behind_max: 0,
            clients: Vec::new(),
        }
    }
}

impl RecoveryConfig {
    /// See `status_interval_ms`.
    #[must_use]
    pub fn status_interval(&self) -> Duration {
        Duration::from_millis(self.status_interval_ms)
    }

    /// See `short_retry_timer_ms`.
    #[must_use]
    pub fn short_retry_timer(&self) -> Duration {
        Duration::from_millis(self.short_retry_timer_ms)
    }

    /// See `long_retry_timer_ms`.
    #[must_use]
    pub fn long_retry_timer(&self) -> Duration {
        Duration::from_millis(self.long_retry_timer_ms)
    }

    /// See `sync_wait_ms`.
    #[must_use]
    pub fn sync_wait(&self) -> Duration {
        Duration::from_millis(self.sync_wait_ms)
    }

    /// Whether replies of the live group wait for the other one.
    #[must_use]
    pub fn replies_wait(&self) -> bool {
        self.enabled && self.sync_replication
    }

    /// Bytes of log that live keeps for a recovery group that is behind or away, before recovery is
    /// rebased instead: `log_bytes_behind_max`; without it half of `log.log_bytes_max`, and in a
    /// log that only the disk bounds [`limits::REGION_BEHIND_BYTES_DEFAULT`]. A log that is nearly
    /// full keeps less.
    #[must_use]
    pub fn log_bytes_behind(&self, log: &LogConfig) -> u64 {
        match (self.log_bytes_behind_max, log.log_bytes_max) {
            (0, 0) => limits::REGION_BEHIND_BYTES_DEFAULT,
            (0, log_bytes_max) => log_bytes_max / 2,
            (configured, _) => configured,
        }
    }

    /// Each key that should have the same value in all files of both groups, as text: the value in
    /// the file of the group that is live holds, and each group may become that.
    #[must_use]
    pub fn shared_values(&self) -> Vec<(&'static str, String)> {
        let reporting = match self.retry_reporting {
            RetryReporting::Phase => "phase",
            RetryReporting::All => "all",
        };
        let consistency = match self.sync_consistency {
            SyncConsistency::Strict => "strict",
            SyncConsistency::Eventual => "eventual",
        };
        vec![
            ("status_interval_ms", self.status_interval_ms.to_string()),
            ("status_commit_threshold_bytes", self.status_commit_threshold_bytes.to_string()),
            ("short_retry_timer_ms", self.short_retry_timer_ms.to_string()),
            ("short_retry_count", self.short_retry_count.to_string()),
            ("long_retry_timer_ms", self.long_retry_timer_ms.to_string()),
            ("retry_reporting", reporting.to_owned()),
            ("sync_replication", self.sync_replication.to_string()),
            ("sync_consistency", consistency.to_owned()),
            ("sync_wait_ms", self.sync_wait_ms.to_string()),
            ("compression_threshold", self.compression_threshold.to_string()),
            ("rpo_bytes", self.rpo_bytes.to_string()),
            ("rpo_s", self.rpo_s.to_string()),
            ("rto_s", self.rto_s.to_string()),
            ("window_bytes", self.window_bytes.to_string()),
        ]
    }

    /// Checks names, addresses and ranges. `own_group` and `own_addresses` are those of the group
    /// that this is in the file of.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self, own_group: &str, own_addresses: &[&str]) -> Result<(), String> {
        check_name("group.recovery.name", &self.name)?;
        if self.name == own_group {
            return Err(format!(
                "group.recovery.name = '{own_group}' is this group: it must name the other one"
            ));
        }
        let count = self.addresses.len();
        within("the number of group.recovery.addresses", count as u64, 1, ADDRESSES_MAX)?;
        for (at, address) in self.addresses.iter().enumerate() {
            check_address("group.recovery.addresses", address)?;
            let before = self.addresses.get(..at).unwrap_or_default();
            if before.iter().any(|other| is_same_address(other, address)) {
                return Err(format!("group.recovery.addresses = '{address}' is given twice"));
            }
            if own_addresses.iter().any(|own| is_same_address(own, address)) {
                return Err(format!(
                    "group.recovery.addresses = '{address}' is an address of this group: it must be \
                     one of group '{}'",
                    self.name
                ));
            }
        }
        within(
            "the number of group.recovery.clients",
            self.clients.len() as u64,
            0,
            ADDRESSES_MAX,
        )?;
        for of_instance in &self.clients {
            check_clients("group.recovery.clients", of_instance)?;
        }
        self.check_ranges()
    }

    fn check_ranges(&self) -> Result<(), String> {
        let of = |key: &str| format!("group.recovery.{key}");
        let most = limits::REGION_STATUS_INTERVAL_MS_MAX;
        within(&of("status_interval_ms"), self.status_interval_ms, 0, most)?;
        let most = limits::REGION_RETRY_MS_MAX;
        let least = limits::REGION_SHORT_RETRY_MS_MIN;
        within(&of("short_retry_timer_ms"), self.short_retry_timer_ms, least, most)?;
        let (retries, most_retries) = (self.short_retry_count, limits::REGION_SHORT_RETRIES_MAX);
        within(&of("short_retry_count"), u64::from(retries), 0, u64::from(most_retries))?;
        let least = limits::REGION_LONG_RETRY_MS_MIN;
        within(&of("long_retry_timer_ms"), self.long_retry_timer_ms, least, most)?;
        let most = limits::COMPRESSION_THRESHOLD_MAX;
        within(&of("compression_threshold"), self.compression_threshold, 0, most)?;
        let (least, most) = (limits::REGION_SYNC_WAIT_MS_MIN, limits::REGION_SYNC_WAIT_MS_MAX);
        within(&of("sync_wait_ms"), self.sync_wait_ms, least, most)?;
        if self.sync_replication && !self.enabled {
            return Err(
                "group.recovery.sync_replication needs group.recovery.enabled: without a log \
                        that is sent, no reply would ever go; set it to false to serve without the \
                        other region"
                    .to_owned(),
            );
        }
        let (least, most) = (limits::REGION_WINDOW_BYTES_MIN, limits::REGION_WINDOW_BYTES_MAX);
        within(&of("window_bytes"), self.window_bytes, least, most)
    }

    /// Checks what must fit to the log.
    ///
    /// # Errors
    /// What it must be.
    pub(super) fn check_log(&self, log: &LogConfig) -> Result<(), String> {
        let behind = self.log_bytes_behind_max;
        if behind == 0 {
            return Ok(());
        }
        let most = match log.log_bytes_max {
            0 => u64::MAX,
            log_bytes_max => log_bytes_max / 100 * limits::LOG_HOLD_PERCENT,
        };
        let least = log.extent_bytes;
        within("group.recovery.log_bytes_behind_max", behind, least, most).map_err(|why| {
            let percent = limits::LOG_HOLD_PERCENT;
            format!("{why} (an extent, and {percent} % of log.log_bytes_max), or 0 for half of it")
        })
    }
}

/// As the checks of ranges take it.
const ADDRESSES_MAX: u64 = limits::REGION_ADDRESSES_MAX as u64;

/// Checks `host:port`, and that two groups can say it to each other.
///
/// # Errors
/// What it must be.
pub(super) fn check_address(key: &str, address: &str) -> Result<(), String> {
    let bytes_max = limits::REGION_ADDRESS_BYTES_MAX;
    if split(address).is_none() || address.len() > bytes_max {
        return Err(format!("{key} = '{address}': must be host:port, at most {bytes_max} bytes"));
    }
    Ok(())
}

/// Checks the addresses at which clients find one instance of the other group.
fn check_clients(key: &str, of_instance: &[String]) -> Result<(), String> {
    let count = of_instance.len() as u64;
    within(&format!("the number of {key} of an instance"), count, 1, CLIENTS_MAX)?;
    of_instance.iter().filter(|address| !address.is_empty()).try_for_each(|a| check_address(key, a))
}

/// As the checks of ranges take it.
const CLIENTS_MAX: u64 = limits::REGION_CLIENTS_MAX as u64;

#[cfg(test)]
mod tests;
