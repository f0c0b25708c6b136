//! A damaged byte of the log costs one message, which is never skipped in silence: it is set
//! aside on the dead-letter queue, or the client is notified. Runs the commands of
//! docs/guides/damaged-log.md.
//!
//! Not here: damage that a start finds (`log_damage.rs`), missing extents (`missing_extents.rs`),
//! pages and images (`deep_damage.rs`).

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use towline_e2e::daemon::{Site, said};
use towline_e2e::extent::flip;
use towline_e2e::numbered::{WITH_DLQ, numbers, text};
use towline_e2e::peer::Peer;
use towline_e2e::through::pass_through;
use towline_e2e::wait::{pause, until_true};
use towline_e2e::{Try, require};

const Q: &str = "OLD";
const DLQ: &str = "DEV.DEAD.LETTER.QUEUE";
const COUNT: usize = 100;
/// Which one is hit.
const HIT: usize = 41;
/// What a backup says of it.
const DAMAGED: &str = "a damaged batch, 1 messages in it cannot be read";

/// A hundred messages of one unit of work, which a start does not read: an image lies behind them.
fn written(config: &str) -> Try<Site> {
    let site = Site::open()?.with_config(config);
    let daemon = site.start()?;
    let lines: Vec<String> = (0..COUNT).map(text).collect();
    let input = lines.join("\n") + "\n";
    site.runs_with(&["put", Q, "--lines", "--transaction", "100"], input.as_bytes(), 0)?;
    site.runs(&["image"], 0)?;
    daemon.stop()?;
    Ok(site)
}

/// Flips one bit of the body of a message, in whichever extent it is. The queue manager is not up.
fn damage(site: &Site, number: usize) -> Try {
    damage_text(site, &text(number))
}

fn damage_text(site: &Site, text: &str) -> Try {
    let wanted = text.as_bytes();
    for entry in fs::read_dir(site.data.join("log"))? {
        let path = entry?.path();
        if !path.to_string_lossy().contains("extent-") {
            continue;
        }
        let bytes = fs::read(&path)?;
        if let Some(at) = bytes.windows(wanted.len()).position(|found| found == wanted) {
            return flip(&path, at as u64 + 2_000, 3);
        }
    }
    Err(format!("{:.12} is nowhere", text).into())
}

fn others() -> Vec<usize> {
    (0..COUNT).filter(|number| *number != HIT).collect()
}

#[test]
fn one_flipped_bit_costs_one_message_which_is_set_aside_and_told() -> Try {
    let site = written(WITH_DLQ)?;
    damage(&site, HIT)?;
    let verified = said(&site.towline(&["log", "verify"])?.output()?);
    let counted = "1 damaged batches, in them 1 damaged messages";
    require!(verified.contains(counted), "verify: {verified}");

    let daemon = site.start()?;
    let output = site.towline(&["get", Q, "--all"])?.output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    require!(numbers(&printed) == others(), "got {:?}", numbers(&printed));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    require!(code == Some(1) && told.contains("1 damaged messages"), "{code:?}: {told}");

    require!(site.queue_number(Q, "damaged")? == 1, "status counts it");
    require!(site.queue_number(Q, "depth")? == 0, "CURDEPTH is true");
    require!(site.queue_number(DLQ, "depth")? == 1, "the dead-letter queue has it");
    let shown = site.runs(&["status"], 0)?;
    require!(shown.contains("Damaged") && shown.contains("1 messages"), "{shown}");
    let log = site.log();
    require!(log.matches("TWL2050E").count() == 1, "told once: {log}");
    daemon.stop()?;

    // It is a fact of the log, and not the message that is left but what is known of it.
    let daemon = site.start()?;
    let note = site.runs(&["browse", DLQ, "--json"], 0)?;
    for words in ["message-damaged", Q, "extent-", "offset", "damaged-log"] {
        require!(note.contains(words), "no {words} in {note}");
    }
    let shown = site.mqsc(&format!("DIS QS({Q}) DAMAGED"))?;
    require!(shown.contains("DAMAGED(0)"), "counted since the start: {shown}");
    // The answer to a commit says that it is gone; an outcome alone is not answered.
    let note = site.runs(&["get", DLQ, "--transaction", "1"], 0)?;
    require!(numbers(&note).is_empty() && note.contains("log repair"), "{note}");
    require!(site.queue_number(DLQ, "depth")? == 0, "a note that was got is gone");
    daemon.stop()
}

#[test]
fn without_a_dead_letter_queue_the_consumer_is_told_and_nothing_overtakes() -> Try {
    let site = written("")?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    site.mqsc("ALTER QMGR DEADQ(' ')")?;
    let output = site.towline(&["get", Q, "--all"])?.output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(found == (0..HIT).collect::<Vec<_>>(), "it was overtaken: {found:?}");
    require!(output.status.code() == Some(1), "{told}");
    for words in [Q, "extent-", "dead-letter queue", "damaged-log"] {
        require!(told.contains(words), "no {words} in {told}");
    }
    let output = site.towline(&["browse", Q])?.output()?;
    let left = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(output.status.code() == Some(1), "{}", said(&output));
    // The server may close the link before it has read the last outcomes: those messages return to
    // the head of the queue, in their order, and the command says so.
    require!(others().ends_with(&left), "browsed: {left:?}");
    require!(left.len() >= COUNT - HIT - 1, "browsed: {left:?}");
    let returned = left.len() - (COUNT - HIT - 1);
    let mentioned = told.contains("may still be on the queue");
    require!(mentioned || returned == 0, "{returned} returned: {told}");
    let depth = site.queue_number(Q, "depth")?;
    require!(depth == (left.len() + 1) as u64, "{depth} are left");
    require!(site.queue_number(Q, "damaged")? == 1, "status counts it");
    require!(site.log().matches("TWL2051E").count() == 1, "told once");
    let shown = site.mqsc(&format!("DIS QS({Q}) DAMAGED"))?;
    require!(shown.contains("DAMAGED(1)"), "{shown}");

    // With a dead-letter queue all goes on.
    site.mqsc(&format!("ALTER QMGR DEADQ({DLQ})"))?;
    let output = site.towline(&["get", Q, "--all"])?.output()?;
    let rest = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(rest == left, "{rest:?}");
    // It was known before, and is reported all the same.
    require!(output.status.code() == Some(1), "{}", said(&output));
    require!(said(&output).contains("1 damaged messages"), "{}", said(&output));
    require!(site.queue_number(Q, "damaged")? == 1, "counted once");
    require!(site.queue_number(DLQ, "depth")? == 1, "the dead-letter queue has it");
    daemon.stop()
}

/// The link of a client that prints slowly is closed while most of what it was sent waits in it.
#[test]
fn what_a_slow_consumer_showed_after_its_link_was_closed_stays_and_it_says_so() -> Try {
    let site = written("")?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    site.mqsc("ALTER QMGR DEADQ(' ')")?;
    let mut command = site.towline(&["get", Q, "--all"])?;
    let getting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // Its output, which is not read yet, holds fewer messages than stand before the damaged one.
    let limit = Duration::from_secs(20);
    until_true("the close of the link", limit, || site.log().contains("TWL2051E"))?;
    let output = getting.wait_with_output()?;
    let shown = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(shown == (0..HIT).collect::<Vec<_>>(), "{shown:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    require!(told.contains("may still be on the queue"), "{told}");
    let output = site.towline(&["browse", Q])?.output()?;
    let left = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(others().ends_with(&left), "in their order: {left:?}");
    require!(left.len() > COUNT - HIT, "none returned: {left:?}");
    daemon.stop()
}

#[test]
fn a_browse_reports_what_is_damaged_goes_on_and_changes_nothing() -> Try {
    let site = written(WITH_DLQ)?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    let selected = ["browse", Q, "--selector", "JMSType IS NULL"];
    for arguments in [["browse", Q].as_slice(), &selected, &["browse", Q, "--json"]] {
        let output = site.towline(arguments)?.output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        if arguments.contains(&"--json") {
            require!(printed.lines().count() == COUNT, "each other one, and the error: {printed}");
        } else {
            require!(numbers(&printed) == others(), "{arguments:?}: {:?}", numbers(&printed));
            let last = "1 damaged messages are not among these";
            require!(told.contains(last), "{arguments:?}: no {last} in {told}");
        }
        require!(output.status.code() == Some(1), "{arguments:?}: {told}");
        for words in ["message 42: ", Q, "extent-", "at offset", "log repair"] {
            require!(told.contains(words), "{arguments:?}: no {words} in {told}");
        }
        require!(site.queue_number(Q, "depth")? == COUNT as u64, "{arguments:?} took some away");
        require!(site.queue_number(DLQ, "depth")? == 0, "{arguments:?} set it aside");
    }
    let log = site.log();
    require!(log.matches("TWL2071W").count() == 1 && !log.contains("TWL2050E"), "{log}");
    require!(site.queue_number(Q, "damaged")? == 1, "status counts it");
    // A consumer that comes to it gets an error all the same.
    let output = site.towline(&["get", Q, "--all"])?.output()?;
    require!(numbers(&String::from_utf8_lossy(&output.stdout)) == others(), "{}", said(&output));
    require!(output.status.code() == Some(1), "{}", said(&output));
    require!(said(&output).contains("1 damaged messages"), "{}", said(&output));
    require!(site.queue_number(DLQ, "depth")? == 1, "now it is set aside");
    // The note itself can be browsed, as any dead letter.
    site.runs(&["browse", DLQ], 0)?;
    daemon.stop()
}

#[test]
fn a_selector_does_not_pass_over_a_message_that_cannot_be_judged() -> Try {
    let site = written(WITH_DLQ)?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    let arguments = ["get", Q, "--all", "--selector", "JMSType IS NULL"];
    let output = site.towline(&arguments)?.output()?;
    let found = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(found == others(), "{found:?}");
    require!(output.status.code() == Some(1), "{}", said(&output));
    require!(site.queue_number(DLQ, "depth")? == 1, "the dead-letter queue has it");
    daemon.stop()
}

#[test]
fn a_message_that_was_set_aside_is_whole_again_when_the_log_is_repaired_from_a_backup() -> Try {
    let site = written(WITH_DLQ)?;
    let backup = site.scratch().join("backup").to_string_lossy().into_owned();
    site.runs(&["backup", "--to", &backup], 0)?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    site.towline(&["get", Q, "--all"])?.output()?;
    require!(site.queue_number(DLQ, "depth")? == 1, "the dead-letter queue has it");
    daemon.stop()?;

    let verified = said(&site.towline(&["log", "verify"])?.output()?);
    require!(verified.contains("towline log repair"), "verify says what to do: {verified}");
    let repaired = site.runs(&["log", "repair", "--from", &backup], 0)?;
    require!(repaired.contains("repaired: extent-"), "{repaired}");
    site.runs(&["log", "verify"], 0)?;
    let again = site.runs(&["log", "repair", "--from", &backup, "--json"], 0)?;
    require!(again.contains(r#""bytes":0"#) || again.contains(r#""bytes": 0"#), "{again}");

    let daemon = site.start()?;
    let shown = site.runs(&["browse", DLQ, "--json"], 0)?;
    require!(shown.contains("message-damaged"), "why it is there stays: {shown}");
    let whole = site.runs(&["get", DLQ], 0)?;
    require!(whole.trim_end() == text(HIT), "it is not whole: {whole}");
    daemon.stop()
}

#[test]
fn a_backup_beside_a_damaged_message_is_made_and_everything_that_reads_it_says_so() -> Try {
    let site = written(WITH_DLQ)?;
    let folder = |name: &str| site.scratch().join(name).to_string_lossy().into_owned();
    let (whole, backup, at_rest) = (folder("whole"), folder("backup"), folder("at-rest"));
    site.runs(&["backup", "--to", &whole], 0)?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    let told = site.runs(&["backup", "--to", &backup], 1)?;
    for words in ["! extent-", DAMAGED, "complete except for these 1"] {
        require!(told.contains(words), "no {words} in {told}");
    }
    require!(site.log().contains("TWL2070W"), "{}", site.log());
    let again = site.runs(&["backup", "--to", &backup, "--json"], 1)?;
    let again: serde_json::Value = serde_json::from_str(&again)?;
    require!(again["damaged"][0]["messages"] == 1, "it is known still: {again}");
    require!(again["full"] == false, "{again}");
    daemon.stop()?;
    let told = site.runs(&["backup", "--to", &at_rest], 1)?;
    require!(told.contains(DAMAGED), "{told}");

    for from in [&backup, &at_rest] {
        let told = site.runs(&["backup", "verify", from], 1)?;
        require!(told.contains(DAMAGED) && told.contains("what was written"), "{told}");
        let copy = Site::open()?.with_config(WITH_DLQ);
        let told = copy.runs(&["restore", "--from", from], 1)?;
        require!(told.contains(DAMAGED) && told.contains("Start it with"), "{told}");
        let verified = copy.runs(&["log", "verify"], 1)?;
        require!(verified.contains("1 damaged batches, in them 1 damaged"), "{verified}");
        let daemon = copy.start()?;
        let output = copy.towline(&["get", Q, "--all"])?.output()?;
        let found = numbers(&String::from_utf8_lossy(&output.stdout));
        require!(found == others(), "all others came back: {found:?}");
        daemon.stop()?;
    }

    // Repaired, the next backup has all of it.
    site.runs(&["log", "repair", "--from", &whole], 0)?;
    site.runs(&["backup", "--to", &backup], 0)?;
    let told = site.runs(&["backup", "verify", &backup], 0)?;
    require!(told.contains("The backup is sound."), "{told}");
    Ok(())
}

#[test]
fn towline_move_says_what_is_damaged_and_leaves_notes_where_a_repair_finds_them() -> Try {
    let site = written(WITH_DLQ)?;
    let backup = site.scratch().join("backup").to_string_lossy().into_owned();
    site.runs(&["backup", "--to", &backup], 0)?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    site.mqsc("DEFINE QL(NEW)")?;
    // It is found while the others are moved.
    let told = said(&site.towline(&["move", Q, "NEW"])?.output()?);
    site.runs_with(&["put", DLQ], b"no note", 0)?;
    for words in ["99 messages moved", "1 damaged messages were set aside", "damaged-log"] {
        require!(told.contains(words), "no {words} in {told}");
    }
    require!(!told.contains("stay"), "none came as a note: {told}");
    // The note stays, the other message goes; again, and there is the note alone.
    for moved in [1, 0] {
        let output = site.towline(&["move", DLQ, Q, "--transaction", "1", "--json"])?.output()?;
        let told = said(&output);
        require!(output.status.code() == Some(1), "{told}");
        for words in [&format!(r#""moved":{moved}"#), "1 damaged messages stay", "MOVE QLOCAL"] {
            require!(told.replace(": ", ":").contains(words), "no {words} in {told}");
        }
        require!(!told.contains("were set aside"), "{told}");
        require!(site.queue_number(DLQ, "depth")? == 1, "the note stays: {told}");
    }
    // The server's own command keeps the position of the content.
    // The answer to a commit says that it is gone; an outcome alone is not answered.
    site.runs(&["get", Q, "--transaction", "1"], 0)?;
    site.mqsc(&format!("MOVE QLOCAL({DLQ}) TOQLOCAL({Q})"))?;
    require!(site.queue_number(Q, "depth")? == 1, "the note is in its queue again");
    daemon.stop()?;
    site.runs(&["log", "repair", "--from", &backup], 0)?;
    let daemon = site.start()?;
    site.runs(&["move", Q, "NEW"], 0)?;
    let all = site.towline(&["get", "NEW", "--all"])?.output()?;
    let found = numbers(&String::from_utf8_lossy(&all.stdout));
    let wanted: Vec<usize> = others().into_iter().chain([HIT]).collect();
    require!(found == wanted, "whole again, it can be moved: {found:?}");
    daemon.stop()
}

#[test]
fn a_repair_from_what_is_no_backup_and_no_instance_is_refused() -> Try {
    let site = written(WITH_DLQ)?;
    let nothing = site.scratch().join("nothing");
    fs::create_dir_all(&nothing)?;
    let from = nothing.to_string_lossy().into_owned();
    let refused = said(&site.towline(&["log", "repair", "--from", &from])?.output()?);
    require!(refused.contains("neither a backup nor"), "{refused}");
    Ok(())
}

#[test]
fn clear_and_delete_say_how_many_damaged_messages_go() -> Try {
    for (deadq, queue) in [(DLQ, DLQ), (" ", Q)] {
        let site = written(WITH_DLQ)?;
        damage(&site, HIT)?;
        let daemon = site.start()?;
        site.mqsc(&format!("ALTER QMGR DEADQ('{deadq}')"))?;
        site.towline(&["get", Q, "--all"])?.output()?;
        daemon.stop()?;
        // A note is one after a restart too; a message that stays is found again by the next
        // reader.
        let daemon = site.start()?;
        site.mqsc(&format!("ALTER QMGR DEADQ('{deadq}')"))?;
        site.towline(&["get", Q, "--all"])?.output()?;
        let order = if queue == DLQ { "CLEAR QL" } else { "DELETE QL" };
        let purge = if queue == DLQ { "" } else { " PURGE" };
        let said = site.mqsc(&format!("{order}({queue}){purge}"))?;
        require!(said.contains("TWL2062W: 1 of the messages"), "{said}");
        daemon.stop()?;
    }
    Ok(())
}

/// What `get --all` grants, drains and grants again while bodies are read from the disk, one of
/// which is damaged: credit stays exact, and the rest of the queue comes.
#[test]
fn a_damaged_message_in_a_deep_queue_does_not_end_the_link_of_its_consumer() -> Try {
    const MESSAGES: usize = 3_000;
    let config = format!("[log]\nextent_bytes = 4194304\n\n{WITH_DLQ}");
    for hit in [400, 1_400] {
        let site = Site::open()?.with_config(&config);
        let daemon = site.start()?;
        let line = |number: usize| format!("message {number:04} {}", "x".repeat(2_030));
        let lines: Vec<String> = (0..MESSAGES).map(line).collect();
        let input = lines.join("\n") + "\n";
        site.runs_with(&["put", Q, "--lines", "--transaction", "500"], input.as_bytes(), 0)?;
        site.runs(&["image"], 0)?;
        daemon.stop()?;
        damage_text(&site, &line(hit))?;
        let daemon = site.start()?;
        let output = site.towline(&["get", Q, "--all"])?.output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let wanted = (0..MESSAGES).filter(|number| *number != hit).map(line);
        require!(printed.lines().eq(wanted), "{} came: {told}", printed.lines().count());
        require!(told.contains("1 damaged messages"), "{told}");
        require!(site.queue_number(Q, "depth")? == 0, "all were taken");
        daemon.stop()?;
    }
    Ok(())
}

/// It cannot be logged again, so logging what lies behind it again frees nothing.
#[test]
fn beside_a_damaged_message_the_log_does_not_fill_by_itself() -> Try {
    const BODY: usize = 60_000;
    let bounds = "extent_bytes = 4194304\nreserve_bytes = 16777216\nlog_bytes_max = 155189248\n";
    let site = written(&format!("{WITH_DLQ}[log]\n{bounds}"))?;
    damage(&site, HIT)?;
    let daemon = site.start()?;
    site.towline(&["get", Q, "--all"])?.output()?;
    require!(site.queue_number(DLQ, "depth")? == 1, "it was set aside");
    pass_through(daemon.address(), "BUSY", 42_000_000)?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, "BACKLOG")?;
    for number in 0..1_340 {
        peer.put(0, number, &[b'l'; BODY])?;
    }
    let log = || -> Try<(String, u64)> {
        let status = site.status()?;
        let bytes = status["log"]["bytes_in_use"].as_u64().ok_or("no bytes_in_use")?;
        Ok((status["log"]["space"].to_string(), bytes))
    };
    let (_, before) = log()?;
    // Several times the interval at which the log is checked.
    pause(Duration::from_secs(5));
    let (space, after) = log()?;
    require!(after < before + 8_000_000, "{before} bytes grew to {after}");
    require!(space.contains("ok"), "{space}");
    daemon.stop()
}
