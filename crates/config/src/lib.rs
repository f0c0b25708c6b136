//! The one configuration file. Every value has a safe default, so that no file is needed at all;
//! unknown keys are refused with their line and a suggestion.
//!
//! Attribute names are IBM MQ's where one exists (`deadq`, `maxmsgl`, `maxumsgs`).

mod client_network;
mod floating;
mod group;
mod host_port;
mod keys;
mod metrics;
mod region;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use towline_types::limits;

pub use client_network::client_network;
pub use floating::{FloatingAddress, FloatingConfig};
pub use group::{GroupConfig, MemberConfig};
pub use host_port::{is_same_address, split, wildcard_port};
pub use metrics::MetricsConfig;
pub use region::{FirstRole, RecoveryConfig, RegionCiphers, RetryReporting, SyncConsistency};

/// Model of queues that `auto_define` makes, unless the rule names another.
pub const DEFAULT_LOCAL_MODEL: &str = "SYSTEM.DEFAULT.LOCAL.MODEL";

/// What the file may say; see docs/reference/config.md.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The queue manager itself.
    pub queue_manager: QueueManagerConfig,
    /// Where clients come in. Empty: one listener on the `--listen` address.
    pub listener: Vec<ListenerConfig>,
    /// Queues that are defined on first use.
    pub auto_define: Vec<AutoDefineConfig>,
    /// The recovery log.
    pub log: LogConfig,
    /// Bounds.
    pub limits: LimitsConfig,
    /// A data folder with several processes.
    pub shared: SharedConfig,
    /// Which clients may log in.
    pub users: UsersConfig,
    /// Where backups may be written.
    pub backup: BackupConfig,
    /// What is written to standard error.
    pub logging: LoggingConfig,
    /// Where figures can be scraped.
    pub metrics: MetricsConfig,
    /// The group of instances that this one is of; none: a single instance.
    pub group: Option<GroupConfig>,
}

/// `[queue_manager]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct QueueManagerConfig {
    /// DEADQ: where messages go that cannot stay; empty for none.
    pub deadq: String,
    /// MAXMSGL in bytes: no message may be longer, whatever its queue says.
    pub maxmsgl: u64,
    /// MAXUMSGS: messages in one unit of work.
    pub maxumsgs: u32,
    /// Bytes put in one unit of work, in memory and in the log.
    pub unit_bytes_max: u64,
    /// Age in seconds at which an open unit of work is rolled back.
    pub unit_age_max_s: u64,
    /// Bytes of non-persistent messages, and of what open units of work keep in memory.
    pub memory_bytes_max: u64,
    /// Bytes of memory for the indexes of all queues; what is beyond it is kept on pages.
    pub index_bytes_max: u64,
    /// IMGLOGLN: an image is taken after so many megabytes of log; 0 for never.
    pub imglogln: u64,
    /// IMGINTVL: an image is taken after so many minutes, if anything was logged; 0 for never.
    pub imgintvl: u64,
    /// Keep expired messages on the dead-letter queue rather than dropping them.
    pub expired_to_deadq: bool,
    /// Seconds between scans for expired messages.
    pub expiry_interval_s: u64,
}

/// `[[listener]]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// Address and port; port 0 picks a free one.
    #[serde(deserialize_with = "listen_address_of")]
    pub address: SocketAddr,
    /// PEM file with the certificate chain; turns TLS on.
    #[serde(default)]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key.
    #[serde(default)]
    pub private_key: Option<PathBuf>,
    /// PEM file with the authorities that issue accepted client certificates (SASL EXTERNAL).
    #[serde(default)]
    pub client_authorities: Option<PathBuf>,
    /// SASL mechanisms offered. Default: ANONYMOUS on loopback without users; else SCRAM-SHA-256
    /// and PLAIN (PLAIN off loopback only inside TLS), EXTERNAL with `client_authorities`.
    #[serde(default)]
    pub mechanisms: Option<Vec<String>>,
    /// Accept clients of other machines without TLS. Their messages can be read and forged on the
    /// way.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// Accept clients without a name from other machines, or beside users.
    #[serde(default)]
    pub allow_anonymous: bool,
}

/// `[[auto_define]]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AutoDefineConfig {
    /// Names that it is for: one name, or with `*` at its end all that begin so.
    pub pattern: String,
    /// The model queue that gives them its attributes.
    #[serde(default = "default_model")]
    pub model: String,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Bytes of one extent, fixed when the queue manager is made.
    pub extent_bytes: u64,
    /// Bytes that all extents together may take; 0: as much as the disk has.
    pub log_bytes_max: u64,
    /// Bytes kept for gets when puts are refused for lack of log space.
    pub reserve_bytes: u64,
    /// Bytes of memory for bodies that were lately written or read.
    pub cache_bytes: u64,
    /// Writes to the disk that may be under way at once.
    pub writes_in_flight_max: usize,
}

/// `[limits]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Connections at once.
    pub connections_max: usize,
    /// Connections at once from one address (loopback not counted).
    pub connections_per_address_max: usize,
    /// Bytes of memory that one connection may take, beside one message of the largest length that
    /// is on its way in.
    pub connection_memory_bytes_max: u64,
    /// Connections that have not logged in yet; more wait.
    pub logins_pending_max: usize,
    /// Those of one address, before it has logged in: each login allows it one more.
    pub logins_pending_per_address_max: usize,
    /// Seconds in which a client must have logged in.
    pub login_timeout_s: u64,
    /// Seconds of silence after which a client is dropped; offered as AMQP idle-time-out.
    pub idle_timeout_s: u64,
    /// Threads for connections; 0: half of the processors, at least one.
    pub io_threads: usize,
}

/// `[shared]`: what holds with `--standby`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct SharedConfig {
    /// Milliseconds that a lease lasts. The active instance renews it four times as often; a
    /// standby takes over when it has seen no renewal for a quarter longer.
    pub lease_ms: u32,
    /// Take over at once when the lock of the active instance is free, rather than when its lease
    /// has run out. Not for file systems that free locks of processes that live.
    pub takeover_by_lock: bool,
}

/// `[users]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct UsersConfig {
    /// File with one user a line: `name:SCRAM-SHA-256$iterations:salt$stored-key:server-key`
    /// (base64), as `towline user` writes it.
    pub file: Option<PathBuf>,
    /// Users that may administer over a network connection, once they are authenticated.
    pub administrators: Vec<String>,
    /// Group of the operating system; its members may use the local socket too.
    pub local_group: Option<String>,
}

/// `[backup]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct BackupConfig {
    /// Folders in which backups may be written that are asked for over a connection, or by a member
    /// of `users.local_group`. Absolute.
    pub folders: Vec<PathBuf>,
}

/// `[logging]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`, and levels of single modules
    /// (`info,module=debug`). The variable TOWLINE_LOG counts more.
    pub level: Option<String>,
}

impl Default for QueueManagerConfig {
    fn default() -> QueueManagerConfig {
        QueueManagerConfig {
            deadq: "DEV.DEAD.LETTER.QUEUE".into(),
            maxmsgl: limits::MESSAGE_BYTES_MAX,
            maxumsgs: limits::UNIT_MESSAGES_DEFAULT,
            unit_bytes_max: limits::UNIT_BYTES_DEFAULT,
            unit_age_max_s: limits::UNIT_AGE_DEFAULT.as_secs(),
            memory_bytes_max: 512 * 1024 * 1024,
            index_bytes_max: limits::INDEX_BYTES_DEFAULT,
            imglogln: 256,
            imgintvl: 60,
            expired_to_deadq: false,
            expiry_interval_s: 10,
        }
    }
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            extent_bytes: 64 * 1024 * 1024,
            log_bytes_max: 0,
            reserve_bytes: 16 * 1024 * 1024,
            cache_bytes: 64 * 1024 * 1024,
            writes_in_flight_max: 4,
        }
    }
}

impl Default for SharedConfig {
    fn default() -> SharedConfig {
        SharedConfig { lease_ms: 2_000, takeover_by_lock: true }
    }
}

impl SharedConfig {
    /// See `lease_ms`.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(u64::from(self.lease_ms))
    }
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            connections_max: 20_000,
            connections_per_address_max: 10_000,
            connection_memory_bytes_max: limits::CONNECTION_BYTES_DEFAULT,
            logins_pending_max: 512,
            logins_pending_per_address_max: 64,
            login_timeout_s: 10,
            idle_timeout_s: 60,
            io_threads: 0,
        }
    }
}

impl LimitsConfig {
    /// See `login_timeout_s`.
    #[must_use]
    pub fn login_timeout(&self) -> Duration {
        Duration::from_secs(self.login_timeout_s)
    }

    /// See `idle_timeout_s`.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s)
    }
}

fn listen_address_of<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    listen_address(&text).map_err(serde::de::Error::custom)
}

/// Reads where a listener is to be: ADDRESS:PORT, `localhost` for the loopback address.
///
/// # Errors
/// What is wrong with it, with one that would be right.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let why = match text.rsplit_once(':') {
        _ if text.parse::<u16>().is_ok() => {
            return Err(format!(
                "'{text}' is only a port: use 127.0.0.1:{text}, or 0.0.0.0:{text} for all addresses"
            ));
        }
        _ if text.parse::<std::net::IpAddr>().is_ok() => "it has no port",
        None => "it has no port",
        Some((_, port)) if port.parse::<u16>().is_err() => "its port is not a number up to 65535",
        Some(("localhost", port)) => return listen_address(&format!("127.0.0.1:{port}")),
        Some(_) => "its host is not a numeric IP address",
    };
    Err(format!(
        "'{text}' is not a listen address, {why}: use 127.0.0.1:5672, [::1]:5672, or 0.0.0.0:5672 for \
         all addresses"
    ))
}

fn default_model() -> String {
    DEFAULT_LOCAL_MODEL.to_owned()
}

/// Why a configuration was refused, in one line that names the line of the file.
#[derive(Debug)]
pub struct ConfigError(String);

impl From<String> for ConfigError {
    fn from(why: String) -> ConfigError {
        ConfigError(why)
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML, has an unknown key, or a value out of its range.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError(format!("it cannot be read: {error}")))?;
        Config::parse(&text)
    }

    /// Checks the text of a configuration file.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        keys::check(text).map_err(ConfigError)?;
        let mut config: Config =
            toml::from_str(text).map_err(|error| ConfigError(keys::place(text, &error)))?;
        if let Some(group) = &mut config.group {
            group.order_members();
        }
        config.check().map_err(ConfigError)?;
        Ok(config)
    }

    /// Checks ranges and what must go together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let (manager, limits) = (&self.queue_manager, &self.limits);
        within("queue_manager.maxmsgl", manager.maxmsgl, 1, limits::MESSAGE_BYTES_MAX)?;
        within("queue_manager.maxumsgs", u64::from(manager.maxumsgs), 1, 999_999_999)?;
        within("queue_manager.unit_bytes_max", manager.unit_bytes_max, 1, u64::MAX)?;
        within("queue_manager.unit_age_max_s", manager.unit_age_max_s, 1, 7 * 86_400)?;
        within("queue_manager.expiry_interval_s", manager.expiry_interval_s, 1, 86_400)?;
        within("queue_manager.imglogln", manager.imglogln, 0, 1 << 20)?;
        within("queue_manager.imgintvl", manager.imgintvl, 0, 525_600)?;
        self.log.check()?;
        within("limits.connections_max", limits.connections_max as u64, 1, 1_000_000)?;
        let each = limits.connections_per_address_max as u64;
        within("limits.connections_per_address_max", each, 1, 1_000_000)?;
        let each = limits.connection_memory_bytes_max;
        within("limits.connection_memory_bytes_max", each, 1 << 20, 1 << 40)?;
        within("limits.logins_pending_max", limits.logins_pending_max as u64, 1, 1_000_000)?;
        let each = limits.logins_pending_per_address_max as u64;
        within("limits.logins_pending_per_address_max", each, 1, 1_000_000)?;
        within("limits.login_timeout_s", limits.login_timeout_s, 1, 600)?;
        within("limits.idle_timeout_s", limits.idle_timeout_s, 1, 86_400)?;
        within("limits.io_threads", limits.io_threads as u64, 0, 64)?;
        within("shared.lease_ms", u64::from(self.shared.lease_ms), 200, 600_000)?;
        for rule in &self.auto_define {
            if rule.pattern.strip_suffix('*').unwrap_or(&rule.pattern).contains('*') {
                return Err(format!(
                    "auto_define.pattern = '{}': * is allowed only at its end",
                    rule.pattern
                ));
            }
        }
        for folder in &self.backup.folders {
            if !folder.is_absolute() {
                return Err(format!("backup.folders: {}: not an absolute path", folder.display()));
            }
        }
        if let Some(level) = &self.logging.level {
            towline_logging::level(level)
                .map_err(|why| format!("logging.level = '{level}': {why}"))?;
        }
        let recovery = self.group.as_ref().and_then(|group| group.recovery.as_ref());
        self.metrics.check(recovery.is_some())?;
        if let Some(group) = &self.group {
            group.check()?;
            if let Some(recovery) = &group.recovery {
                recovery.check_log(&self.log)?;
            }
        }
        for (at, listener) in self.listener.iter().enumerate() {
            listener.check()?;
            let address = listener.address;
            let before = self.listener.iter().take(at).any(|other| other.address == address);
            if before && address.port() != 0 {
                return Err(format!("listener {address} is given twice"));
            }
        }
        Ok(())
    }
}

/// An extent is a whole number of the log's blocks (`BLOCK_BYTES` of its format).
pub const LOG_BLOCK_BYTES: u64 = 4_096;

impl LogConfig {
    fn check(&self) -> Result<(), String> {
        within("log.extent_bytes", self.extent_bytes, 4 << 20, 1 << 30)?;
        if !self.extent_bytes.is_multiple_of(LOG_BLOCK_BYTES) {
            return Err(format!("log.extent_bytes must be a multiple of {LOG_BLOCK_BYTES}"));
        }
        within("log.reserve_bytes", self.reserve_bytes, 1 << 20, 1 << 40)?;
        if self.log_bytes_max != 0 {
            // One extent in use, one ready behind it, one being given back, and the reserve.
            let least = 4 * self.extent_bytes + self.reserve_bytes;
            within("log.log_bytes_max", self.log_bytes_max, least, u64::MAX).map_err(|why| {
                format!("{why} (four extents and the reserve), or 0 for all space of the disk")
            })?;
        }
        within("log.writes_in_flight_max", self.writes_in_flight_max as u64, 1, 16)
    }
}

impl ListenerConfig {
    /// A plain listener, as `--listen` makes it.
    #[must_use]
    pub fn plain(address: SocketAddr) -> ListenerConfig {
        ListenerConfig {
            address,
            certificate: None,
            private_key: None,
            client_authorities: None,
            mechanisms: None,
            allow_plaintext: false,
            allow_anonymous: false,
        }
    }

    /// Checks what a listener must have.
    ///
    /// # Errors
    /// A text that says what is missing and what to do.
    pub fn check(&self) -> Result<(), String> {
        let address = self.address;
        if self.certificate.is_some() != self.private_key.is_some() {
            return Err(format!("listener {address}: certificate and private_key go together"));
        }
        if self.client_authorities.is_some() && self.certificate.is_none() {
            return Err(format!("listener {address}: client_authorities needs certificate"));
        }
        if !address.ip().is_loopback() && self.certificate.is_none() && !self.allow_plaintext {
            return Err(format!(
                "listener {address} is not on loopback and has no TLS: set certificate and \
                 private_key, or accept clients of other machines without TLS, whose messages can be \
                 read and forged on the way: allow_plaintext = true (--allow-plaintext)"
            ));
        }
        Ok(())
    }
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    match most {
        u64::MAX => Err(format!("{name} = {value}: must be at least {least}")),
        most => Err(format!("{name} = {value}: must be {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_suggestion() {
        let text = "[queue_manager]\ndeadq = \"X\"\nmaxmsg = 5\n";
        let refusal = refusal(text);
        assert!(refusal.contains("line 3"), "{refusal}");
        assert!(refusal.contains("did you mean 'maxmsgl'"), "{refusal}");
    }

    #[test]
    fn an_unknown_table_is_refused_with_line_and_suggestion() {
        let refusal = refusal("\n[limit]\n");
        assert!(refusal.contains("line 2") && refusal.contains("'limits'"), "{refusal}");
    }

    #[test]
    fn a_value_out_of_range_names_the_range() {
        assert!(refusal("[queue_manager]\nmaxmsgl = 0").contains("must be 1 to 104857600"));
    }

    #[test]
    fn what_is_no_toml_or_of_the_wrong_type_is_reported_in_one_line_with_its_position() {
        for (text, line) in [
            ("[limits]\nlogin_timeout_s = \"soon\"\n", "line 2: "),
            ("\n\n[limits\n", "line 3: "),
            ("[queue_manager]\nmaxmsgl = -1\n", "line 2: "),
            ("[[listener]]\naddress = \"nowhere\"\n", "line 2: "),
        ] {
            let refusal = refusal(text);
            assert!(refusal.starts_with(line), "{refusal}");
            assert_eq!(refusal.lines().count(), 1, "{refusal}");
        }
    }

    #[test]
    fn an_address_to_listen_at_is_refused_with_one_that_would_be_right() {
        for (text, said) in [
            ("5673", "use 127.0.0.1:5673"),
            ("127.0.0.1", "it has no port: use 127.0.0.1:5672"),
            ("::1", "it has no port"),
            ("localhost", "it has no port"),
            ("127.0.0.1:70000", "its port is not a number up to 65535"),
            ("broker.example:5672", "not a numeric IP address: use 127.0.0.1:5672"),
        ] {
            let why = listen_address(text).unwrap_err();
            assert!(why.contains(said), "{why}");
            let refusal = refusal(&format!("[[listener]]\naddress = \"{text}\""));
            assert!(refusal.starts_with("line 2: ") && refusal.contains(said), "{refusal}");
        }
        assert_eq!(listen_address("localhost:7").unwrap().to_string(), "127.0.0.1:7");
        assert_eq!(listen_address("[::1]:7").unwrap().to_string(), "[::1]:7");
    }

    #[test]
    fn the_same_listener_twice_and_a_log_that_is_too_small_are_refused_in_words() {
        let twice = "[[listener]]\naddress = \"127.0.0.1:5672\"\n".repeat(2);
        assert!(refusal(&twice).contains("listener 127.0.0.1:5672 is given twice"));
        assert!(Config::parse(&twice.replace(":5672", ":0")).is_ok());
        let small = refusal("[log]\nlog_bytes_max = 1000");
        assert!(small.contains("must be at least 285212672 (four extents"), "{small}");
    }

    #[test]
    fn a_pattern_has_its_star_at_the_end() {
        let of = |pattern: &str| format!("[[auto_define]]\npattern = \"{pattern}\"");
        assert!(refusal(&of("A*B")).contains("only at its end"));
        assert!(Config::parse(&of("A.*")).is_ok() && Config::parse(&of("*")).is_ok());
    }

    #[test]
    fn a_listener_off_loopback_needs_tls_or_plain_words() {
        let refusal = refusal("[[listener]]\naddress = \"0.0.0.0:5672\"");
        assert!(refusal.contains("allow_plaintext"), "{refusal}");
        let text = "[[listener]]\naddress = \"0.0.0.0:5672\"\nallow_plaintext = true";
        assert!(Config::parse(text).is_ok());
    }
}
