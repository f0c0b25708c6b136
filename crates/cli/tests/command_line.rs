//! The `towline` command as a person meets it: outputs and exit codes, against a queue manager that
//! each test starts for itself.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod daemon;

use std::path::Path;
use std::process::{Command, Stdio};

use daemon::{Daemon, text, towline};
use serde_json::Value;
use tempfile::TempDir;
use towline_client::{Address, Client, Options};

#[test]
fn a_message_is_put_browsed_and_got() {
    let daemon = Daemon::start();
    let put = daemon.text(&["put", "DEV.QUEUE.1", "hello", "-p", "a=5", "--correlation-id", "c"]);
    assert_eq!(put, "1 message put to DEV.QUEUE.1\n");
    assert_eq!(daemon.text(&["browse", "DEV.QUEUE.1"]), "hello\n");
    let seen = daemon.json(&["browse", "queue://DEV.QUEUE.1", "--selector", "a = 5"]);
    assert_eq!(seen[0]["body"], "hello");
    assert_eq!(seen[0]["correlation_id"], "c");
    assert_eq!(seen[0]["properties"]["a"], 5);
    assert_eq!(seen[0]["persistent"], true);
    daemon.run(&["get", "DEV.QUEUE.1", "--correlation-id", "other"]).code(3);
    assert_eq!(daemon.text(&["get", "DEV.QUEUE.1", "--correlation-id", "c"]), "hello\n");
    daemon.run(&["get", "DEV.QUEUE.1"]).code(3).stdout("").stderr("");
    daemon.run(&["browse", "DEV.QUEUE.1"]).code(3);
    assert_eq!(daemon.json(&["get", "DEV.QUEUE.1"])[0]["exit_code"], 3);
}

#[test]
fn lines_are_put_and_got_in_units_of_work() {
    let daemon = Daemon::start();
    let lines: String = (0..250).map(|number| format!("line {number}\n")).collect();
    let data = daemon.data();
    towline(&["put", "DEV.QUEUE.1", "--lines", "--transaction", "100", "--data", data])
        .write_stdin(lines.clone())
        .assert()
        .success()
        .stdout("250 messages put to DEV.QUEUE.1\n");
    let ten: String = lines.split_inclusive('\n').take(10).collect();
    assert_eq!(daemon.text(&["get", "DEV.QUEUE.1", "--count", "10"]), ten);
    let rest: String = lines.split_inclusive('\n').skip(10).collect();
    assert_eq!(daemon.text(&["get", "DEV.QUEUE.1", "--all", "--transaction", "7"]), rest);
    daemon.run(&["get", "DEV.QUEUE.1", "--all"]).code(3);
}

#[test]
fn messages_are_moved_whole_in_units_and_chosen_by_selector_and_count() {
    let daemon = Daemon::start();
    let (from, to) = ("DEV.QUEUE.1", "DEV.QUEUE.2");
    for (number, colour) in ["red", "blue", "red", "red"].iter().enumerate() {
        let (body, colour) = (format!("m{number}"), format!("colour={colour}"));
        let chosen =
            ["put", from, &body, "-p", &colour, "--correlation-id", "c", "--priority", "7"];
        daemon.text(&chosen);
    }
    let selector = ["--selector", "colour = 'red'", "--count", "2", "--transaction", "1"];
    let moved = daemon.text(&[&["move", from, to][..], &selector].concat());
    assert_eq!(moved, format!("2 messages moved from {from} to {to}\n"));
    let seen = daemon.json(&["browse", to]);
    let bodies: Vec<_> = seen.iter().map(|message| message["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["m0", "m2"]);
    for message in &seen {
        assert_eq!(message["properties"]["colour"], "red");
        assert_eq!(message["correlation_id"], "c");
        assert_eq!(message["priority"], 7);
        assert_eq!(message["persistent"], true);
    }
    let moved = daemon.json(&["move", from, to]);
    assert_eq!(moved[0]["moved"], 2);
    daemon.run(&["move", from, to]).code(3);
    assert_eq!(daemon.text(&["get", to, "--all"]), "m0\nm2\nm1\nm3\n");
}

#[test]
fn a_target_that_takes_no_more_keeps_the_rest_on_the_source_without_a_backout() {
    let daemon = Daemon::start();
    daemon.text(&["mqsc", "-c", "DEFINE QLOCAL(SMALL) MAXDEPTH(3)"]);
    let lines = "1\n2\n3\n4\n5\n";
    let put = ["put", "DEV.QUEUE.1", "--lines", "--data", daemon.data()];
    towline(&put).write_stdin(lines).assert().success();
    let assert = daemon.run(&["move", "DEV.QUEUE.1", "SMALL"]).code(1);
    let error = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(error.contains("3 messages moved before that"), "{error}");
    assert_eq!(daemon.text(&["get", "SMALL", "--all"]), "1\n2\n3\n");
    let left = daemon.json(&["get", "DEV.QUEUE.1", "--all"]);
    let bodies: Vec<_> = left.iter().map(|message| message["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["4", "5"]);
    assert!(left.iter().all(|message| message["delivery_count"].as_u64().unwrap_or(0) == 0));
}

#[test]
fn what_was_sent_ahead_to_a_move_that_is_refused_counts_no_backout() {
    let daemon = Daemon::start();
    let define = "DEFINE QLOCAL(FULL) MAXDEPTH(5)\nDEFINE QLOCAL(SB)\n\
                  DEFINE QLOCAL(R) BOTHRESH(1) BOQNAME(SB)";
    towline(&["mqsc", "--data", daemon.data()]).write_stdin(define).assert().success();
    let lines: String = (0..300).map(|number| format!("{number}\n")).collect();
    towline(&["put", "R", "--lines", "--data", daemon.data()])
        .write_stdin(lines)
        .assert()
        .success();
    daemon.run(&["move", "R", "FULL", "--transaction", "50"]).code(1);
    daemon.run(&["browse", "SB"]).code(3);
    assert_eq!(daemon.json(&["get", "R", "--all"]).len(), 295);
}

#[test]
fn a_queue_is_not_moved_onto_itself_by_its_alias() {
    let daemon = Daemon::start();
    daemon.text(&["mqsc", "-c", "DEFINE QALIAS(OTHER.NAME) TARGET(DEV.QUEUE.1)"]);
    daemon.text(&["put", "DEV.QUEUE.1", "stays"]);
    daemon.run(&["move", "DEV.QUEUE.1", "OTHER.NAME"]).code(2);
    daemon.run(&["move", "queue://DEV.QUEUE.1", "DEV.QUEUE.1"]).code(2);
    assert_eq!(daemon.text(&["get", "DEV.QUEUE.1"]), "stays\n");
}

#[test]
fn files_go_in_and_come_out_byte_for_byte() {
    let daemon = Daemon::start();
    let file = daemon.folder.path().join("body");
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    std::fs::write(&file, &bytes).unwrap();
    let output = daemon.folder.path().join("out");
    let (file, output) = (file.to_str().unwrap(), output.to_str().unwrap());
    daemon.run(&["put", "DEV.QUEUE.1", "-f", file, "--count", "2"]).success();
    daemon.run(&["get", "DEV.QUEUE.1", "--all", "-o", output]).success().stdout("");
    for name in ["message-000001", "message-000002"] {
        assert_eq!(std::fs::read(Path::new(output).join(name)).unwrap(), bytes, "{name}");
    }
}

#[test]
fn priority_expiry_and_persistence_are_those_of_the_options() {
    let daemon = Daemon::start();
    daemon.run(&["put", "DEV.QUEUE.1", "low", "--priority", "1"]).success();
    daemon.run(&["put", "DEV.QUEUE.1", "high", "--priority", "8", "--non-persistent"]).success();
    daemon.run(&["put", "DEV.QUEUE.1", "gone", "--ttl", "0.001"]).success();
    let seen = daemon.json(&["get", "DEV.QUEUE.1", "--all"]);
    let facts: Vec<_> =
        seen.iter().map(|each| (&each["body"], &each["priority"], &each["persistent"])).collect();
    assert_eq!(
        facts,
        [
            (&Value::from("high"), &Value::from(8), &Value::from(false)),
            (&Value::from("low"), &Value::from(1), &Value::from(true)),
        ]
    );
}

#[test]
fn mqsc_comes_from_arguments_files_and_standard_input() {
    let daemon = Daemon::start();
    let defined = daemon.text(&["mqsc", "-c", "DEFINE QLOCAL('orders') MAXDEPTH(1)"]);
    assert!(defined.contains("TWL8006I: Queue 'orders' created."), "{defined}");
    let file = daemon.folder.path().join("script.mqsc");
    std::fs::write(&file, "* two\nDIS QL('orders') +\n  MAXDEPTH\nDEF QA(A) TARGET('orders')\n")
        .unwrap();
    let shown = daemon.text(&["mqsc", "-f", file.to_str().unwrap()]);
    assert!(shown.contains("MAXDEPTH(1)"), "{shown}");
    assert!(shown.contains("2 commands read, 0 with a syntax error, 0 failed."), "{shown}");
    let data = daemon.data();
    let failed = towline(&["mqsc", "--data", data]).write_stdin("DEFINE QX(A)\n").assert().code(1);
    assert!(text(&failed).contains("TWL8405E: Line 1, column 8: QX is not an object"));
    let json = daemon.json(&["mqsc", "-c", "DIS QA(A)"]);
    assert_eq!(json[0]["replies"][0]["rows"][0]["attributes"]["TARGET"], "orders");
    // What was defined is used: the alias leads to the queue, and the queue takes one message.
    daemon.run(&["put", "A", "one"]).success();
    daemon.run(&["put", "A", "two"]).code(1);
}

#[test]
fn status_shows_what_the_log_and_the_queues_did() {
    let daemon = Daemon::start();
    daemon.run(&["put", "DEV.QUEUE.1", "x"]).success();
    let status = &daemon.json(&["status"])[0];
    assert_eq!(status["name"], "QMT");
    assert_eq!(status["state"], "running");
    for field in ["logical_bytes_written", "physical_bytes_written", "writes", "syncs"] {
        assert!(status["log"][field].as_u64() > Some(0), "{field} in {status}");
    }
    assert!(status["log"]["write_latency_us"]["p99"].is_u64(), "{status}");
    let queues = status["queues"].as_array().unwrap();
    let queue = queues.iter().find(|queue| queue["name"] == "DEV.QUEUE.1").unwrap();
    assert_eq!(queue["depth"], 1);
    assert_eq!(queue["puts"], 1);
    assert_eq!(queue["gets"], 0);
    assert_eq!(queue["uncommitted"], 0);
    let table = daemon.text(&["status"]);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn a_log_at_rest_is_shown_and_checked() {
    let mut daemon = Daemon::start();
    daemon.run(&["put", "DEV.QUEUE.1", "x"]).success();
    daemon.stop();
    let text = daemon.text(&["log", "verify"]);
    assert!(text.ends_with("The log is sound.\n"), "{text}");
    assert_eq!(daemon.json(&["log", "verify"])[0]["sound"], true);
    let dump = daemon.text(&["log", "dump"]);
    assert!(dump.contains("defined QLOCAL 'DEV.QUEUE.1', queue 1"), "{dump}");
    assert!(dump.contains("in queue 1: persistent, priority 4"), "{dump}");
    assert!(daemon.json(&["log", "dump"]).iter().any(|item| item["kind"] == "record"));
    // The image that the orderly end took is shown in any case.
    let behind = daemon.text(&["log", "dump", "--from", "0xffffffffffff"]);
    assert!(behind.lines().all(|line| line.contains(" image, ")), "{behind}");
}

#[test]
fn a_queue_manager_is_reached_by_url_too() {
    let daemon = Daemon::start();
    let url = daemon.url.as_str();
    towline(&["put", "DEV.QUEUE.1", "x", "--url", url]).assert().success();
    towline(&["get", "DEV.QUEUE.1"]).env("TOWLINE_URL", url).assert().success().stdout("x\n");
}

#[test]
fn what_the_server_refuses_is_exit_code_1_with_its_words() {
    let daemon = Daemon::start();
    let refused = daemon.run(&["get", "NO.SUCH.QUEUE"]).code(1);
    let words = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(words.contains("queue 'NO.SUCH.QUEUE' does not exist"), "{words}");
    assert!(words.contains("amqp:not-found"), "{words}");
    daemon.run(&["get", "DEV.QUEUE.1", "--selector", "a ="]).code(1);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["frobnicate"][..],
        &["put"],
        &["put", "Q", "x", "--priority", "10"],
        &["put", "Q", "x", "--ttl", "-1"],
        &["put", "Q", "x", "--property", "nonsense"],
        &["get", "Q", "--url", "http://x"],
        &["get", "Q", "--url", "amqp://user:password@host"],
        &["get", "Q", "--count", "1", "--follow"],
        &["run", "a/b"],
        &["log", "dump", "--data", "/", "--from", "x"],
    ] {
        // The last one has no log to look at, which counts first.
        let code = if arguments[0] == "log" { 1 } else { 2 };
        towline(arguments).assert().code(code);
    }
}

#[test]
fn an_option_counts_more_than_the_environment() {
    let daemon = Daemon::start();
    let nowhere = "amqp://127.0.0.1:1";
    let (get, empty) = (["get", "DEV.QUEUE.1"], 3);
    let at = |option, value| [get[0], get[1], option, value];
    towline(&at("--url", &daemon.url)).env("TOWLINE_DATA", "/nowhere").assert().code(empty);
    towline(&at("--data", daemon.data())).env("TOWLINE_URL", nowhere).assert().code(empty);
    towline(&get).env("TOWLINE_DATA", daemon.data()).assert().code(empty);
    let both = ["status", "--data", daemon.data(), "--url", &daemon.url];
    towline(&both).assert().code(2);
}

#[test]
fn nobody_there_is_exit_code_4() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for arguments in [&["status"][..], &["get", "Q"], &["put", "Q", "x"], &["mqsc", "-c", "END"]] {
        towline(arguments).args(["--data", data]).assert().code(4).stdout("");
    }
    let output = towline(&["status", "--json", "--data", data]).assert().code(4);
    let value: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(value["exit_code"], 4);
}

#[test]
fn completions_and_manual_pages_are_made_from_the_options() {
    for shell in ["bash", "zsh", "fish"] {
        let completions = text(&towline(&["completions", shell]).assert().success());
        assert!(completions.contains("browse"), "{shell}");
    }
    assert!(text(&towline(&["man"]).assert().success()).contains(".TH towline"));
    let folder = tempfile::tempdir().unwrap();
    towline(&["man", folder.path().to_str().unwrap()]).assert().success();
    assert!(folder.path().join("towline-put.1").exists());
}

#[test]
fn a_user_made_by_the_command_logs_in_and_no_other_password_does() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let into = ["user", "alice", "--file", users.to_str().unwrap()];
    towline(&into).write_stdin("old\n").assert().success().stdout("");
    towline(&into).write_stdin("right\n").assert().success();
    let kept = std::fs::read_to_string(&users).unwrap();
    assert_eq!(kept.lines().count(), 1, "{kept}");
    let printed = text(&towline(&["user", "bob"]).write_stdin("x\n").assert().success());
    assert!(printed.starts_with("bob:SCRAM-SHA-256$10000:"), "{printed}");
    towline(&["user", "bob"]).write_stdin("\n").assert().code(2);
    let config = folder.path().join("towline.toml");
    let lines = format!("[users]\nfile = {users:?}\nadministrators = [\"alice\"]\n");
    std::fs::write(&config, lines).unwrap();
    let daemon = Daemon::start_with(&["--config", config.to_str().unwrap()]);
    let url = daemon.url.replace("amqp://", "amqp://alice@");
    for mechanism in ["scram", "plain", "PLAIN"] {
        let arguments = ["status", "--url", &url, "--sasl", mechanism];
        towline(&arguments).env("TOWLINE_PASSWORD", "right").assert().success();
        towline(&arguments).env("TOWLINE_PASSWORD", "wrong").assert().code(4);
    }
    let file = folder.path().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let file = file.to_str().unwrap();
    towline(&["status", "--url", &url, "--password-file", file]).assert().success();
    towline(&["status", "--url", &daemon.url]).assert().code(4);
}

#[test]
fn without_a_name_a_client_on_loopback_puts_and_gets_and_does_not_administer() {
    let daemon = Daemon::start();
    let url = ["--url", &daemon.url];
    towline(&["put", "DEV.QUEUE.1", "x"]).args(url).assert().success();
    towline(&["get", "DEV.QUEUE.1"]).args(url).assert().success();
    for command in [
        &["mqsc", "-c", "DEFINE QLOCAL(PLANTED)"][..],
        &["mqsc", "-c", "DISPLAY QMGR"],
        &["status"],
        &["image"],
    ] {
        let refused = towline(command).args(url).assert().failure();
        let words = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(words.contains("not authorized to administer"), "{command:?}: {words}");
    }
    let shown = daemon.text(&["mqsc", "-c", "DISPLAY QUEUE(*)"]);
    assert!(!shown.contains("PLANTED"), "{shown}");
    // A name proves nothing where there is no user to compare with.
    let named = daemon.url.replace("amqp://", "amqp://alice@");
    for mechanism in ["plain", "scram"] {
        let mut login = towline(&["get", "DEV.QUEUE.1", "--url", &named, "--sasl", mechanism]);
        login.env("TOWLINE_PASSWORD", "anything").assert().code(4);
    }
}

#[test]
fn a_slip_in_the_environment_or_in_the_name_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    for (name, value, says) in [
        ("TOWLINE_LOG", "inof", "TWL1031E: The environment variable TOWLINE_LOG=inof is refused: "),
        ("TOWLINE_LOG", "off", "error, warn, info, debug, trace"),
        ("TOWLINE_LOG_FORMAT", "xml", "there are text and json"),
    ] {
        let mut run = towline(&["run", "QM1", "--data", data, "--listen", "127.0.0.1:0"]);
        let refused = run.env(name, value).assert().code(1);
        let words = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(words.contains(says), "{words}");
    }
    assert!(!Path::new(data).exists(), "nothing was begun");
    let daemon = Daemon::start();
    let kept = daemon.folder.path().join("name");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "QMT\n");
    let data = daemon.data().to_owned();
    towline(&["stop", "--data", &data]).assert().success();
    let refused = towline(&["run", "OTHER", "--data", &data, "--listen", "127.0.0.1:0"]).assert();
    let refused = refused.code(1);
    let words = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    let says = "TWL1033E: Data folder ";
    let names = "belongs to queue manager 'QMT', not to 'OTHER'.";
    assert!(words.contains(says) && words.contains(names), "{words}");
}

/// It is written with the rights of the daemon, wherever those reach.
#[test]
fn a_backup_over_a_connection_goes_only_where_the_configuration_allows() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let into = ["user", "alice", "--file", users.to_str().unwrap()];
    towline(&into).write_stdin("right\n").assert().success();
    let config = folder.path().join("towline.toml");
    let allowed = folder.path().join("allowed");
    std::fs::create_dir(&allowed).unwrap();
    let lines = format!(
        "[users]\nfile = {users:?}\nadministrators = [\"alice\"]\n[backup]\nfolders = [{allowed:?}]\n"
    );
    std::fs::write(&config, lines).unwrap();
    let daemon = Daemon::start_with(&["--config", config.to_str().unwrap()]);
    let address = Address::parse(&daemon.url.replace("amqp://", "amqp://alice@")).unwrap();
    let options = Options { password: Some("right".into()), ..Options::default() };
    let mut client = Client::connect(&address, &options).unwrap();
    let to = folder.path().join("backup");
    let request = serde_json::json!({ "to": to, "full": false, "keep_images": 1 }).to_string();
    let refused = client.ask_admin("backup", &request).unwrap().body;
    assert!(refused.contains("local socket") && !to.exists(), "{refused}");
    client.ask_admin("image", "").unwrap();
    std::os::unix::fs::symlink(folder.path(), allowed.join("away")).unwrap();
    let request =
        |to: &Path| serde_json::json!({ "to": to, "full": false, "keep_images": 1 }).to_string();
    let away = client.ask_admin("backup", &request(&allowed.join("away/b"))).unwrap().body;
    assert!(away.contains("[backup]") && !folder.path().join("b").exists(), "{away}");
    let made = allowed.join("of-alice");
    client.ask_admin("backup", &request(&made)).unwrap();
    assert!(made.exists());
    client.close().unwrap();
    let to = to.to_str().unwrap();
    let made = text(&towline(&["backup", "--to", to, "--data", daemon.data()]).assert().success());
    assert!(made.starts_with("full backup up to <"), "{made}");
    let sound = text(&towline(&["backup", "verify", to]).assert().success());
    assert!(sound.ends_with("The backup is sound.\n"), "{sound}");
    towline(&["backup", "verify", folder.path().to_str().unwrap()]).assert().code(1);
    towline(&["backup"]).assert().code(2);
}

#[test]
fn papers_of_a_group_pass_the_check_of_their_own_instance_only() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().to_str().unwrap();
    towline(&["group", "certificates", "--out", out, "--group", "G", "--instances", "a,b,c"])
        .assert()
        .success();
    let config = folder.path().join("a.toml");
    let text = format!(
        "[group]\nname = \"G\"\ninstance = \"a\"\ncertificate = \"{out}/a.pem\"\n\
         private_key = \"{out}/a-key.pem\"\nauthorities = \"{out}/authority.pem\"\n\
         [[group.member]]\nname = \"a\"\naddress = \"127.0.0.1:5701\"\n\
         [[group.member]]\nname = \"b\"\naddress = \"127.0.0.1:5702\"\n\
         [[group.member]]\nname = \"c\"\naddress = \"127.0.0.1:5703\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let json = ["group", "check", config.to_str().unwrap(), "--json"];
    let told: Value =
        serde_json::from_str(&self::text(&towline(&json).assert().success())).unwrap();
    assert_eq!((&told["instance"], &told["members"][2]["name"]), (&"a".into(), &"c".into()));
    let check = |more: &[&str]| {
        let arguments = [&["group", "check", config.to_str().unwrap()], more].concat();
        towline(&arguments).assert()
    };
    let said = check(&[]).success().get_output().stdout.clone();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("instance 'a' of group 'G' of 'QM1'"), "{said}");
    assert!(said.contains("valid until") && said.contains("member 'c' at"), "{said}");
    for (more, code) in
        [(&["--instance", "b"][..], 1), (&["--name", "QM2"], 1), (&["--instance", "d"], 2)]
    {
        check(more).code(code);
    }
    // Where clients connect is part of it.
    assert!(said.contains("listener 127.0.0.1:5672: without TLS"), "{said}");
    let group = std::fs::read_to_string(&config).unwrap();
    let with = |listener: &str, floating: &str| {
        let listener = format!("[[listener]]\naddress = \"127.0.0.1:5671\"\n{listener}");
        let floating = format!("[group.floating]\naddress = \"192.0.2.50/24\"\n{floating}");
        std::fs::write(&config, format!("{listener}{group}{floating}")).unwrap();
        let output = check(&[]).get_output().clone();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let nowhere = with("", "interface = \"lo\"\n");
    assert!(nowhere.contains("no client can connect there"), "{nowhere}");
    let everywhere = "[[listener]]\naddress = \"[::]:5673\"\nallow_plaintext = true\n\
                      allow_anonymous = true\n";
    let fine = with(everywhere, "interface = \"lo\"\n");
    assert!(fine.contains("floating address 192.0.2.50/24 on lo: not here"), "{fine}");
    let unknown = with(everywhere, "interface = \"nosuch0\"\n");
    assert!(unknown.contains("floating address 192.0.2.50/24: nosuch0: "), "{unknown}");
    let papers = "certificate = \"/nowhere.pem\"\nprivate_key = \"/nowhere.pem\"\n";
    let refused = with(papers, "interface = \"lo\"\n");
    assert!(refused.contains("listener 127.0.0.1:5671: TWL1013E"), "{refused}");
}

#[test]
fn what_an_instance_would_show_another_region_is_part_of_the_check_of_its_group() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().to_str().unwrap();
    let names = ["--instances", "a,b,c"];
    for group in ["G", "X"] {
        let out = format!("{out}/{group}");
        let of = ["group", "certificates", "--out", &out, "--group", group];
        towline(&[&of[..], &names].concat()).assert().success();
    }
    let config = folder.path().join("a.toml");
    let check = |region: &str, more: &[&str]| {
        let mut text = format!(
            "[group]\nname = \"G\"\ninstance = \"a\"\ncertificate = \"{out}/G/a.pem\"\n\
             private_key = \"{out}/G/a-key.pem\"\nauthorities = \"{out}/G/authority.pem\"\n{region}"
        );
        for (name, port) in [("a", 97), ("b", 98), ("c", 99)] {
            text += &format!(
                "[[group.member]]\nname = \"{name}\"\naddress = \"127.0.0.9:{port}\"\n\
                 region_address = \"127.0.0.1:{port}\"\n"
            );
        }
        text += "[group.recovery]\nname = \"X\"\naddresses = [\"127.0.0.2:5800\"]\n";
        std::fs::write(&config, text).unwrap();
        let arguments = [&["group", "check", config.to_str().unwrap()], more].concat();
        towline(&arguments).assert()
    };
    let said = text(&check("", &[]).success());
    let line = "other region: group 'X' at 127.0.0.2:5800; its link comes in at 127.0.0.1:97; \
                role of an empty log: live; cipher suites any; certificate valid until";
    assert!(said.contains(line), "{said}");
    let document = text(&check("role = \"recovery\"\n", &["--json"]).success());
    let document: Value = serde_json::from_str(&document).unwrap();
    let region = &document["region"];
    assert_eq!((&region["group"], &region["begins_as"]), (&"X".into(), &"recovery".into()));
    assert_eq!(region["addresses"][0]["found"][0], "127.0.0.2");
    let of_other = format!(
        "region_certificate = \"{out}/X/a.pem\"\nregion_private_key = \"{out}/X/a-key.pem\"\n"
    );
    let refused = check(&of_other, &[]).code(1).get_output().stderr.clone();
    let refused = String::from_utf8(refused).unwrap();
    assert!(refused.contains("other region: certificate"), "{refused}");
    assert!(refused.contains("not for 'QM1.G.a'"), "{refused}");
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    for command in ["run", "put", "load", "backup", "group", "instance"] {
        let help = text(&towline(&["help", command]).env("COLUMNS", "80").assert().success());
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(80), "{command}: {longest:?}\n{help}");
    }
}

#[test]
fn commands_that_print_results_print_one_document_too() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().to_str().unwrap();
    let document = |arguments: &[&str]| -> Value {
        let said = towline(arguments).arg("--json").write_stdin("x\n").assert().success();
        let said = text(&said);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{said}: {error}"))
    };
    let names = ["--group", "G", "--instances", "a,b,c"];
    let made = document(&[&["group", "certificates", "--out", out], &names[..]].concat());
    assert_eq!(made["certificates"][1]["name"], "QM1.G.b");
    let users = folder.path().join("users");
    let line = document(&["user", "alice"]);
    assert!(line["line"].as_str().unwrap().starts_with("alice:SCRAM-SHA-256$"), "{line}");
    let kept = document(&["user", "alice", "--file", users.to_str().unwrap()]);
    assert_eq!(kept["user"], "alice");
    let refused = towline(&["group", "check", "/nowhere.toml", "--json"]).assert().code(1);
    let refused: Value = serde_json::from_str(&text(&refused)).unwrap();
    assert_eq!(refused["exit_code"], 1);
}

#[test]
fn a_load_that_is_interrupted_says_what_was_done() {
    let daemon = Daemon::start();
    let mut load = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["load", "transaction", "--seconds", "600", "--clients", "2", "--url", &daemon.url])
        .args(["--queue", "DEV.QUEUE.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    while daemon.json(&["status"])[0]["log"]["commits"].as_u64() < Some(100) {
        assert!(began.elapsed().as_secs() < 60, "it does not begin");
    }
    let pid = load.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut load.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(load.wait().unwrap().code(), Some(1));
    assert!(said.contains("interrupted") && said.contains("0 lost"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
}
