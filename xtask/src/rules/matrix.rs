//! The written dependency matrix: which crate may use which. Arrows only go down.
//!
//! It is the list in [`MATRIX`]; ARCHITECTURE.md gives the reasons. A new arrow is a change to this
//! file, and so to be argued for (CONTRIBUTING.md, "Three classes of change").

use toml::Table;

use super::without_io::CRATES_WITHOUT_IO;
use crate::finding::Finding;
use crate::tree::Tree;

/// One crate: its folder, and the crates it may use. From the lowest floor up.
struct CrateRule {
    folder: &'static str,
    may_use: &'static [&'static str],
    /// Further crates that its tests, examples and benches may use.
    tests_may_use: &'static [&'static str],
}

const MATRIX: &[CrateRule] = &[
    CrateRule { folder: "crates/types", may_use: &[], tests_may_use: &[] },
    CrateRule { folder: "crates/os", may_use: &["types"], tests_may_use: &[] },
    CrateRule { folder: "crates/delegation", may_use: &["os"], tests_may_use: &[] },
    CrateRule { folder: "crates/tls", may_use: &[], tests_may_use: &[] },
    CrateRule { folder: "crates/core", may_use: &["types"], tests_may_use: &[] },
    CrateRule { folder: "crates/amqp", may_use: &["types"], tests_may_use: &[] },
    CrateRule { folder: "crates/log", may_use: &["types", "os", "delegation"], tests_may_use: &[] },
    CrateRule { folder: "crates/backup", may_use: &["types", "os", "log"], tests_may_use: &[] },
    CrateRule { folder: "crates/group", may_use: &["types"], tests_may_use: &[] },
    CrateRule { folder: "crates/region", may_use: &["types"], tests_may_use: &[] },
    CrateRule { folder: "crates/admin", may_use: &["types", "core"], tests_may_use: &[] },
    CrateRule {
        folder: "crates/node",
        may_use: &["types", "core", "amqp", "admin"],
        tests_may_use: &["log"],
    },
    CrateRule { folder: "crates/client", may_use: &["types", "amqp", "tls"], tests_may_use: &[] },
    CrateRule { folder: "crates/load", may_use: &["types", "amqp", "tls"], tests_may_use: &[] },
    CrateRule { folder: "crates/disktest", may_use: &[], tests_may_use: &[] },
    CrateRule { folder: "crates/logging", may_use: &["admin"], tests_may_use: &[] },
    CrateRule {
        folder: "crates/process",
        may_use: &["types", "os", "admin", "logging"],
        tests_may_use: &[],
    },
    CrateRule { folder: "crates/config", may_use: &["types", "logging"], tests_may_use: &[] },
    CrateRule {
        folder: "crates/floating",
        may_use: &["admin", "config", "logging"],
        tests_may_use: &[],
    },
    CrateRule {
        folder: "crates/standby",
        may_use: &["os", "log", "admin", "logging", "config", "process"],
        tests_may_use: &[],
    },
    CrateRule {
        folder: "crates/engine",
        may_use: &[
            "types",
            "os",
            "delegation",
            "core",
            "node",
            "log",
            "backup",
            "admin",
            "logging",
            "config",
            "process",
            "standby",
        ],
        tests_may_use: &[],
    },
    CrateRule {
        folder: "crates/access",
        may_use: &["types", "amqp", "admin", "node", "logging", "config", "process"],
        tests_may_use: &["client"],
    },
    CrateRule {
        folder: "crates/link",
        may_use: &["types", "os", "group", "admin", "logging", "config", "tls"],
        tests_may_use: &[],
    },
    CrateRule {
        folder: "crates/replication",
        may_use: &[
            "delegation",
            "types",
            "os",
            "group",
            "region",
            "log",
            "backup",
            "admin",
            "logging",
            "config",
            "link",
        ],
        tests_may_use: &[],
    },
    CrateRule {
        folder: "crates/replica",
        may_use: &[
            "types",
            "os",
            "group",
            "log",
            "backup",
            "admin",
            "node",
            "logging",
            "config",
            "process",
            "standby",
            "engine",
            "link",
            "replication",
        ],
        tests_may_use: &["core"],
    },
    CrateRule {
        folder: "crates/sim",
        may_use: &[
            "types",
            "os",
            "core",
            "log",
            "backup",
            "group",
            "admin",
            "node",
            "logging",
            "config",
            "process",
            "standby",
            "engine",
            "link",
            "replication",
            "replica",
            "region",
        ],
        tests_may_use: &[],
    },
    CrateRule {
        folder: "crates/server",
        may_use: &[
            "types",
            "os",
            "core",
            "amqp",
            "log",
            "backup",
            "group",
            "admin",
            "node",
            "logging",
            "config",
            "floating",
            "tls",
            "access",
            "link",
            "replication",
            "replica",
            "process",
            "standby",
            "engine",
        ],
        tests_may_use: &["client"],
    },
    CrateRule {
        folder: "crates/cli",
        may_use: &[
            "types", "core", "admin", "log", "backup", "tls", "client", "load", "disktest",
            "config", "floating", "server",
        ],
        tests_may_use: &[],
    },
    // Black box: other people's clients and the command, never our own crates.
    CrateRule { folder: "tests/e2e", may_use: &[], tests_may_use: &[] },
    CrateRule { folder: "xtask", may_use: &[], tests_may_use: &[] },
];

/// External crates that the crates without I/O may use: pure computation, no clock, no socket.
const PURE_CRATES: &[&str] = &[
    "base64",
    "bytes",
    "crc32c",
    "hmac",
    "pbkdf2",
    "serde",
    "serde_json",
    "raft",
    "sha2",
    "slab",
    "slog",
    "stringprep",
    "subtle",
    "time",
    "winnow",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.entries.iter().filter_map(|entry| {
        let folder = entry.path.strip_suffix("/Cargo.toml")?;
        Some((folder, entry.path.as_str(), entry.text.as_deref()?))
    });
    let mut findings = Vec::new();
    for (folder, path, text) in manifests {
        let Some(rule) = MATRIX.iter().find(|rule| rule.folder == folder) else {
            let what = "not in the dependency matrix (xtask/src/rules/matrix.rs)";
            findings.push(Finding::file(path, what));
            continue;
        };
        match text.parse::<Table>() {
            Ok(manifest) => findings.extend(check_crate(rule, path, &manifest)),
            Err(error) => findings.push(Finding::file(path, error.to_string())),
        }
    }
    findings
}

fn check_crate(rule: &CrateRule, path: &str, manifest: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (section, for_tests) in
        [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        let Some(dependencies) = manifest.get(section).and_then(|value| value.as_table()) else {
            continue;
        };
        for name in dependencies.keys() {
            let refused = match name.strip_prefix("towline-") {
                Some(used) => !rule.may_use(used, for_tests),
                None => !for_tests && rule.is_without_io() && !PURE_CRATES.contains(&name.as_str()),
            };
            if refused {
                let what = format!(
                    "[{section}] `{name}` is not in the dependency matrix (xtask/src/rules/matrix.rs)"
                );
                findings.push(Finding::file(path, what));
            }
        }
    }
    findings
}

impl CrateRule {
    fn may_use(&self, used: &str, for_tests: bool) -> bool {
        // A crate may name itself in dev-dependencies: that is how its tests switch on a feature.
        let itself = self.folder.rsplit('/').next() == Some(used);
        self.may_use.contains(&used)
            || (for_tests && (itself || self.tests_may_use.contains(&used)))
    }

    fn is_without_io(&self) -> bool {
        self.folder.rsplit('/').next().is_some_and(|name| CRATES_WITHOUT_IO.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn arrows_only_go_down() {
        for (index, rule) in MATRIX.iter().enumerate() {
            for used in rule.may_use {
                let folder = format!("crates/{used}");
                let below = MATRIX[..index].iter().any(|other| other.folder == folder);
                assert!(below, "{} may use {used}, which is not below it", rule.folder);
            }
        }
    }

    #[test]
    fn an_arrow_that_is_not_written_is_found() {
        let manifest = "[dependencies]\ntowline-log = { workspace = true }\n";
        assert_eq!(check(&tree(&[("crates/core/Cargo.toml", manifest)])).len(), 1);
        assert_eq!(check(&tree(&[("crates/server/Cargo.toml", manifest)])), []);
        assert_eq!(check(&tree(&[("crates/new/Cargo.toml", manifest)])).len(), 1);
    }

    #[test]
    fn a_crate_without_io_takes_only_pure_crates() {
        let manifest = "[dependencies]\ntokio = \"1\"\n";
        assert_eq!(check(&tree(&[("crates/amqp/Cargo.toml", manifest)])).len(), 1);
        assert_eq!(check(&tree(&[("crates/server/Cargo.toml", manifest)])), []);
        let for_tests = "[dev-dependencies]\nproptest = \"1\"\n";
        assert_eq!(check(&tree(&[("crates/amqp/Cargo.toml", for_tests)])), []);
    }
}
