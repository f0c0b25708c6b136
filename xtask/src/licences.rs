//! Whether every dependency may be used: its licence and its origin, against deny.toml.
//!
//! `cargo deny` checks the same and more, but takes minutes to build, so it is not in `make test`
//! (`make deny` runs it). This check reads the same list, so there is one list of what is allowed.
//! It does *not* look for advisories and double versions: that is cargo-deny's.

use std::io;
use std::process::Command;

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::finding::Finding;
use crate::tree::project_root;

/// What deny.toml allows.
#[derive(Debug, Default)]
struct Allowed {
    licences: Vec<String>,
    /// Crate and the licences that are allowed for it alone.
    exceptions: Vec<(String, Vec<String>)>,
    targets: Vec<String>,
}

/// Checks every dependency of the workspace, for the targets that deny.toml names.
///
/// # Errors
/// When deny.toml or the answer of `cargo metadata` cannot be read.
pub(crate) fn check_this_project() -> io::Result<Vec<Finding>> {
    let text = std::fs::read_to_string(project_root().join("deny.toml"))?;
    let allowed = Allowed::parse(&text)?;
    let metadata = metadata(&allowed.targets)?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(packages.iter().flat_map(|package| check_package(&allowed, package)).collect())
}

fn metadata(targets: &[String]) -> io::Result<Json> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(project_root());
    for target in targets {
        command.args(["--filter-platform", target]);
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(io::Error::other)
}

fn check_package(allowed: &Allowed, package: &Json) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let place = format!("{name} {}", package["version"].as_str().unwrap_or_default());
    // Our own crates have no source; `xtask tidy` checks their licence.
    let Some(source) = package["source"].as_str() else { return Vec::new() };
    let mut findings = Vec::new();
    if source != "registry+https://github.com/rust-lang/crates.io-index" {
        findings.push(Finding::file(&place, format!("comes from {source}, not from crates.io")));
    }
    match package["license"].as_str() {
        None => findings.push(Finding::file(&place, "names no licence")),
        Some(expression) => {
            if !allowed.satisfied(name, expression) {
                let what = format!("licence `{expression}` is not allowed by deny.toml");
                findings.push(Finding::file(&place, what));
            }
        }
    }
    findings
}

impl Allowed {
    fn parse(text: &str) -> io::Result<Allowed> {
        let table: Table = text.parse().map_err(io::Error::other)?;
        let licences = table.get("licenses");
        let exceptions = licences.and_then(|it| it.get("exceptions")).and_then(Value::as_array);
        let exceptions = exceptions.into_iter().flatten().filter_map(|exception| {
            Some((exception.get("crate")?.as_str()?.to_owned(), texts(exception.get("allow"))))
        });
        Ok(Allowed {
            licences: texts(licences.and_then(|it| it.get("allow"))),
            exceptions: exceptions.collect(),
            targets: texts(table.get("graph").and_then(|it| it.get("targets"))),
        })
    }

    fn names(&self, package: &str, licence: &str) -> bool {
        let of_package = self.exceptions.iter().filter(|(name, _)| name == package);
        self.licences.iter().chain(of_package.flat_map(|(_, list)| list)).any(|it| it == licence)
    }

    /// Whether an SPDX expression can be met with allowed licences. `A/B` is the old way to write
    /// OR.
    fn satisfied(&self, package: &str, expression: &str) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut reader = Reader { words: &words, at: 0, allowed: self, package };
        reader.either().unwrap_or(false) && reader.at == words.len()
    }
}

/// Reads an SPDX expression: OR binds less than AND, WITH belongs to the licence before it.
struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    allowed: &'a Allowed,
    package: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.words.get(self.at) == Some(&wanted);
        self.at += usize::from(found);
        found
    }

    fn either(&mut self) -> Option<bool> {
        let mut met = self.both()?;
        while self.take("OR") {
            let other = self.both()?;
            met |= other;
        }
        Some(met)
    }

    fn both(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.take("AND") {
            let other = self.one()?;
            met &= other;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let met = self.either()?;
            return self.take(")").then_some(met);
        }
        let mut licence = (*self.words.get(self.at)?).to_owned();
        self.at += 1;
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.words.get(self.at)?);
            self.at += 1;
        }
        Some(self.allowed.names(self.package, &licence))
    }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = "[graph]\ntargets = [\"x86_64-unknown-linux-gnu\"]\n\
        [licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"Apache-2.0 WITH LLVM-exception\"]\n\
        exceptions = [{ crate = \"odd\", allow = [\"CC0-1.0\"] }]\n";

    #[test]
    fn an_expression_is_met_by_allowed_licences_only() {
        let allowed = Allowed::parse(DENY).unwrap();
        for (package, expression, met) in [
            ("a", "MIT", true),
            ("a", "GPL-3.0", false),
            ("a", "MIT OR GPL-3.0", true),
            ("a", "MIT/GPL-3.0", true),
            ("a", "MIT AND GPL-3.0", false),
            ("a", "GPL-3.0 OR MIT AND Apache-2.0", true),
            ("a", "(MIT OR GPL-3.0) AND GPL-2.0", false),
            ("a", "Apache-2.0 WITH LLVM-exception", true),
            ("a", "MIT WITH other", false),
            ("a", "CC0-1.0", false),
            ("odd", "CC0-1.0", true),
            ("a", "MIT OR", false),
            ("a", "(MIT", false),
            ("a", "", false),
        ] {
            assert_eq!(allowed.satisfied(package, expression), met, "{package}: {expression}");
        }
    }

    #[test]
    fn another_origin_and_no_licence_are_found() {
        let allowed = Allowed::parse(DENY).unwrap();
        let package = serde_json::json!({
            "name": "a", "version": "1.0.0", "source": "git+https://example.org/a", "license": null
        });
        assert_eq!(check_package(&allowed, &package).len(), 2);
        let own = serde_json::json!({ "name": "towline-core", "version": "0.1.0", "source": null });
        assert_eq!(check_package(&allowed, &own), []);
    }
}
