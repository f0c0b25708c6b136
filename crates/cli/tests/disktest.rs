//! `towline disktest` as a person meets it: results, exit codes, and that nothing stays behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Nothing that is waited for takes this long, not even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// On the disk that the build is on: a temporary folder of the system may be in memory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("disktest").args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_glance_needs_no_folder_measures_and_leaves_nothing_behind() {
    let folder = folder();
    let output = run(folder.path(), &["--quick", "--json", "-"]);
    let result: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(code(&output), if result["fit"].as_bool().unwrap() { 0 } else { 3 }, "{result}");
    let blocks = result["blocks"].as_array().unwrap();
    assert!(!blocks.is_empty());
    for block in blocks {
        let us = |name: &str| block[format!("latency_{name}_us")].as_f64().unwrap();
        let ladder = [us("min"), us("p50"), us("p99"), us("p999"), us("max")];
        assert!(ladder.is_sorted() && ladder[0] > 0.0, "{block}");
        assert!(us("avg") >= us("min") && us("avg") <= us("max"), "{block}");
        let (writes, bytes) = (&block["writes_count"], &block["block_bytes"]);
        let written = writes.as_u64().unwrap() * bytes.as_u64().unwrap();
        assert_eq!(block["written_bytes"].as_u64().unwrap(), written);
    }
    let clients = result["predictions"].as_array().unwrap().iter();
    assert!(clients.map(|p| p["clients_count"].as_u64().unwrap()).eq([1, 10, 64]));
    assert!(result["sync"]["evidence"].as_array().unwrap().len() >= 2, "{result}");
    assert_eq!(result["locks"], Value::Null);
    assert!(is_empty(folder.path()));
}

#[test]
fn the_table_fits_a_terminal_and_json_and_chart_go_to_files() {
    let (folder, results) = (folder(), folder());
    let (json, chart) = (results.path().join("a.json"), results.path().join("a.svg"));
    let output = command(folder.path(), &["--quick", "--mode", "buffered-sync", "--block", "8k"])
        .arg("--json")
        .arg(&json)
        .arg("--chart")
        .arg(&chart)
        .output()
        .unwrap();
    let text = text(&output);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for part in ["buffered-sync   8 KiB", "p99.9", "expected", "Does it keep its word"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let result: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(result["blocks"].as_array().unwrap().len(), 1);
    assert!(fs::read_to_string(chart).unwrap().contains("buffered-sync p99.9"));
    assert!(is_empty(folder.path()));
}

#[test]
fn locks_of_an_ordinary_disk_pass() {
    let folder = folder();
    let output = run(folder.path(), &["--locks", "--quick", "--json", "-"]);
    let result: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(code(&output), 0, "{result}");
    let tests = result["locks"].as_array().unwrap();
    assert_eq!(tests.len(), 14, "{result}");
    assert!(tests.iter().all(|test| test["passed"] == true), "{result}");
    assert!(result["blocks"].as_array().unwrap().is_empty(), "only the locks");
    assert!(is_empty(folder.path()));
}

#[test]
fn wrong_options_are_2_and_what_cannot_run_is_1() {
    let folder = folder();
    for wrong in [
        &["--block", "5000"] as &[&str],
        &["--size", "1"],
        &["--seconds", "0"],
        &["--mode", "fast"],
        &["--power-cut-check", "read", "x"],
        &["--power-cut-check", "write"],
        &["--power-cut-check", "write", "x", "--acked", "1"],
        &["--power-cut-check", "verify", "x", "--records", "1"],
        &["--power-cut-check", "verify", "x", "--quick"],
        &["--acked", "1"],
        &["--bogus"],
    ] {
        let output = run(folder.path(), wrong);
        assert_eq!(code(&output), 2, "{wrong:?}: {}", errors(&output));
        assert!(!errors(&output).is_empty(), "{wrong:?}");
    }
    // No such folder; a file; a folder in which no user may make a file, not even root.
    fs::write(folder.path().join("file"), "").unwrap();
    for dir in ["nowhere", "file", "/proc"] {
        for part in [&["--quick"] as &[&str], &["--quick", "--locks"], &["--quick", "--lies"]] {
            let output = run(folder.path(), &[&["--dir", dir], part].concat());
            assert_eq!(code(&output), 1, "{dir} {part:?}: {}", errors(&output));
            assert!(errors(&output).contains(dir), "{dir}: {}", errors(&output));
        }
    }
}

#[test]
fn the_file_goes_when_the_tester_is_interrupted_or_killed() {
    for (signal, part) in [("-INT", &[] as &[&str]), ("-KILL", &[]), ("-KILL", &["--locks"])] {
        let folder = folder();
        // A test that runs in the background has inherited that SIGINT is ignored.
        let mut process = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_towline"), "disktest"])
            .args(part)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("something in the folder", || !is_empty(folder.path()));
        let pid = process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(!process.wait().unwrap().success(), "it was not done yet");
        wait_until("an empty folder", || is_empty(folder.path()));
    }
}

struct Writing(Child);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn each_number_that_the_power_cut_check_reported_is_there_after_a_kill() {
    let folder = folder();
    let arguments = ["--power-cut-check", "write", "cut", "--size", "1MiB"];
    let process = command(folder.path(), &arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut writing = Writing(process);
    let lines = BufReader::new(writing.0.stdout.take().unwrap()).lines();
    // More than the file holds: it is being written over.
    let told = lines.map_while(Result::ok).nth(299).expect("it goes on until it is stopped");
    drop(writing);
    assert_eq!(told, "300");
    let verify = |acked: &str| {
        run(folder.path(), &["--power-cut-check", "verify", "cut", "--acked", acked, "--json", "-"])
    };
    let whole = verify(&told);
    assert_eq!(code(&whole), 0, "{}", text(&whole));
    let result: Value = serde_json::from_str(&text(&whole)).unwrap();
    let highest = result["highest_number"].as_u64().unwrap();
    assert!(highest >= 300, "{result}");
    // One that was never written stands for one that was lost.
    let lost = verify(&(highest + 1).to_string());
    assert_eq!(code(&lost), 3, "{}", text(&lost));
    let result: Value = serde_json::from_str(&text(&lost)).unwrap();
    assert_eq!(result["missing_ranges"], serde_json::json!([[highest + 1, highest + 1]]));
}

#[test]
fn the_power_cut_check_does_not_touch_a_file_that_is_there() {
    let folder = folder();
    fs::write(folder.path().join("mine"), "precious").unwrap();
    let output = run(folder.path(), &["--power-cut-check", "write", "mine", "--records", "1"]);
    assert_eq!(code(&output), 1, "{}", errors(&output));
    assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"precious");
    let gone = run(folder.path(), &["--power-cut-check", "verify", "gone", "--acked", "3"]);
    assert_eq!(code(&gone), 1, "{}", errors(&gone));
    let done = run(folder.path(), &["--power-cut-check", "write", "cut", "--records", "3"]);
    assert_eq!((code(&done), text(&done).as_str()), (0, "1\n2\n3\n"));
    let fine = run(folder.path(), &["--power-cut-check", "verify", "cut"]);
    assert_eq!(code(&fine), 0);
    assert!(text(&fine).contains("Complete: all 3"), "{}", text(&fine));
}
