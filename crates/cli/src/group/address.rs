//! `towline group address`: whether the floating address is on this machine, and taking it away
//! when the instance that held it was killed. It looks at this machine only and asks no instance.
//!
//! Invariant: while an instance runs on this machine its address is not removed without a question:
//! if it is active, its clients lose their connections.

use std::path::Path;

use serde_json::json;
use towline_config::{Config, GroupConfig};

use super::question::{can_ask, confirm};
use crate::failure::Failure;
use crate::show;

/// The removal of the address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    /// Without a question.
    pub(super) yes: bool,
}

/// Runs the command: shows whether the address is here, or removes it.
pub(super) fn run(file: &Path, drop: Option<Removal>, json: bool) -> Result<(), Failure> {
    let config = Config::read(file).map_err(|error| Failure::about(file.display(), error))?;
    let group = config.group.as_ref();
    let Some((group, floating)) = group.and_then(|group| Some((group, group.floating.as_ref()?)))
    else {
        return Err(Failure::about(file.display(), "it has no [group.floating]"));
    };
    let (address, interface) = (floating.address, &floating.interface);
    let failed = |error| Failure::about(format!("{address} on {interface}"), error);
    let is_here = || towline_floating::is_here(floating).map_err(failed);
    let text = match drop {
        None if is_here()? => "here",
        None => "not here",
        Some(Removal { yes }) => {
            if is_here()? && runs_here(group) {
                can_ask(yes)?;
                let question = format!(
                    "Instance {} runs on this machine. If it is active, its clients at {address} \
                     are disconnected,\nand it adds the address again when it renews the lease. Remove the \
                     address?",
                    group.instance
                );
                confirm(yes, &question)?;
            }
            match towline_floating::take_away(floating).map_err(failed)? {
                true => "removed",
                false => "was not here",
            }
        }
    };
    if json {
        let address = address.to_string();
        return show::json(&json!({
            "address": address,
            "interface": interface,
            "is": text,
        }));
    }
    show::line(&format!("{address} on {interface}: {text}"))
}

/// Whether a process listens at the port of the instance's links. Nothing is sent to it: the
/// command also runs where an instance was just killed, and beside one that starts.
fn runs_here(group: &GroupConfig) -> bool {
    let member = group.member.iter().find(|member| member.name == group.instance);
    let port = member.and_then(|member| member.address.rsplit_once(':')?.1.parse().ok());
    let Some(port) = port else { return false };
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| is_listener(line, port))
    })
}

/// Whether a line of the system's table is that of a socket that listens at this port.
fn is_listener(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace();
    let (local, state) = (fields.nth(1), fields.nth(1));
    let found = local.and_then(|local| local.rsplit_once(':'));
    let found = found.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    found == Some(port) && state == Some(LISTEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_without_a_floating_address_is_refused_with_that_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("towline.toml");
        std::fs::write(&file, "").unwrap();
        let reason =
            run(&file, Some(Removal { yes: true }), false).unwrap_err().reason().to_owned();
        assert!(reason.contains("no [group.floating]"), "{reason}");
    }

    #[test]
    fn an_instance_that_listens_is_found_and_one_that_does_not_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let listens = || {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            table.lines().any(|line| is_listener(line, port))
        };
        assert!(listens());
        drop(listener);
        assert!(!listens());
        // A connection of that port is none.
        let line = "   1: 0100007F:1538 0100007F:C350 01 00000000:00000000 00:00000000 00000000";
        assert!(!is_listener(line, 0x1538));
        assert!(is_listener(&line.replace(" 01 ", " 0A "), 0x1538));
    }
}
