//! What the command says when something is wrong: what, where, and what to do.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod checking;
#[path = "../daemon/mod.rs"]
mod daemon;

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use assert_cmd::assert::Assert;
use daemon::{Daemon, text, towline};

fn words(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// What a command that fails says.
fn said(arguments: &[&str], code: i32) -> String {
    words(&towline(arguments).assert().code(code))
}

#[test]
fn where_no_queue_manager_runs_the_way_to_one_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for command in [&["status"][..], &["put", "Q", "x"], &["mqsc", "-c", "DIS QMGR"]] {
        let said = said(&[command, &["--data", data]].concat(), 4);
        let expected =
            format!("is running in data folder {data}; start it with `towline run --data {data}`");
        assert!(said.contains(&expected) && said.contains("--url"), "{said}");
    }
}

#[test]
fn an_address_to_listen_at_is_refused_with_one_that_is_right() {
    for (address, expected) in [
        ("5673", "use 127.0.0.1:5673"),
        ("127.0.0.1", "it has no port"),
        ("broker.example:5672", "not a numeric IP address"),
    ] {
        let said = said(&["run", "QM1", "--listen", address], 2);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_number_below_zero_and_an_empty_name_are_refused_in_words() {
    for (arguments, expected) in [
        (&["put", "Q", "x", "--ttl", "-1"][..], "expected seconds from 0 to 31536000"),
        (&["get", "Q", "--wait", "-1"], "expected seconds from 0 to 31536000"),
        (&["status", "--watch", "-1"], "expected seconds from 0.1 to 3600"),
        (&["put", "", "x"], "the queue name is empty"),
        (&["get", "queue://"], "the queue name is empty"),
        (&["move", "Q", ""], "the queue name is empty"),
    ] {
        let said = said(arguments, 2);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(!said.contains("to pass"), "{said}");
    }
}

#[test]
fn a_name_that_is_too_long_for_a_socket_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = towline(&["run", &"Q".repeat(100), "--listen", "127.0.0.1:0"]);
    let said = words(&run.current_dir(folder.path()).assert().code(1));
    assert!(said.contains("TWL1012E") && said.contains("107 are allowed"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was begun");
}

#[test]
fn tls_where_there_is_none_and_the_other_way_round_are_reported() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let certificates = ["group", "certificates", "--out", out, "--instances", "a,b,c"];
    towline(&certificates).assert().success();
    let authority = format!("{out}/authority.pem");
    let url = daemon.url.replace("amqp:", "amqps:");
    let said = said(&["status", "--url", &url, "--ca", &authority], 4);
    assert!(said.contains("does not use TLS: use amqp:// instead of amqps://"), "{said}");
    // An alert of TLS is what a TLS listener answers to AMQP.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://{}", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&[0x15, 3, 3, 0, 2, 2, 0x32]).unwrap();
        socket
    });
    let said = self::said(&["status", "--url", &url], 4);
    assert!(said.contains("uses TLS: use amqps:// instead of amqp://"), "{said}");
    drop(answering.join().unwrap());
}

#[test]
fn a_refused_login_says_what_could_be_wrong_and_which_ones_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let into = ["user", "alice", "--file", users.to_str().unwrap()];
    towline(&into).write_stdin("right\n").assert().success();
    let config = folder.path().join("towline.toml");
    std::fs::write(&config, format!("[users]\nfile = {users:?}\n")).unwrap();
    let daemon = Daemon::start_with(&["--config", config.to_str().unwrap()]);
    for user in ["alice", "nobody"] {
        let url = daemon.url.replace("amqp://", &format!("amqp://{user}@"));
        let mut login = towline(&["get", "DEV.QUEUE.1", "--url", &url]);
        let said = words(&login.env("TOWLINE_PASSWORD", "wrong").assert().code(4));
        assert!(said.contains("wrong user, password or certificate"), "{said}");
    }
    let said = said(&["get", "DEV.QUEUE.1", "--url", &daemon.url], 4);
    assert!(said.contains("does not offer the login ANONYMOUS, but"), "{said}");
    assert!(said.contains("SCRAM-SHA-256") && said.contains("name a user"), "{said}");
}

#[test]
fn a_name_in_the_wrong_case_and_a_name_to_delete_get_other_advice() {
    let daemon = Daemon::start();
    let said = words(&daemon.run(&["put", "dev.queue.1", "x"]).code(1));
    assert!(said.contains("did you mean 'DEV.QUEUE.1'?"), "{said}");
    for command in ["DELETE QLOCAL(NOPE)", "ALTER QLOCAL(NOPE) MAXDEPTH(3)", "CLEAR QLOCAL(NOPE)"] {
        let said = text(&daemon.run(&["mqsc", "-c", command]).code(1));
        assert!(said.contains("TWL5010E") && said.contains("DISPLAY QUEUE(*)"), "{said}");
        assert!(!said.contains("DEFINE"), "{said}");
    }
    let help = daemon.text(&["mqsc", "-c", "help"]);
    assert!(help.contains("DELETE   QLOCAL"), "{help}");
}

#[test]
fn a_message_that_is_too_long_is_refused_with_its_size_and_the_owner_of_the_bound() {
    let mut daemon = Daemon::start();
    daemon.text(&["mqsc", "-c", "DEFINE QLOCAL(SMALL) MAXMSGL(1000)"]);
    let body = "x".repeat(2_000);
    let said = words(&daemon.run(&["put", "SMALL", &body]).code(1));
    assert!(said.contains("MAXMSGL(1000) of queue 'SMALL'") && said.contains("2000"), "{said}");
    daemon.stop();
}

#[test]
fn what_fails_in_the_middle_says_how_far_it_came() {
    let daemon = Daemon::start();
    daemon.text(&["mqsc", "-c", "DEFINE QLOCAL(THREE) MAXDEPTH(3)"]);
    let lines = "1\n2\n3\n4\n5\n";
    let mut put = towline(&["put", "THREE", "--lines", "--data", daemon.data()]);
    let said = words(&put.write_stdin(lines).assert().code(1));
    assert!(said.contains("MAXDEPTH(3)") && said.contains("; 3 messages put before"), "{said}");
    // With units of work, those that were committed.
    daemon.text(&["get", "THREE", "--all"]);
    let data = daemon.data();
    let mut put = towline(&["put", "THREE", "--lines", "--transaction", "2", "--data", data]);
    let said = words(&put.write_stdin(lines).assert().code(1));
    assert!(said.contains("; 2 messages put before that"), "{said}");
    assert_eq!(daemon.json(&["browse", "THREE"]).len(), 2);
}

#[test]
fn ctrl_c_in_the_middle_of_lines_says_how_many_were_put() {
    let daemon = Daemon::start();
    let mut put = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["put", "DEV.QUEUE.1", "--lines", "--data", daemon.data()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = put.stdin.take().unwrap();
    lines.write_all(b"1\n2\n3\n").unwrap();
    lines.flush().unwrap();
    // They are on the queue, and it waits for more.
    let third = ["get", "DEV.QUEUE.1", "--count", "3", "--wait", "30"];
    assert_eq!(daemon.text(&third), "1\n2\n3\n");
    let pid = put.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ended = put.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(said, "towline: interrupted; 3 messages put before that\n");
    drop(lines);
}

#[test]
fn a_model_or_a_dead_letter_queue_that_does_not_exist_is_reported_at_the_start_and_at_the_put() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("towline.toml");
    let lines = "[queue_manager]\ndeadq = \"NO.DEAD\"\n[[auto_define]]\npattern = \"NEW.*\"\n\
                 model = \"NO.MODEL\"\n";
    std::fs::write(&config, lines).unwrap();
    let daemon = Daemon::start_with(&["--config", config.to_str().unwrap()]);
    let said = words(&daemon.run(&["put", "NEW.1", "x"]).code(1));
    assert!(said.contains("model 'NO.MODEL'") && said.contains("DEFINE QMODEL"), "{said}");
    drop(daemon);
    let data = folder.path().join("data");
    let mut run = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["run", "QMT", "--listen", "127.0.0.1:0", "--data"])
        .arg(&data)
        .arg("--config")
        .arg(&config)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(run.stdout.take().unwrap());
    let ready = std::io::BufRead::lines(out).map_while(Result::ok);
    assert!(ready.into_iter().any(|line| line.starts_with("ready ")));
    assert!(Command::new("kill").arg(run.id().to_string()).status().unwrap().success());
    let said = String::from_utf8(run.wait_with_output().unwrap().stderr).unwrap();
    for expected in ["TWL1070W", "'NO.DEAD' does not exist", "TWL1071W", "'NO.MODEL'"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_message_is_explained_however_its_id_is_typed() {
    for id in ["TWL1012E", "twl1012e", "TWL1012", "1012"] {
        let said = text(&towline(&["explain", id]).assert().success());
        assert!(said.starts_with("TWL1012E (error: action is needed)\n"), "{said}");
        assert!(said.contains("Choose another with --listen"), "{said}");
    }
    let json = text(&towline(&["explain", "1012", "--json"]).assert().success());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["id"], &json["severity"]), (&"TWL1012E".into(), &"error".into()));
    assert!(said(&["explain", "1018"], 1).contains("nearest are TWL1016E, TWL1017E, TWL1019E"));
    assert!(said(&["explain", "quorum"], 1).contains("ids look like TWL1012E"));
}
