//! `towline run` as a person meets it: what it says when it starts, and when it cannot.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod process;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use process::{Daemon, command};

/// A queue manager, and its first line.
fn start(data: &Path) -> (Daemon, String) {
    let mut daemon = Daemon::start(data, &[]);
    let ready = daemon.says("ready");
    (daemon, ready)
}

/// Standard error of a start that is refused.
fn refused(data: &Path, arguments: &[&str]) -> String {
    let output = command(data, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The line for people, among those of the log.
fn reason(words: &str) -> &str {
    let mut lines = words.lines().filter(|line| line.starts_with("towline: "));
    let line = lines.next().unwrap_or_default();
    assert!(lines.next().is_none(), "more than one line: {words}");
    for dump in ["Os {", "Some(", "ErrorKind", "\u{1b}"] {
        assert!(!words.contains(dump), "{dump} in {words}");
    }
    line
}

#[test]
fn after_ready_it_says_what_to_try_and_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let (mut daemon, ready) = start(folder.path());
    let url = ready.strip_prefix("ready amqp://127.0.0.1:").unwrap().trim().to_owned();
    assert!(url.parse::<u16>().is_ok(), "{ready}");
    let mut tried = 0;
    for line in daemon.lines.by_ref().lines().map(Result::unwrap) {
        if let Some(command) = line.strip_prefix("  ") {
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped());
            let output = shell.output().unwrap();
            assert!(output.status.success(), "{command}: {output:?}");
            tried += 1;
        }
        if line.contains("Ctrl-C") {
            break;
        }
    }
    assert_eq!(tried, 4);
}

#[test]
fn whoever_stops_reading_after_ready_breaks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = command(folder.path(), &["--listen", "127.0.0.1:0"]).spawn().unwrap();
    drop(process.stdout.take());
    let mut words = String::new();
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    while !words.contains("TWL1007W") {
        assert!(stderr.read_line(&mut words).unwrap() > 0, "it ended: {words}");
    }
    assert!(process.try_wait().unwrap().is_none(), "{words}");
    assert!(!words.contains('\u{1b}'), "colours in a pipe: {words}");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn the_data_folder_and_the_socket_are_the_owners_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("made");
    let _daemon = start(&data);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    assert_eq!(mode(&data.join("towline.sock")), 0o600);
}

#[test]
fn a_folder_in_use_an_address_in_use_and_a_wrong_file_are_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, ready) = start(folder.path());
    let words = refused(folder.path(), &["--listen", "127.0.0.1:0"]);
    let process = format!("is in use by process {}.", daemon.process.id());
    assert!(reason(&words).starts_with("towline: TWL1011E: Data folder /"), "{words}");
    assert!(reason(&words).ends_with(&process), "{words}");

    let other = tempfile::tempdir().unwrap();
    let address = ready.trim().strip_prefix("ready amqp://").unwrap();
    let words = refused(other.path(), &["--listen", address]);
    let expected = format!("towline: TWL1012E: Cannot listen on {address}: ");
    assert!(reason(&words).starts_with(&expected), "{words}");

    let file = other.path().join("t.toml");
    std::fs::write(&file, "[limits]\nlogin_timout_s = 5\n").unwrap();
    let words = refused(other.path(), &["--config", file.to_str().unwrap()]);
    let expected = "t.toml is refused: line 2: unknown key 'login_timout_s' in [limits]; did you \
                    mean 'login_timeout_s'?";
    assert!(reason(&words).starts_with("towline: TWL1010E: Configuration /"), "{words}");
    assert!(reason(&words).ends_with(expected), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");

    let words = refused(other.path(), &["--listen", "0.0.0.0:0"]);
    assert!(reason(&words).contains("allow_plaintext"), "{words}");
}

#[test]
fn stop_ends_a_queue_manager_in_order_and_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut daemon, _) = start(folder.path());
    let stop = || {
        let mut stop = Command::new(env!("CARGO_BIN_EXE_towline"));
        stop.args(["stop", "--json", "--data"]).arg(folder.path()).output().unwrap()
    };
    let output = stop();
    assert!(output.status.success(), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["pid"], daemon.process.id());
    assert!(daemon.process.try_wait().unwrap().is_some_and(|status| status.success()));
    let again = stop();
    assert_eq!(again.status.code(), Some(4));
    let said: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    let why = said["error"].as_str().unwrap();
    assert!(why.contains("no queue manager is running in data folder"), "{why}");
}

#[test]
fn the_folder_of_an_instance_of_a_group_does_not_start_without_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("group-state"), b"").unwrap();
    for arguments in [&["--listen", "127.0.0.1:0"][..], &["--standby", "--listen", "127.0.0.1:0"]] {
        let words = refused(folder.path(), arguments);
        assert!(reason(&words).contains("instance of a group"), "{words}");
        assert!(reason(&words).contains("--config"), "{words}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "a start that is refused leaves the folder as it is: {left:?}");
}

/// A configuration with a group in it.
fn group_config(folder: &Path) -> std::path::PathBuf {
    let mut text = String::from(
        "[group]\nname = \"G\"\ninstance = \"a\"\ncertificate = \"a.pem\"\n\
         private_key = \"a-key.pem\"\nauthorities = \"authority.pem\"\n",
    );
    for name in ["a", "b", "c"] {
        text.push_str(&format!("[[group.member]]\nname = \"{name}\"\naddress = \"{name}:1\"\n"));
    }
    let file = folder.join("group.toml");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_lost_log_is_set_aside_only_of_an_instance_that_does_not_run_and_has_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let group = group_config(folder.path());
    let single = folder.path().join("single.toml");
    std::fs::write(&single, "").unwrap();
    let replace = |config: &Path, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command.args(["instance", "replace", "--data"]).arg(&data).arg("--config").arg(config);
        let output = command.args(more).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let (mut daemon, _) = start(&data);
    let (code, said) = replace(&group, &["--yes"]);
    assert!(code == Some(1) && said.contains("stop it first"), "{said}");
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    let (code, said) = replace(&single, &["--yes"]);
    assert!(code == Some(2) && said.contains("it has no [group]"), "{said}");
    let (code, said) = replace(&group, &[]);
    assert!(code == Some(2) && said.contains("--yes"), "{said}");
    assert!(data.join("log").is_dir());
    let (code, said) = replace(&group, &["--yes"]);
    assert!(code == Some(1) && said.contains("--force"), "the others cannot be asked: {said}");
    assert!(data.join("log").is_dir());
    let (code, said) = replace(&group, &["--yes", "--force", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(told["instance"], "a");
    let aside = Path::new(told["set_aside"].as_str().unwrap());
    assert!(aside.file_name().unwrap().to_str().unwrap().starts_with("log.lost-2"), "{said}");
    assert!(std::fs::read_dir(aside).unwrap().count() > 1, "the log is in it");
    assert!(!data.join("log").exists());
    let (code, said) = replace(&group, &["--yes"]);
    assert!(code == Some(1) && said.contains("has no log to set aside"), "{said}");
}

#[test]
fn the_unit_and_the_guides_restart_a_process_in_the_same_way() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = 0;
    let mut look = |file: &Path| {
        let text = std::fs::read_to_string(file).unwrap();
        // The name alone, without a value, is in the text too.
        let values = text.split("Restart=").skip(1).filter(|rest| !rest.starts_with('`'));
        for value in values {
            let word = value.split(|letter: char| !letter.is_ascii_alphabetic()).next();
            assert_eq!(word, Some("always"), "{}", file.display());
            found += 1;
        }
    };
    look(&sources.join("examples/towline.service"));
    for entry in std::fs::read_dir(sources.join("docs/guides")).unwrap() {
        look(&entry.unwrap().path());
    }
    assert!(found >= 5, "{found} values");
}
