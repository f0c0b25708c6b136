//! The `towline` command against a running daemon: what it prints, and its exit codes.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use towline_e2e::daemon::{Site, said};
use towline_e2e::papers;
use towline_e2e::peer::{Ending, Peer};
use towline_e2e::{Try, fail, paths, require, wait};

/// Exit codes, as documented.
const OK: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NO_MESSAGE: i32 = 3;
const NO_CONNECTION: i32 = 4;

const Q: &str = "DEV.QUEUE.1";

#[test]
fn put_browse_and_get_as_in_the_tutorial() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.runs(&["put", Q, "first"], OK)?;
    site.runs(&["put", Q, "second", "--property", "colour=red", "--priority", "7"], OK)?;
    let browsed = site.runs(&["browse", Q], OK)?;
    require!(browsed.find("second") < browsed.find("first"), "browsed {browsed:?}");
    require!(site.runs(&["get", Q], OK)?.trim() == "second", "not the higher priority");
    require!(site.runs(&["get", Q], OK)?.trim() == "first", "not the other");
    site.runs(&["get", Q], NO_MESSAGE)?;
    daemon.stop()
}

#[test]
fn a_message_that_was_put_survives_a_kill() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.runs(&["put", Q, "I stay"], OK)?;
    site.runs(&["put", Q, "I go", "--non-persistent"], OK)?;
    daemon.kill()?;
    let daemon = site.start()?;
    require!(site.runs(&["get", Q], OK)?.trim() == "I stay", "lost");
    site.runs(&["get", Q], NO_MESSAGE)?;
    daemon.stop()
}

#[test]
fn bodies_come_from_arguments_files_and_standard_input() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.runs_with(&["put", Q, "--lines"], b"one\ntwo\nthree\n", OK)?;
    let seen = site.runs(&["get", Q, "--count", "3"], OK)?;
    require!(seen.lines().eq(["one", "two", "three"]), "{seen:?}");
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    site.runs_with(&["put", Q], &bytes, OK)?;
    let folder = site.scratch().join("out");
    fs::create_dir(&folder)?;
    site.runs(&["get", Q, "--output", &folder.to_string_lossy()], OK)?;
    let mut files = fs::read_dir(&folder)?;
    let Some(file) = files.next() else { fail!("no file in {}", folder.display()) };
    require!(fs::read(file?.path())? == bytes, "the bytes differ");
    require!(files.next().is_none(), "more than one file");
    daemon.stop()
}

#[test]
fn selectors_properties_and_correlation_ids_choose_messages() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.runs(&["put", Q, "small", "--property", "amount=5"], OK)?;
    site.runs(&["put", Q, "big", "--property", "amount=5000"], OK)?;
    site.runs(&["put", Q, "mine", "--correlation-id", "c-1"], OK)?;
    let seen = site.runs(&["get", Q, "--selector", "amount > 1000"], OK)?;
    require!(seen.trim() == "big", "{seen:?}");
    site.runs(&["get", Q, "--selector", "amount > 1000"], NO_MESSAGE)?;
    let seen = site.runs(&["get", Q, "--correlation-id", "c-1"], OK)?;
    require!(seen.trim() == "mine", "{seen:?}");
    site.runs(&["get", Q, "--correlation-id", "c-1"], NO_MESSAGE)?;
    site.runs(&["get", Q, "--selector", "amount >"], FAILED)?;
    daemon.stop()
}

#[test]
fn puts_and_gets_in_units() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.runs(&["put", Q, "x", "--count", "25", "--transaction", "10"], OK)?;
    require!(site.queue_number(Q, "depth")? == 25, "depth");
    site.runs(&["get", Q, "--count", "25", "--transaction", "10"], OK)?;
    require!(site.queue_number(Q, "depth")? == 0, "depth");
    daemon.stop()
}

#[test]
fn json_is_json_everywhere() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    for arguments in [
        vec!["put", Q, "x", "--json"],
        vec!["browse", Q, "--json"],
        vec!["get", Q, "--json"],
        vec!["status", "--json"],
        vec!["log", "verify", "--json"],
    ] {
        let said = site.runs(&arguments, OK)?;
        let values = serde_json::Deserializer::from_str(&said).into_iter::<Value>();
        let count = values
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("{arguments:?} does not print JSON: {error}: {said}"))?;
        require!(!count.is_empty(), "{arguments:?} prints nothing");
    }
    let path = site.scratch().join("display.mqsc");
    fs::write(&path, "DISPLAY QLOCAL(*)\nDISPLAY QLOCAL(")?;
    let said = site.runs(&["mqsc", "-f", &path.to_string_lossy(), "--json"], FAILED)?;
    for value in serde_json::Deserializer::from_str(&said).into_iter::<Value>() {
        value.map_err(|error| format!("mqsc --json: {error}: {said}"))?;
    }
    daemon.stop()
}

#[test]
fn status_has_the_documented_numbers() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.runs(&["put", Q, "x", "--count", "7"], OK)?;
    site.runs(&["get", Q, "--count", "3"], OK)?;
    let status = site.status()?;
    for key in ["logical_bytes_written", "physical_bytes_written", "writes", "syncs"] {
        let number = status["log"][key].as_u64();
        require!(number.is_some_and(|number| number > 0), "log.{key} is {number:?}");
    }
    require!(!status["log"]["write_latency_us"].is_null(), "no log.write_latency_us");
    for (key, expected) in [("depth", 4), ("uncommitted", 0), ("puts", 7), ("gets", 3)] {
        let number = site.queue_number(Q, key)?;
        require!(number == expected, "{key} is {number}, not {expected}");
    }
    let plain = site.runs(&["status"], OK)?;
    require!(plain.contains(Q), "no {Q} in {plain}");
    let wide = plain.lines().find(|line| line.chars().count() > 80);
    require!(wide.is_none(), "more than 80 columns: {wide:?}");
    daemon.stop()
}

#[test]
fn commands_go_by_url_too() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    let elsewhere = Site::closed()?;
    let url = daemon.url();
    elsewhere.runs(&["put", Q, "by url", "--url", &url], OK)?;
    let seen = elsewhere.runs(&["get", Q, "--url", &url], OK)?;
    require!(seen.trim() == "by url", "{seen:?}");
    elsewhere.runs(&["status", "--json", "--url", &url], FAILED)?;
    daemon.stop()
}

#[test]
fn an_administrator_with_a_name_administers_by_url() -> Try {
    let mut site = Site::closed()?;
    let users = papers::users(site.scratch(), &[("alice", "one"), ("bob", "two")])?;
    site.config = format!("[users]\nfile = {users:?}\nadministrators = [\"alice\"]\n");
    let daemon = site.start()?;
    for (user, password, code) in
        [("alice", "one", OK), ("alice", "two", NO_CONNECTION), ("bob", "two", FAILED)]
    {
        let file = site.scratch().join("password");
        fs::write(&file, password)?;
        let url = daemon.url().replace("amqp://", &format!("amqp://{user}@"));
        let file = file.to_string_lossy();
        site.runs(&["status", "--url", &url, "--password-file", &file], code)?;
        site.runs(&["mqsc", "-c", "DIS QMGR", "--url", &url, "--password-file", &file], code)?;
    }
    daemon.stop()
}

#[test]
fn exit_codes_tell_what_went_wrong() -> Try {
    let site = Site::closed()?;
    site.runs(&["get", Q], NO_CONNECTION)?;
    site.runs(&["status"], NO_CONNECTION)?;
    let daemon = site.start()?;
    site.runs(&["get"], USAGE)?;
    site.runs(&["fly"], USAGE)?;
    site.runs(&["put", "NO.SUCH.QUEUE", "x"], FAILED)?;
    let output = site.towline(&["get", "NO.SUCH.QUEUE"])?.output()?;
    require!(output.status.code() == Some(FAILED), "{}", said(&output));
    require!(said(&output).contains("NO.SUCH.QUEUE"), "which queue? {}", said(&output));
    daemon.kill()?;
    site.runs(&["get", Q], NO_CONNECTION)?;
    Ok(())
}

#[test]
fn mqsc_defines_alters_displays_clears_and_deletes() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.mqsc(
        "* a comment\n\
         DEFINE QLOCAL(ORDERS) DESCR('Incoming orders') DEFPSIST(YES) +\n\
                MAXDEPTH(10) BOTHRESH(3) BOQNAME(ORDERS.BACKOUT)\n\
         DEF QL(ORDERS.BACKOUT)\n\
         DEFINE QALIAS(ORDERS.IN) TARGET(ORDERS)\n\
         DEFINE QLOCAL(COPIED) LIKE(ORDERS)\n\
         DEFINE QLOCAL('lower.case')\n\
         DEFINE QLOCAL(ORDERS) REPLACE MAXDEPTH(20)",
    )?;
    let all = site.mqsc("DISPLAY QUEUE(ORD*)")?;
    for name in ["QUEUE(ORDERS)", "QUEUE(ORDERS.BACKOUT)", "QUEUE(ORDERS.IN)"] {
        require!(all.contains(name), "no {name} in {all}");
    }
    require!(!all.contains("COPIED"), "too much in {all}");
    let some = site.mqsc("DISPLAY QLOCAL(*) WHERE(MAXDEPTH EQ 20) DESCR")?;
    require!(some.contains("QUEUE(ORDERS)") && !some.contains("COPIED"), "WHERE: {some}");
    let copied = site.mqsc("DISPLAY QLOCAL(COPIED) MAXDEPTH")?;
    require!(copied.contains("MAXDEPTH(10)"), "LIKE: {copied}");
    site.runs(&["put", "ORDERS.IN", "through the alias"], OK)?;
    site.runs(&["put", "lower.case", "x"], OK)?;
    let depth = site.mqsc("DISPLAY QLOCAL(ORDERS) CURDEPTH")?;
    require!(depth.contains("CURDEPTH(1)"), "{depth}");
    site.mqsc("CLEAR QLOCAL(ORDERS)\nDELETE QLOCAL(COPIED)\nDELETE QLOCAL('lower.case') PURGE")?;
    require!(site.queue_number("ORDERS", "depth")? == 0, "not cleared");
    daemon.stop()
}

#[test]
fn mqsc_tells_errors_with_line_and_suggestion_and_counts_them() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    let script = "DEFINE QLOCAL(GOOD)\nDEFINE QLOCAL(BAD) MAXDEPHT(5)\nDISPLAY QLOCAL(NONE)\n";
    let path = site.scratch().join("bad.mqsc");
    fs::write(&path, script)?;
    let said = site.runs(&["mqsc", "-f", &path.to_string_lossy()], FAILED)?;
    require!(said.contains("MAXDEPTH"), "no suggestion: {said}");
    let from_input = site.runs_with(&["mqsc"], b"DISPLAY QLOCAL(GOOD)\n", OK)?;
    require!(from_input.contains("QUEUE(GOOD)"), "from standard input: {from_input}");
    site.runs_with(&["mqsc"], b"DELETE QLOCAL(NONE)\n", FAILED)?;
    daemon.stop()
}

#[test]
fn definitions_survive_stop_and_kill() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    site.mqsc("DEFINE QLOCAL(STAYS) MAXDEPTH(11)\nDEFINE QLOCAL(GOES)")?;
    daemon.stop()?;
    let daemon = site.start()?;
    site.mqsc("ALTER QLOCAL(STAYS) MAXDEPTH(22)\nDELETE QLOCAL(GOES)\nALTER QMGR DESCR('mine')")?;
    daemon.kill()?;
    let daemon = site.start()?;
    let shown = site.mqsc("DISPLAY QUEUE(*) MAXDEPTH\nDISPLAY QMGR DESCR")?;
    require!(shown.contains("MAXDEPTH(22)"), "the change is lost: {shown}");
    require!(!shown.contains("GOES"), "the deleted queue is back: {shown}");
    require!(shown.contains("DESCR(mine)"), "the queue manager's DESCR is lost: {shown}");
    daemon.stop()
}

#[test]
fn display_tells_connections_and_queue_status() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, Q)?;
    peer.put(0, 0, b"x")?;
    let shown = site.mqsc("DISPLAY CONN(*)\nDISPLAY QSTATUS(DEV.QUEUE.1)\nDISPLAY QMGR")?;
    require!(shown.contains("CONN("), "no connection: {shown}");
    require!(shown.contains("CURDEPTH(1)") && shown.contains("OPPROCS(1)"), "status: {shown}");
    require!(shown.contains("QMNAME(QM1)"), "queue manager: {shown}");
    daemon.stop()
}

#[test]
fn stop_conn_ends_a_client_that_does_not_answer() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, Q)?;
    let shown = site.mqsc(&format!("DISPLAY QSTATUS({Q}) TYPE(HANDLE)"))?;
    let number = shown.split_once("CONN(").and_then(|(_, rest)| rest.split_once(')'));
    let Some((number, _)) = number else { fail!("no connection: {shown}") };
    site.mqsc(&format!("STOP CONN({number})"))?;
    // It neither reads nor writes nor closes from now on.
    wait::until_true("the connection to be gone", Duration::from_secs(20), || {
        site.mqsc(&format!("DISPLAY CONN({number})")).is_err()
    })?;
    site.runs(&["mqsc", "-c", &format!("DELETE QLOCAL({Q})")], OK)?;
    drop(peer);
    daemon.stop()
}

#[test]
fn a_queue_tells_who_has_it_open_and_a_connection_can_be_stopped() -> Try {
    let site = Site::closed()?;
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, Q)?;
    let delete = format!("DELETE QLOCAL({Q})");
    site.runs(&["mqsc", "-c", &delete], FAILED)?;
    let shown = site.mqsc(&format!("DISPLAY QSTATUS({Q}) TYPE(HANDLE)"))?;
    require!(shown.contains("OUTPUT(YES)") && shown.contains("INPUT(NO)"), "handles: {shown}");
    let number = shown.split_once("CONN(").and_then(|(_, rest)| rest.split_once(')'));
    let Some((number, _)) = number else { fail!("no connection: {shown}") };
    let shown = site.mqsc(&format!("DISPLAY CONN({number}) TYPE(HANDLE)"))?;
    require!(shown.contains(&format!("QUEUE({Q})")), "of the connection: {shown}");
    site.mqsc(&format!("STOP CONN({number})"))?;
    let ending = peer.ending(Duration::from_secs(10))?;
    let forced = Ending::Condition("amqp:connection:forced".into());
    require!(ending == forced, "the client is not told: {ending:?}");
    drop(peer);
    wait::until_true("the connection to be gone", Duration::from_secs(10), || {
        site.mqsc(&format!("DISPLAY CONN({number})")).is_err()
    })?;
    site.runs(&["mqsc", "-c", &delete], OK)?;
    site.runs(&["mqsc", "-c", &format!("STOP CONN({number})")], FAILED)?;
    daemon.stop()
}

#[test]
fn completions_and_help_need_no_daemon() -> Try {
    for arguments in [vec!["completions", "bash"], vec!["--help"], vec!["--version"], vec!["man"]] {
        let output = Command::new(paths::towline()?).args(&arguments).output()?;
        require!(output.status.success(), "{arguments:?}: {}", said(&output));
        require!(!output.stdout.is_empty(), "{arguments:?} prints nothing");
    }
    Ok(())
}

#[test]
fn ctrl_c_in_the_middle_of_a_move_loses_nothing_and_doubles_nothing() -> Try {
    const COUNT: usize = 12_000;
    let site = Site::open()?;
    let daemon = site.start()?;
    let mut wanted: Vec<String> = (0..COUNT).map(|number| format!("message {number}")).collect();
    let input = wanted.join("\n") + "\n";
    site.runs_with(&["put", "Q1", "--lines", "--transaction", "1000"], input.as_bytes(), OK)?;
    // A sync for each message: it takes long enough to be interrupted, and some are moved by then.
    let mut moving = site.towline(&["move", "Q1", "Q2", "--transaction", "1"])?.spawn()?;
    let begun = wait::until_true("a part is moved", Duration::from_secs(60), || {
        site.queue_number("Q2", "depth").is_ok_and(|depth| depth > 0)
    });
    kill_process(Pid::from_child(&moving), Signal::INT)?;
    // Tests that run in the background of a shell inherit that SIGINT is ignored.
    kill_process(Pid::from_child(&moving), Signal::TERM)?;
    let ended =
        wait::until("its end", Duration::from_secs(60), || moving.try_wait().ok().flatten());
    begun?;
    require!(!ended?.success(), "it was at its end before");
    // The unit that was open is rolled back when the connection is gone: soon, not at once.
    let (mut left, mut moved) = (Vec::new(), Vec::new());
    let mut peer = Peer::begun(daemon.address())?;
    let all = wait::until_true("all messages", Duration::from_secs(60), || {
        left.extend(peer.drain("Q1").unwrap_or_default());
        moved.extend(peer.drain("Q2").unwrap_or_default());
        left.len() + moved.len() >= COUNT
    });
    println!("{} are left, {} were moved", left.len(), moved.len());
    all?;
    require!(!left.is_empty() && !moved.is_empty(), "it was not in the middle");
    let mut found = [left, moved].concat();
    found.sort_unstable();
    wanted.sort_unstable();
    require!(found == wanted, "{} messages, not each one once", found.len());
    daemon.stop()
}
