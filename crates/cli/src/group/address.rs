//! `towline group address`: whether the floating address is on this machine, and taking it away
//! when the instance that held it was killed. It looks at this machine only and asks no instance.

use std::path::Path;

use serde_json::json;
use towline_config::Config;

use crate::failure::Failure;
use crate::show;

/// Runs the command.
pub(super) fn run(file: &Path, drop: bool, json: bool) -> Result<(), Failure> {
    let config = Config::read(file).map_err(|error| Failure::about(file.display(), error))?;
    let Some(floating) = config.group.and_then(|group| group.floating) else {
        return Err(Failure::about(file.display(), "it has no [group.floating]"));
    };
    let (address, interface) = (floating.address, &floating.interface);
    let failed = |error| Failure::about(format!("{address} on {interface}"), error);
    let text = if !drop {
        if towline_floating::is_here(&floating).map_err(failed)? { "here" } else { "not here" }
    } else if towline_floating::take_away(&floating).map_err(failed)? {
        "removed"
    } else {
        "was not here"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_without_a_floating_address_is_refused_with_that_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("towline.toml");
        std::fs::write(&file, "").unwrap();
        let reason = run(&file, true, false).unwrap_err().reason().to_owned();
        assert!(reason.contains("no [group.floating]"), "{reason}");
    }
}
