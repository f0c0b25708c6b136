//! `towline group check`: whether the configuration of an instance, and the files that it names, can
//! work. It looks at this machine only and connects to nobody.

use std::net::ToSocketAddrs;
use std::path::Path;

use serde_json::json;
use towline_config::{Config, MemberConfig};
use towline_server::check_group;

use crate::failure::Failure;
use crate::show;

/// Runs the command.
pub(super) fn run(
    file: &Path,
    name: &str,
    instance: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let config = Config::read(file).map_err(|error| Failure::about(file.display(), error))?;
    let Some(group) = config.group else {
        return Err(Failure::about(file.display(), "it has no [group]"));
    };
    let instance = instance.unwrap_or(&group.instance);
    if group.position(instance).is_none() {
        return Err(Failure::Usage(format!("'{instance}' is not a [[group.member]]")));
    }
    let valid_until = check_group(name, &group, instance).map_err(Failure::Failed)?;
    let say = |text: &str| if json { Ok(()) } else { show::line(text) };
    say(&format!("instance '{instance}' of group '{}' of '{name}'", group.name))?;
    say(&format!("certificate valid until {valid_until}"))?;
    let (mut members, mut unknown) = (Vec::new(), Vec::new());
    for member in &group.member {
        let found = member.address.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        match found {
            Ok(addresses) if !addresses.is_empty() => {
                let addresses: Vec<String> =
                    addresses.iter().map(|address| address.ip().to_string()).collect();
                let MemberConfig { name, address, .. } = member;
                say(&format!("member '{name}' at {address}: {}", addresses.join(", ")))?;
                members.push(json!({ "name": name, "address": address, "found": addresses }));
            }
            Ok(_) => unknown.push(format!("{}: no address", member.address)),
            Err(error) => unknown.push(format!("{}: {error}", member.address)),
        }
    }
    if json && unknown.is_empty() {
        show::json(&json!({
            "queue_manager": name,
            "group": group.name,
            "instance": instance,
            "valid_until": valid_until,
            "members": members,
        }))?;
    }
    if unknown.is_empty() { Ok(()) } else { Err(Failure::Failed(unknown.join("; "))) }
}
