//! `[group]`: the instances of one queue manager, how they find, trust and watch each other.
//!
//! Not here: what a certificate must say (`link::identity`), what the times mean for elections
//! (`group`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::floating::FloatingConfig;
use super::host_port::{check_name, is_same_address, split, wildcard_port};
use super::region::{FirstRole, RecoveryConfig, RegionCiphers, check_address};
use super::within;
use towline_types::limits;

/// Instances of a group: two of three are the quorum, and one of one. Two would both be needed, so
/// that they fail more often than one; more than three cost each commit more than they save.
const MEMBERS: [usize; 2] = [1, 3];
/// A day.
const PREFERRED_DELAY_MS_MAX: u64 = 86_400_000;

/// `[group]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// Name of the group.
    pub name: String,
    /// Which member this instance is.
    pub instance: String,
    /// All instances, this one too. In the file in any order; here by name, so that each has the
    /// same position everywhere.
    pub member: Vec<MemberConfig>,
    /// PEM file with this instance's certificate chain.
    pub certificate: PathBuf,
    /// PEM file with its private key.
    pub private_key: PathBuf,
    /// PEM file with the authorities that issue the members' certificates.
    pub authorities: PathBuf,
    /// HeartbeatInterval: milliseconds between signs of life.
    #[serde(default = "heartbeat_interval_ms")]
    pub heartbeat_interval_ms: u64,
    /// HeartbeatTimeout: milliseconds of silence after which an instance counts as gone.
    #[serde(default = "heartbeat_timeout_ms")]
    pub heartbeat_timeout_ms: u64,
    /// RetryInterval: milliseconds before a link is tried again; doubles up to a second.
    #[serde(default = "retry_interval_ms")]
    pub retry_interval_ms: u64,
    /// CompressionThreshold: bytes from which on what goes over a link is compressed; 0: never.
    #[serde(default = "compression_threshold")]
    pub compression_threshold: u64,
    /// Name of the instance that shall be active whenever it can; empty: none is preferred.
    #[serde(default)]
    pub preferred_location: String,
    /// Milliseconds that the preferred instance must be in sync before it is given the active part.
    #[serde(default = "preferred_delay_ms")]
    pub preferred_delay_ms: u64,
    /// The address that the active instance holds; none: there is no such thing.
    #[serde(default)]
    pub floating: Option<FloatingConfig>,
    /// GroupRole: what the group begins as while it has no log.
    #[serde(default)]
    pub role: FirstRole,
    /// GroupCertificateLabel: PEM file with the certificate chain that this instance shows to the
    /// other region; none: `certificate`.
    #[serde(default)]
    pub region_certificate: Option<PathBuf>,
    /// PEM file with its private key; goes with `region_certificate`.
    #[serde(default)]
    pub region_private_key: Option<PathBuf>,
    /// PEM file with the authorities that issue the certificates of the other group's instances;
    /// none: `authorities`.
    #[serde(default)]
    pub region_authorities: Option<PathBuf>,
    /// GroupCipherSpec: which cipher suites the link to the other region may use.
    #[serde(default)]
    pub region_ciphers: RegionCiphers,
    /// NativeHARecoveryGroup: the group of the other region; none: there is no other region.
    #[serde(default)]
    pub recovery: Option<RecoveryConfig>,
}

impl GroupConfig {
    /// With its files as a process sees them that was started in `folder`.
    #[must_use]
    pub fn seen_from(mut self, folder: &Path) -> GroupConfig {
        let own = [&mut self.certificate, &mut self.private_key, &mut self.authorities];
        let of_region = [
            &mut self.region_certificate,
            &mut self.region_private_key,
            &mut self.region_authorities,
        ];
        for file in own.into_iter().chain(of_region.into_iter().flatten()) {
            *file = folder.join(&*file);
        }
        self
    }
}

/// `[[group.member]]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MemberConfig {
    /// Name of the instance.
    pub name: String,
    /// Host and port where its links come in.
    pub address: String,
    /// Host and port at which clients find it, one for each `[[listener]]` in order, sent to
    /// clients that ask to be redirected; empty or left out: the listener's own address.
    #[serde(default)]
    pub clients: Vec<String>,
    /// GroupLocalAddress: host and port where the link of the other region comes in at this
    /// instance.
    #[serde(default)]
    pub region_address: Option<String>,
}

fn heartbeat_interval_ms() -> u64 {
    250
}

fn heartbeat_timeout_ms() -> u64 {
    2_000
}

fn retry_interval_ms() -> u64 {
    50
}

fn compression_threshold() -> u64 {
    64
}

fn preferred_delay_ms() -> u64 {
    30_000
}

impl GroupConfig {
    /// See `heartbeat_interval_ms`.
    #[must_use]
    pub fn heartbeat_interval(&self) -> Duration {
        Duration::from_millis(self.heartbeat_interval_ms)
    }

    /// See `heartbeat_timeout_ms`.
    #[must_use]
    pub fn heartbeat_timeout(&self) -> Duration {
        Duration::from_millis(self.heartbeat_timeout_ms)
    }

    /// See `retry_interval_ms`.
    #[must_use]
    pub fn retry_interval(&self) -> Duration {
        Duration::from_millis(self.retry_interval_ms)
    }

    /// See `preferred_delay_ms`.
    #[must_use]
    pub fn preferred_delay(&self) -> Duration {
        Duration::from_millis(self.preferred_delay_ms)
    }

    /// Position of the instance `name` among the members.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.member.iter().position(|member| member.name == name)
    }

    /// Orders the members by name: numbers in consensus come from that order.
    pub(super) fn order_members(&mut self) {
        self.member.sort_by(|one, other| one.name.cmp(&other.name));
    }

    /// The position of this instance, and its entry.
    ///
    /// # Errors
    /// When it is none of the members; what to do is in the text.
    pub fn own(&self) -> Result<(usize, &MemberConfig), String> {
        let own = self.member.iter().enumerate().find(|(_, member)| member.name == self.instance);
        own.ok_or_else(|| {
            let names: Vec<&str> = self.member.iter().map(|member| &*member.name).collect();
            let (instance, names) = (&self.instance, names.join("', '"));
            format!(
                "group.instance = '{instance}' is not a [[group.member]]: it must say which of '{names}' \
                 runs with this file"
            )
        })
    }

    /// Checks ranges, and that the members are one, or three different ones.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        check_name("group.name", &self.name)?;
        if !MEMBERS.contains(&self.member.len()) {
            let [one, three] = MEMBERS;
            return Err(format!(
                "[[group.member]] is given {} times; a group has {three} instances, this one \
                 included, or {one}: this one alone",
                self.member.len()
            ));
        }
        for (at, member) in self.member.iter().enumerate() {
            check_name("group.member.name", &member.name)?;
            host_and_port("address", member, &member.address)?;
            for clients in member.clients.iter().filter(|clients| !clients.is_empty()) {
                host_and_port("clients", member, clients)?;
            }
            let before = self.member.get(..at).unwrap_or_default();
            if before.iter().any(|other| other.name == member.name) {
                return Err(format!("group.member.name = '{}' is given twice", member.name));
            }
            if before.iter().any(|other| other.address == member.address) {
                return Err(format!("group.member.address = '{}' is given twice", member.address));
            }
        }
        self.own()?;
        within("group.heartbeat_interval_ms", self.heartbeat_interval_ms, 10, 10_000)?;
        let least = self.heartbeat_interval_ms.saturating_mul(3);
        within("group.heartbeat_timeout_ms", self.heartbeat_timeout_ms, least, 60_000)?;
        within("group.retry_interval_ms", self.retry_interval_ms, 1, 1_000)?;
        let threshold = self.compression_threshold;
        within("group.compression_threshold", threshold, 0, limits::COMPRESSION_THRESHOLD_MAX)?;
        let preferred = &self.preferred_location;
        if !preferred.is_empty() && self.position(preferred).is_none() {
            return Err(format!(
                "group.preferred_location = '{preferred}' is not a [[group.member]]"
            ));
        }
        within("group.preferred_delay_ms", self.preferred_delay_ms, 0, PREFERRED_DELAY_MS_MAX)?;
        self.floating.as_ref().map_or(Ok(()), FloatingConfig::check)?;
        self.check_region()
    }

    /// Checks what is about the other region.
    fn check_region(&self) -> Result<(), String> {
        if self.region_certificate.is_some() != self.region_private_key.is_some() {
            return Err("group.region_certificate and region_private_key go together".into());
        }
        let given = self.check_region_addresses()?;
        let Some(recovery) = &self.recovery else {
            return match self.role {
                FirstRole::Live => Ok(()),
                FirstRole::Recovery => Err("group.role = 'recovery' needs [group.recovery], \
                                            which names the group whose log this one receives"
                    .into()),
            };
        };
        if !given {
            return Err(
                "[group.recovery] needs group.member.region_address of each member: where \
                        the link of the other region comes in"
                    .into(),
            );
        }
        let of_links = self.member.iter().map(|member| member.address.as_str());
        let of_region = self.member.iter().filter_map(|member| member.region_address.as_deref());
        recovery.check(&self.name, &of_links.chain(of_region).collect::<Vec<_>>())
    }

    /// Checks the addresses for the other region; whether there are any.
    fn check_region_addresses(&self) -> Result<bool, String> {
        for (at, member) in self.member.iter().enumerate() {
            let Some(address) = &member.region_address else { continue };
            let key = format!("group.member.region_address of {}", member.name);
            check_address(&key, address)?;
            let before = self.member.get(..at).unwrap_or_default();
            let is_taken = |other: &MemberConfig| {
                let other = other.region_address.as_deref();
                other.is_some_and(|other| is_same_address(other, address))
            };
            // All addresses of each machine: those of another machine.
            if wildcard_port(address).is_none() && before.iter().any(is_taken) {
                return Err(format!("{key} = '{address}' is given twice"));
            }
            if self.member.iter().any(|other| is_same_address(&other.address, address)) {
                return Err(format!(
                    "{key} = '{address}' is the address of links inside the group: the other region \
                     needs another port"
                ));
            }
        }
        let missing = self.member.iter().find(|member| member.region_address.is_none());
        match missing {
            None => Ok(true),
            Some(_) if self.member.iter().all(|member| member.region_address.is_none()) => {
                Ok(false)
            }
            Some(MemberConfig { name, .. }) => Err(format!(
                "group.member.region_address of {name} is missing: it is given for all members or \
                 for none"
            )),
        }
    }
}

fn host_and_port(key: &str, member: &MemberConfig, value: &str) -> Result<(), String> {
    if split(value).is_none() {
        let name = &member.name;
        return Err(format!("group.member.{key} = '{value}' of {name}: must be host:port"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const PAPERS: &str = "certificate = \"a.pem\"\nprivate_key = \"a-key.pem\"\n\
                          authorities = \"authority.pem\"\n";

    fn text(keys: &str, members: &[(&str, &str)]) -> String {
        let own = if keys.starts_with("instance") { "" } else { "instance = \"a\"\n" };
        let mut text = format!("[group]\nname = \"G\"\n{own}{PAPERS}{keys}\n");
        for (name, address) in members {
            text.push_str(&format!(
                "[[group.member]]\nname = \"{name}\"\naddress = \"{address}\"\n"
            ));
        }
        text
    }

    /// With what the clients of the last member get.
    fn clients(value: &str) -> String {
        format!("{}clients = {value}\n", text("", THREE))
    }

    const THREE: &[(&str, &str)] = &[("a", "h1:1"), ("b", "h2:1"), ("c", "[::1]:1")];

    #[test]
    fn a_group_has_its_defaults() {
        let config = Config::parse(&text("instance = \"b\"", THREE)).unwrap();
        let group = config.group.unwrap();
        assert_eq!(group.position(&group.instance), Some(1));
        assert_eq!(group.heartbeat_interval().as_millis(), 250);
        assert_eq!(group.heartbeat_timeout().as_millis(), 2_000);
        assert_eq!((group.retry_interval_ms, group.compression_threshold), (50, 64));
        assert_eq!((group.preferred_location.as_str(), group.preferred_delay_ms), ("", 30_000));
        assert_eq!((group.floating, group.member[2].clients.len()), (None, 0));
        let group = Config::parse(&clients("[\"\", \"h:1\"]")).unwrap().group.unwrap();
        assert_eq!(group.member[2].clients, ["", "h:1"]);
    }

    #[test]
    fn a_group_that_cannot_work_is_refused() {
        for (text, why) in [
            (text("", &THREE[..2]), "given 2 times; a group has 3 instances"),
            (text("", &[THREE, &[("d", "h4:1")]].concat()), "given 4 times; a group has 3"),
            (text("instance = \"b\"", &THREE[..1]), "which of 'a' runs with this file"),
            (text("preferred_location = \"b\"", &THREE[..1]), "is not a [[group.member]]"),
            (text("instance = \"d\"", THREE), "which of 'a', 'b', 'c' runs with this file"),
            (text("instance = \"\"", THREE), "which of 'a', 'b', 'c' runs with this file"),
            (text("", THREE).replace("instance = \"a\"\n", ""), "missing field `instance`"),
            (text("", &[("a", "h:1"), ("a", "h:2"), ("c", "h:3")]), "is given twice"),
            (text("", &[("a", "h:1"), ("b", "h:1"), ("c", "h:3")]), "is given twice"),
            (text("", &[("a", "h"), ("b", "h:2"), ("c", "h:3")]), "must be host:port"),
            (text("", &[("a", "h:0"), ("b", "h:2"), ("c", "h:3")]), "must be host:port"),
            (text("", &[("a b", "h:1"), ("b", "h:2"), ("c", "h:3")]), "letters, digits"),
            (clients("[\"nowhere\"]"), "group.member.clients = 'nowhere' of c: must be host:port"),
            (clients("\"h:1\""), "expected a sequence"),
            (text("heartbeat_timeout_ms = 749", THREE), "must be 750 to 60000"),
            (text("retry_interval_ms = 0", THREE), "must be 1 to 1000"),
            (text("heartbeat_interval = 1", THREE), "did you mean"),
            (text("preferred_location = \"d\"", THREE), "is not a [[group.member]]"),
            (text("preferred_delay_ms = 86400001", THREE), "must be 0 to 86400000"),
            ("[group]\nname = \"G\"".to_owned(), "missing field"),
        ] {
            let refusal = Config::parse(&text).unwrap_err().to_string();
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    #[test]
    fn a_group_may_be_one_instance() {
        let config = Config::parse(&text("preferred_location = \"a\"", &THREE[..1])).unwrap();
        let group = config.group.unwrap();
        assert_eq!((group.member.len(), group.own().unwrap().0), (1, 0));
    }

    #[test]
    fn the_order_in_the_file_gives_no_member_another_position() {
        let [a, b, c] = THREE else { panic!("three") };
        let read = |members: &[(&str, &str)]| {
            Config::parse(&text("instance = \"b\"", members)).unwrap().group.unwrap()
        };
        let by_name = read(THREE);
        for order in [[*c, *a, *b], [*b, *a, *c], [*c, *b, *a]] {
            let group = read(&order);
            assert_eq!(group.member, by_name.member);
            assert_eq!(group.own().unwrap(), (1, &by_name.member[1]));
        }
    }

    #[test]
    fn an_unknown_key_of_a_member_is_refused_with_line_and_suggestion() {
        let text = text("", THREE).replace("address = \"h2:1\"", "adress = \"h2:1\"");
        let refusal = Config::parse(&text).unwrap_err().to_string();
        assert!(refusal.contains("line 13: unknown key 'adress'"), "{refusal}");
        assert!(refusal.contains("[group.member]; did you mean 'address'?"), "{refusal}");
    }
}
