//! `towline group check`: whether the configuration of an instance, and the files that it names,
//! can work. It looks at this machine only and makes no connection.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use serde_json::{Value, json};
use towline_config::{Config, FloatingConfig, GroupConfig, MemberConfig, RecoveryConfig};
use towline_server::{CheckResult, Verdict, check_group, check_listeners, check_region};

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
        match addresses(address) {
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
    let floating = group.floating.as_ref().map(|floating| of_floating(floating, &config));
    let floating = part(floating, &mut wrong, say)?;
    let region = group.recovery.as_ref().map(|other| of_region(name, group, other, instance));
    let region = part(region, &mut wrong, say)?;
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
        "region": region,
    }))
}

/// A part of the configuration that need not be there: says its line, or notes what is wrong, and
/// gives its JSON.
fn part(
    found: Option<Result<(String, Value), String>>,
    wrong: &mut Vec<String>,
    say: impl Fn(&str) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    match found {
        None => Ok(Value::Null),
        Some(Ok((line, document))) => say(&line).map(|()| document),
        Some(Err(why)) => {
            wrong.push(why);
            Ok(Value::Null)
        }
    }
}

/// What an instance would show to the other region, and where it would find it: one line, and the
/// same as JSON.
fn of_region(
    name: &str,
    group: &GroupConfig,
    other: &RecoveryConfig,
    instance: &str,
) -> Result<(String, Value), String> {
    let of = |why: String| format!("other region: {why}");
    let valid_until = check_region(name, group, instance).map_err(of)?;
    let own = group.member.iter().find(|member| member.name == instance);
    let own = own.and_then(|member| member.region_address.as_deref()).unwrap_or_default();
    let mut found = Vec::new();
    for address in &other.addresses {
        found.push(json!({ "address": address, "found": addresses(address).map_err(of)? }));
    }
    let (begins_as, ciphers) = (group.role.name(), group.region_ciphers.name());
    let text = format!(
        "other region: group '{}' at {}; its link comes in at {own}; role of an empty log: {begins_as}; \
         cipher suites {ciphers}; certificate valid until {valid_until}",
        other.name,
        other.addresses.join(", ")
    );
    let document = json!({
        "group": other.name,
        "addresses": found,
        "address": own,
        "begins_as": begins_as,
        "ciphers": ciphers,
        "valid_until": valid_until,
    });
    Ok((text, document))
}

/// The IP addresses of `host:port`.
fn addresses(address: &str) -> Result<Vec<String>, String> {
    let of = |why: String| format!("{address}: {why}");
    let found = address.to_socket_addrs().map_err(|error| of(error.to_string()))?;
    let found: Vec<String> = found.map(|address| address.ip().to_string()).collect();
    if found.is_empty() { Err(of("no address".into())) } else { Ok(found) }
}

/// Whether the floating address can get on this machine, and whether clients can connect there.
fn of_floating(floating: &FloatingConfig, config: &Config) -> Result<(String, Value), String> {
    let FloatingConfig { address, interface, .. } = floating;
    let of = |why: String| format!("floating address {address}: {why}");
    let is_here =
        towline_floating::is_here(floating).map_err(|error| of(format!("{interface}: {error}")))?;
    let ip = address.ip;
    let mut listeners = config.listener.iter().map(|listener| listener.address.ip());
    // All addresses of IPv6 are, on Linux, those of IPv4 too.
    let reaches = |at: IpAddr| at == ip || (at.is_unspecified() && (at.is_ipv6() || ip.is_ipv4()));
    if !listeners.any(reaches) {
        return Err(of(format!(
            "no [[listener]] is at {ip} or at all addresses, so no client can connect there"
        )));
    }
    let is = if is_here { "here" } else { "not here" };
    let document = json!({ "address": address.to_string(), "interface": interface, "is": is });
    Ok((format!("floating address {address} on {interface}: {is}"), document))
}
