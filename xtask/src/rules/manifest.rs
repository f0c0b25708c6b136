//! Every external crate stands once, in the root Cargo.toml, with the reason why it is here; our
//! crates take it from there and take over the workspace's lints.

use toml::{Table, Value};

use crate::finding::Finding;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(text) = tree.text("Cargo.toml") {
        findings.extend(dependencies_without_reason(text));
    }
    for entry in &tree.entries {
        let Some(text) = entry.text.as_deref() else { continue };
        if entry.path.ends_with("/Cargo.toml") {
            findings.extend(check_crate(&entry.path, text));
        }
    }
    findings
}

/// Reasons are comments, which a TOML parser drops: so this reads lines.
fn dependencies_without_reason(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim() == "[workspace.dependencies]";
            continue;
        }
        let dependency = line.split_once('=').map(|(name, _)| name.trim());
        let Some(name) = dependency.filter(|name| inside && !name.starts_with('#')) else {
            continue;
        };
        let reason = line.split_once('#').map_or("", |(_, reason)| reason.trim());
        if !name.starts_with("towline-") && reason.is_empty() {
            let what = format!("`{name}` without a comment on why it is here");
            findings.push(Finding::line("Cargo.toml", index + 1, what));
        }
        if line.contains("\"*\"") {
            let what = format!("`{name}` in any version; name the one that was looked at");
            findings.push(Finding::line("Cargo.toml", index + 1, what));
        }
    }
    findings
}

fn check_crate(path: &str, text: &str) -> Vec<Finding> {
    let manifest = match text.parse::<Table>() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::file(path, error.to_string())],
    };
    let mut findings = Vec::new();
    let inherits = |table: Option<&Value>| {
        table.and_then(|value| value.get("workspace")) == Some(&Value::Boolean(true))
    };
    if !inherits(manifest.get("lints")) {
        findings.push(Finding::file(path, "take over the lints: [lints] workspace = true"));
    }
    if !inherits(manifest.get("package").and_then(|package| package.get("license"))) {
        findings.push(Finding::file(path, "take over the licence: license.workspace = true"));
    }
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let dependencies = manifest.get(section).and_then(Value::as_table);
        for (name, dependency) in dependencies.into_iter().flatten() {
            if !inherits(Some(dependency)) {
                let what = format!(
                    "`{name}`: give version and reason in the root Cargo.toml, `workspace = true` here"
                );
                findings.push(Finding::file(path, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let with = "[workspace.dependencies]\nbytes = \"1\" # slices that count\n";
        let without = "[workspace.dependencies]\n# about what follows\nbytes = \"1\"\n";
        assert_eq!(check(&tree(&[("Cargo.toml", with)])), []);
        assert_eq!(check(&tree(&[("Cargo.toml", without)])).len(), 1);
        let any = with.replace("\"1\"", "\"*\"");
        assert_eq!(check(&tree(&[("Cargo.toml", &any)])).len(), 1);
    }

    #[test]
    fn a_version_of_its_own_is_found() {
        let text = "[package]\nname = \"a\"\nlicense.workspace = true\n[lints]\nworkspace = true\n\
                    [dependencies]\nbytes = \"1\"\n";
        assert_eq!(check(&tree(&[("crates/a/Cargo.toml", text)])).len(), 1);
        let mended = text.replace("\"1\"", "{ workspace = true }");
        assert_eq!(check(&tree(&[("crates/a/Cargo.toml", &mended)])), []);
    }
}
