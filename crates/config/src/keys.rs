//! Which keys a configuration file may have, so that a wrong one can be reported with its line and
//! the right one beside it.

use toml::de::{DeTable, DeValue};

/// Table name, whether it repeats (`[[name]]`), its keys.
const TABLES: &[(&str, &[&str])] = &[
    (
        "queue_manager",
        &[
            "deadq",
            "maxmsgl",
            "maxumsgs",
            "unit_bytes_max",
            "unit_age_max_s",
            "memory_bytes_max",
            "index_bytes_max",
            "imglogln",
            "imgintvl",
            "expired_to_deadq",
            "expiry_interval_s",
        ],
    ),
    (
        "listener",
        &[
            "address",
            "certificate",
            "private_key",
            "client_authorities",
            "mechanisms",
            "allow_plaintext",
            "allow_anonymous",
        ],
    ),
    ("auto_define", &["pattern", "model"]),
    (
        "log",
        &["extent_bytes", "log_bytes_max", "reserve_bytes", "cache_bytes", "writes_in_flight_max"],
    ),
    (
        "limits",
        &[
            "connections_max",
            "connections_per_address_max",
            "connection_memory_bytes_max",
            "logins_pending_max",
            "logins_pending_per_address_max",
            "login_timeout_s",
            "idle_timeout_s",
            "io_threads",
        ],
    ),
    ("shared", &["lease_ms", "takeover_by_lock"]),
    ("users", &["file", "administrators", "local_group"]),
    ("backup", &["folders"]),
    ("logging", &["level"]),
    ("metrics", &["address", "allow_plaintext"]),
    (
        "group",
        &[
            "name",
            "instance",
            "member",
            "certificate",
            "private_key",
            "authorities",
            "heartbeat_interval_ms",
            "heartbeat_timeout_ms",
            "retry_interval_ms",
            "compression_threshold",
            "preferred_location",
            "preferred_delay_ms",
            "floating",
            "role",
            "region_certificate",
            "region_private_key",
            "region_authorities",
            "region_ciphers",
            "recovery",
        ],
    ),
    ("group.member", &["name", "address", "clients", "region_address"]),
    (
        "group.recovery",
        &[
            "name",
            "addresses",
            "enabled",
            "status_interval_ms",
            "status_commit_threshold_bytes",
            "short_retry_timer_ms",
            "short_retry_count",
            "long_retry_timer_ms",
            "retry_reporting",
            "sync_replication",
            "sync_consistency",
            "compression_threshold",
            "rpo_bytes",
            "rpo_s",
            "rto_s",
            "window_bytes",
            "log_bytes_behind_max",
            "clients",
        ],
    ),
    ("group.floating", &["address", "interface", "announce_count", "lease_s"]),
];

/// Refuses the first key that is not in the table.
///
/// # Errors
/// A text with line, key and suggestion; or the parser's own when the text is not TOML.
pub(super) fn check(text: &str) -> Result<(), String> {
    let root = DeTable::parse(text).map_err(|error| place(text, &error))?;
    let tables = TABLES.iter().map(|(name, _)| *name);
    let names: Vec<&str> = tables.filter(|name| !name.contains('.')).collect();
    for (key, value) in root.get_ref() {
        let Some((table, keys)) = TABLES.iter().find(|(name, _)| name == key.get_ref()) else {
            return Err(unknown(text, key.span().start, key.get_ref(), &names, "the file"));
        };
        for entries in tables_of(value.get_ref()) {
            check_table(text, table, entries, keys)?;
        }
    }
    Ok(())
}

/// The table that a value is, or those that it is a list of.
fn tables_of<'a, 'text>(value: &'a DeValue<'text>) -> Vec<&'a DeTable<'text>> {
    match value {
        DeValue::Table(entries) => vec![entries],
        DeValue::Array(items) => {
            let tables = items.iter().filter_map(|item| item.get_ref().as_table());
            tables.collect()
        }
        _ => Vec::new(),
    }
}

/// Checks the keys of one table, and of the tables inside it.
fn check_table(
    text: &str,
    table: &str,
    entries: &DeTable<'_>,
    keys: &[&str],
) -> Result<(), String> {
    for (key, value) in entries {
        if !keys.contains(&key.get_ref().as_ref()) {
            let place = format!("[{table}]");
            return Err(unknown(text, key.span().start, key.get_ref(), keys, &place));
        }
        let inner = format!("{table}.{}", key.get_ref());
        if let Some((_, keys)) = TABLES.iter().find(|(name, _)| *name == inner) {
            // One level only: no table inside a table has tables.
            for entries in tables_of(value.get_ref()) {
                check_table(text, &inner, entries, keys)?;
            }
        }
    }
    Ok(())
}

/// What the TOML reader says, in one line, with the number and the text of the line that it means.
pub(super) fn place(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().replace('\n', "; ");
    let Some(span) = error.span() else { return why };
    let line = line_of(text, span.start);
    let found = text.lines().nth(line - 1).unwrap_or_default().trim();
    format!("line {line}: {why}: {found}")
}

/// Counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

fn unknown(text: &str, at: usize, key: &str, known: &[&str], place: &str) -> String {
    let line = line_of(text, at);
    let nearest = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(name, key), *name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(key.len()) / 2);
    let hint = nearest.map_or_else(
        || format!("known keys: {}", known.join(", ")),
        |(_, name)| format!("did you mean '{name}'?"),
    );
    format!("line {line}: unknown key '{key}' in {place}; {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_key_that_the_configuration_has() {
        for (table, keys) in TABLES {
            for key in *keys {
                let text = if matches!(*table, "listener" | "auto_define" | "group.member") {
                    format!("[[{table}]]\n{key} = {{}}")
                } else {
                    format!("[{table}]\n{key} = {{}}")
                };
                let refusal = super::super::Config::parse(&text).unwrap_err().to_string();
                assert!(!refusal.contains("unknown field"), "{table}.{key}: {refusal}");
            }
        }
    }
}
