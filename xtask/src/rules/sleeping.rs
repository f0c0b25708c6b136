//! Sleep is not synchronisation: a test waits for a level (a depth, a line, a process that ended),
//! bounded by a deadline. The few files that do sleep are listed with the reason.

use super::is_test_path;
use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Files in which a thread may sleep, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/log/src/disk/delay.rs", "a disk that is slow on purpose, to measure group commit"),
    (
        "crates/engine/src/backup.rs",
        "a backup tries again until the log is between two runs: no event tells of that moment",
    ),
    (
        "tests/e2e/src/workload.rs",
        "clients that pause before they try the next address, as clients do",
    ),
    ("crates/os/src/simulated/thread.rs", "it is the sleep of the simulation, in virtual time"),
    ("crates/os/src/simulated/tests.rs", "coroutines sleep in virtual time, which takes none"),
    ("crates/sim/src/cluster/network.rs", "frames arrive in virtual time, which takes none"),
    ("crates/sim/src/regions/ports.rs", "hellos arrive in virtual time, which takes none"),
    ("crates/sim/src/file_operations.rs", "a load goes on in virtual time, which takes none"),
    ("tests/e2e/src/slow/shown.rs", "a file system that is slow on purpose, to measure restart"),
];

const SLEEPS: &[&str] = &["thread::sleep", "time::sleep("];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        if ALLOWED.iter().any(|(allowed, _)| *allowed == path) {
            continue;
        }
        let source = Source::of(text);
        let product = source.code_without_tests();
        let lines = source.code.lines().zip(product.lines());
        for (index, (line, product_line)) in lines.enumerate() {
            let in_test = is_test_path(path) || line != product_line;
            // A blocked thread is wrong everywhere; an asynchronous timer only in tests.
            let wrong = line.contains(SLEEPS[0]) || (in_test && line.contains(SLEEPS[1]));
            if wrong {
                let what = "sleeps: wait for a level with a deadline, or list the file with a reason \
                            in xtask/src/rules/sleeping.rs";
                findings.push(Finding::line(path, index + 1, what));
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
    fn sleeping_is_found() {
        let test = "#[cfg(test)]\nmod tests { fn f() { tokio::time::sleep(d).await } }";
        assert_eq!(check(&tree(&[("a.rs", "fn f() { std::thread::sleep(d) }")])).len(), 1);
        assert_eq!(check(&tree(&[("a.rs", test)])).len(), 1);
        assert_eq!(check(&tree(&[("a.rs", "fn f() { tokio::time::sleep(d).await }")])), []);
    }
}
