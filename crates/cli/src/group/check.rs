//! `towline group check`: whether the configuration of an instance, and the files that it names,
//! can work. It looks at this machine only and makes no connection.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use serde_json::{Value, json};
use towline_config::{Config, FloatingConfig, MemberConfig};
use towline_server::{CheckResult, Verdict, check_group, check_listeners};

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
    let Some(group) = &config.group else {
        return Err(Failure::about(file.display(), "it has no [group]"));
    };
    let instance = instance.unwrap_or(&group.instance);
    if group.position(instance).is_none() {
        return Err(Failure::Usage(format!("'{instance}' is not a [[group.member]]")));
    }
    let valid_until = check_group(name, group, instance).map_err(Failure::Failed)?;
    let say = |text: &str| if json { Ok(()) } else { show::line(text) };
    say(&format!("instance '{instance}' of group '{}' of '{name}'", group.name))?;
    say(&format!("certificate valid until {valid_until}"))?;
    let mut wrong = Vec::new();
    let mut members = Vec::new();
    for member in &group.member {
        let MemberConfig { name, address, .. } = member;
        match addresses(member) {
            Ok(found) => {
                say(&format!("member '{name}' at {address}: {}", found.join(", ")))?;
                members.push(json!({ "name": name, "address": address, "found": found }));
            }
            Err(why) => wrong.push(why),
        }
    }
    let mut listeners = Vec::new();
    for CheckResult { what, verdict } in check_listeners(name, file, &config) {
        match verdict {
            Verdict::Fine(text) | Verdict::Warning(text) => {
                say(&format!("{what}: {text}"))?;
                listeners.push(json!({ "what": what, "text": text }));
            }
            Verdict::Refused(text) => wrong.push(format!("{what}: {text}")),
        }
    }
    let mut floating = Value::Null;
    if let Some(found) = &group.floating {
        match of_floating(found, &config) {
            Ok(text) => {
                say(&format!("floating address {} on {}: {text}", found.address, found.interface))?;
                let (address, interface) = (found.address.to_string(), &found.interface);
                floating = json!({ "address": address, "interface": interface, "is": text });
            }
            Err(why) => wrong.push(format!("floating address {}: {why}", found.address)),
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::Failed(wrong.join("; ")));
    }
    if !json {
        return Ok(());
    }
    show::json(&json!({
        "queue_manager": name,
        "group": group.name,
        "instance": instance,
        "valid_until": valid_until,
        "members": members,
        "listeners": listeners,
        "floating": floating,
    }))
}

/// The IP addresses of an instance.
fn addresses(member: &MemberConfig) -> Result<Vec<String>, String> {
    let of = |why: String| format!("{}: {why}", member.address);
    let found = member.address.to_socket_addrs().map_err(|error| of(error.to_string()))?;
    let found: Vec<String> = found.map(|address| address.ip().to_string()).collect();
    if found.is_empty() { Err(of("no address".into())) } else { Ok(found) }
}

/// Whether the floating address can get on this machine, and whether clients can connect there.
fn of_floating(floating: &FloatingConfig, config: &Config) -> Result<&'static str, String> {
    let is_here = towline_floating::is_here(floating)
        .map_err(|error| format!("{}: {error}", floating.interface))?;
    let ip = floating.address.ip;
    let mut listeners = config.listener.iter().map(|listener| listener.address.ip());
    // All addresses of IPv6 are, on Linux, those of IPv4 too.
    let reaches = |at: IpAddr| at == ip || (at.is_unspecified() && (at.is_ipv6() || ip.is_ipv4()));
    if !listeners.any(reaches) {
        return Err(format!(
            "no [[listener]] is at {ip} or at all addresses, so no client can connect there"
        ));
    }
    Ok(if is_here { "here" } else { "not here" })
}
