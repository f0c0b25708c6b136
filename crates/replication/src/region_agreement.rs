//! What two groups say of their configurations when they connect, and its bytes. All
//! numbers are little-endian.
//!
//! ```text
//! fields, until the bytes end; of each: tag 1, length 2, content
//!    1  name of the queue manager          2  name of the group
//!    3  name of the other group, as configured
//!    4  version of the program, as text
//!    5  format level in force 1, newest one that the program reads 1
//!    6  log.extent_bytes as the log has it 8, log.log_bytes_max 8
//!    7  group.role, as text
//!    8  group.recovery.enabled: 0 or 1
//!    9  the group's role at present: 0 recovery, 1 live, 2 not known
//!   10  group.region_ciphers, as text
//!   11  region addresses of its instances: count 1, texts
//!   12  group.recovery.addresses: the same
//!   13  addresses of clients, one list for each instance: count 1, lists as in 11
//!   14  group.recovery.clients: the same
//!   15  values that should be equal: count 1, of each: key, value
//!   16  names of its instances, in the order of 13: as in 11
//! a text: length 2, UTF-8
//! ```
//!
//! A field with a tag that is not known, bytes behind what is known of a field, and entries beyond
//! what a list can have here are skipped: a later version says more. Of the fields above each must
//! be there once; 16 may be missing.
//!
//! Not here: how it travels, as a part of a region's hello; what follows from differences
//! (`region_differences`). Invariant: the bytes are never more than
//! [`limits::REGION_AGREEMENT_BYTES_MAX`], whatever the configuration.

use std::fmt;

use bytes::{Buf, BufMut};
use towline_config::{Config, GroupConfig, RecoveryConfig};
use towline_types::{FormatLevels, fitting, limits, program_version};

use crate::agreement::{LISTENER_SCHEMES, listener_schemes, seen_by_clients};

const TAGS: std::ops::RangeInclusive<u8> = 1..=16;
/// Values that should be equal: more than there are.
const VALUES_MAX: usize = 64;
/// Longest of these values that is said. Names of queues are the longest.
const VALUE_BYTES_MAX: usize = limits::QUEUE_NAME_BYTES_MAX;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionAgreement {
    /// Name of the queue manager.
    pub queue_manager: String,
    /// Name of the group that says it.
    pub group: String,
    /// Name of the other group, as this one has it in its configuration.
    pub other_group: String,
    /// Version of the program.
    pub version: String,
    /// Format levels of its log.
    pub levels: FormatLevels,
    /// Bytes of an extent of its log.
    pub extent_bytes: u64,
    /// Bytes that its log may take; 0: as much as the disk has.
    pub log_bytes_max: u64,
    /// What the group begins as: `live` or `recovery`.
    pub first_role: String,
    /// Whether it sends its log to the other group while it is live.
    pub enabled: bool,
    /// Whether it is live at present; `None`: that is not known yet.
    pub is_live: Option<bool>,
    /// Cipher suites of the link: `any`, or the name of one.
    pub ciphers: String,
    /// Where the link comes in at its instances, by name of the instance: host and port.
    pub region_addresses: Vec<String>,
    /// Where it looks for the instances of the other group.
    pub addresses: Vec<String>,
    /// Where clients find its instances: one list for each of them, one entry for each listener.
    pub own_clients: Vec<Vec<String>>,
    /// Names of its instances, in that order; none: it does not say.
    pub instances: Vec<String>,
    /// Where, as it says, clients find the other group's instances.
    pub clients: Vec<Vec<String>>,
    /// Keys whose values should be equal, with the values as text.
    pub values: Vec<(String, String)>,
}

/// What stands in no configuration, or changes while the process runs.
#[derive(Clone, Debug)]
pub struct RegionMoment<'a> {
    /// Name of the queue manager.
    pub queue_manager: &'a str,
    /// Format levels of the log.
    pub levels: FormatLevels,
    /// Bytes of an extent, as the log has it.
    pub extent_bytes: u64,
    /// Whether the group is live; `None`: its log does not say it yet.
    pub is_live: Option<bool>,
}

/// Why bytes are no agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionAgreementError {
    /// They are more than [`limits::REGION_AGREEMENT_BYTES_MAX`].
    TooLong,
    /// They end within a field, or the field with this tag ends early.
    Cut(u8),
    /// A text in the field with this tag is not UTF-8.
    NotText(u8),
    /// The field with this tag is missing.
    Missing(u8),
    /// The field with this tag is there twice.
    Twice(u8),
}

impl fmt::Display for RegionAgreementError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, tag) = match self {
            RegionAgreementError::TooLong => {
                return out.write_str("what a region says of its configuration is too long");
            }
            RegionAgreementError::Cut(tag) => ("ends early", tag),
            RegionAgreementError::NotText(tag) => ("has a text that is not UTF-8", tag),
            RegionAgreementError::Missing(tag) => ("is missing", tag),
            RegionAgreementError::Twice(tag) => ("is there twice", tag),
        };
        write!(out, "field {tag} of what a region says of its configuration {why}")
    }
}

impl std::error::Error for RegionAgreementError {}

impl RegionAgreement {
    /// Whether replies of this group, while it is live, wait for what the other one reports.
    #[must_use]
    pub fn awaits_reports(&self) -> bool {
        let waits = |(key, value): &(String, String)| {
            key == "group.recovery.sync_replication" && value == "true"
        };
        self.values.iter().any(waits)
    }

    /// That of an instance with this configuration; `recovery` is the table of `group`.
    #[must_use]
    pub fn of(
        config: &Config,
        group: &GroupConfig,
        recovery: &RecoveryConfig,
        moment: &RegionMoment<'_>,
    ) -> RegionAgreement {
        let shared = recovery.shared_values().into_iter();
        let mut values: Vec<(String, String)> =
            shared.map(|(key, value)| (format!("group.recovery.{key}"), value)).collect();
        let behind = recovery.log_bytes_behind(&config.log);
        values.push(("group.recovery.log_bytes_behind_max".into(), behind.to_string()));
        values.push(("log.reserve_bytes".into(), config.log.reserve_bytes.to_string()));
        let of_clients = seen_by_clients(config).into_iter();
        values.extend(of_clients.map(|(key, value)| (key.to_owned(), value)));
        values.push((LISTENER_SCHEMES.into(), listener_schemes(&config.listener).join(" ")));
        let region_addresses =
            group.member.iter().filter_map(|member| member.region_address.clone());
        let own_clients = group.member.iter().map(|member| member.clients.clone());
        RegionAgreement {
            queue_manager: moment.queue_manager.to_owned(),
            group: group.name.clone(),
            other_group: recovery.name.clone(),
            version: program_version().to_owned(),
            levels: moment.levels,
            extent_bytes: moment.extent_bytes,
            log_bytes_max: config.log.log_bytes_max,
            first_role: group.role.name().to_owned(),
            enabled: recovery.enabled,
            is_live: moment.is_live,
            ciphers: group.region_ciphers.name().to_owned(),
            region_addresses: region_addresses.collect(),
            addresses: recovery.addresses.clone(),
            own_clients: own_clients.collect(),
            instances: group.member.iter().map(|member| member.name.clone()).collect(),
            clients: recovery.clients.clone(),
            values,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2_048);
        let mut field = |tag: u8, content: &[u8]| {
            bytes.put_u8(tag);
            bytes.put_u16_le(fitting(content.len()));
            bytes.put_slice(content);
        };
        field(1, value(&self.queue_manager).as_bytes());
        field(2, value(&self.group).as_bytes());
        field(3, value(&self.other_group).as_bytes());
        field(4, value(&self.version).as_bytes());
        field(5, &[self.levels.in_force, self.levels.read]);
        let numbers = [self.extent_bytes, self.log_bytes_max];
        field(6, &numbers.map(u64::to_le_bytes).concat());
        field(7, value(&self.first_role).as_bytes());
        field(8, &[u8::from(self.enabled)]);
        field(9, &[self.is_live.map_or(2, u8::from)]);
        field(10, value(&self.ciphers).as_bytes());
        field(11, &list(&self.region_addresses, limits::REGION_ADDRESSES_MAX));
        field(12, &list(&self.addresses, limits::REGION_ADDRESSES_MAX));
        field(13, &lists(&self.own_clients));
        field(14, &lists(&self.clients));
        let values = self.values.get(..VALUES_MAX).unwrap_or(&self.values);
        let mut content = vec![fitting(values.len())];
        for (key, of_key) in values {
            put_text(&mut content, value(key));
            put_text(&mut content, value(of_key));
        }
        field(15, &content);
        field(16, &list(&self.instances, limits::REGION_ADDRESSES_MAX));
        assert!(bytes.len() <= limits::REGION_AGREEMENT_BYTES_MAX, "{} bytes", bytes.len());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// Why the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<RegionAgreement, RegionAgreementError> {
        let fields = AgreementFields::of(bytes)?;
        let byte = |bytes: &[u8], tag| bytes.first().copied().ok_or(RegionAgreementError::Cut(tag));
        let levels = fields.get(5)?;
        let mut numbers = fields.get(6)?;
        let mut number = || numbers.try_get_u64_le().map_err(|_| RegionAgreementError::Cut(6));
        Ok(RegionAgreement {
            queue_manager: fields.text(1)?,
            group: fields.text(2)?,
            other_group: fields.text(3)?,
            version: fields.text(4)?,
            levels: FormatLevels {
                in_force: byte(levels, 5)?,
                read: byte(levels.get(1..).unwrap_or_default(), 5)?,
            },
            extent_bytes: number()?,
            log_bytes_max: number()?,
            first_role: fields.text(7)?,
            enabled: byte(fields.get(8)?, 8)? != 0,
            is_live: match byte(fields.get(9)?, 9)? {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
            ciphers: fields.text(10)?,
            region_addresses: texts(&mut fields.get(11)?, limits::REGION_ADDRESSES_MAX, 11)?,
            addresses: texts(&mut fields.get(12)?, limits::REGION_ADDRESSES_MAX, 12)?,
            own_clients: text_lists(fields.get(13)?, 13)?,
            instances: match fields.get(16) {
                Ok(mut bytes) => texts(&mut bytes, limits::REGION_ADDRESSES_MAX, 16)?,
                Err(_) => Vec::new(),
            },
            clients: text_lists(fields.get(14)?, 14)?,
            values: pairs(fields.get(15)?, 15)?,
        })
    }
}

/// The contents of the fields that are known.
struct AgreementFields<'a> {
    contents: [Option<&'a [u8]>; 17],
}

impl<'a> AgreementFields<'a> {
    fn of(mut bytes: &'a [u8]) -> Result<AgreementFields<'a>, RegionAgreementError> {
        if bytes.len() > limits::REGION_AGREEMENT_BYTES_MAX {
            return Err(RegionAgreementError::TooLong);
        }
        let mut contents = [None; 17];
        while let Ok(tag) = bytes.try_get_u8() {
            let cut = RegionAgreementError::Cut(tag);
            let length = usize::from(bytes.try_get_u16_le().map_err(|_| cut)?);
            let (content, rest) = bytes.split_at_checked(length).ok_or(cut)?;
            bytes = rest;
            if !TAGS.contains(&tag) {
                continue;
            }
            if let Some(known) = contents.get_mut(usize::from(tag))
                && known.replace(content).is_some()
            {
                return Err(RegionAgreementError::Twice(tag));
            }
        }
        Ok(AgreementFields { contents })
    }

    fn get(&self, tag: u8) -> Result<&'a [u8], RegionAgreementError> {
        let content = self.contents.get(usize::from(tag)).copied().flatten();
        content.ok_or(RegionAgreementError::Missing(tag))
    }

    fn text(&self, tag: u8) -> Result<String, RegionAgreementError> {
        let content = self.get(tag)?;
        String::from_utf8(content.to_vec()).map_err(|_| RegionAgreementError::NotText(tag))
    }
}

/// As much of a text as is said: whole characters.
fn value(text: &str) -> &str {
    let end = text.floor_char_boundary(VALUE_BYTES_MAX);
    text.get(..end).unwrap_or_default()
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.put_u16_le(fitting(text.len()));
    bytes.put_slice(text.as_bytes());
}

/// Addresses that are too long are said as empty ones, so that the others keep their positions: no
/// configuration of the other region can have them.
fn list(addresses: &[String], most: usize) -> Vec<u8> {
    let addresses = addresses.get(..most).unwrap_or(addresses);
    let mut bytes = vec![fitting(addresses.len())];
    for address in addresses {
        let fits = address.len() <= limits::REGION_ADDRESS_BYTES_MAX;
        put_text(&mut bytes, if fits { address } else { "" });
    }
    bytes
}

fn lists(of_instances: &[Vec<String>]) -> Vec<u8> {
    let most = limits::REGION_ADDRESSES_MAX;
    let of_instances = of_instances.get(..most).unwrap_or(of_instances);
    let mut bytes = vec![fitting(of_instances.len())];
    for addresses in of_instances {
        bytes.extend(list(addresses, limits::REGION_CLIENTS_MAX));
    }
    bytes
}

fn count(bytes: &mut &[u8], tag: u8) -> Result<usize, RegionAgreementError> {
    bytes.try_get_u8().map(usize::from).map_err(|_| RegionAgreementError::Cut(tag))
}

fn text(bytes: &mut &[u8], tag: u8) -> Result<String, RegionAgreementError> {
    let cut = RegionAgreementError::Cut(tag);
    let length = usize::from(bytes.try_get_u16_le().map_err(|_| cut)?);
    let (text, rest) = bytes.split_at_checked(length).ok_or(cut)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).map_err(|_| RegionAgreementError::NotText(tag))
}

/// At most so many texts of a list; all of it is read.
fn texts(bytes: &mut &[u8], most: usize, tag: u8) -> Result<Vec<String>, RegionAgreementError> {
    let mut texts = Vec::new();
    for at in 0..count(bytes, tag)? {
        let text = text(bytes, tag)?;
        if at < most {
            texts.push(text);
        }
    }
    Ok(texts)
}

fn text_lists(mut bytes: &[u8], tag: u8) -> Result<Vec<Vec<String>>, RegionAgreementError> {
    let mut lists = Vec::new();
    for at in 0..count(&mut bytes, tag)? {
        let list = texts(&mut bytes, limits::REGION_CLIENTS_MAX, tag)?;
        if at < limits::REGION_ADDRESSES_MAX {
            lists.push(list);
        }
    }
    Ok(lists)
}

fn pairs(mut bytes: &[u8], tag: u8) -> Result<Vec<(String, String)>, RegionAgreementError> {
    let mut pairs = Vec::new();
    for at in 0..count(&mut bytes, tag)? {
        let pair = (text(&mut bytes, tag)?, text(&mut bytes, tag)?);
        if at < VALUES_MAX {
            pairs.push(pair);
        }
    }
    Ok(pairs)
}

#[cfg(test)]
pub(crate) mod tests;
