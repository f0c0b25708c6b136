//! Instances of a group that stand still (SIGSTOP) and go on: what they say of themselves and of
//! the others is never better than what they know.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::said;
use towline_e2e::group::{Group, Instance, MISSED_AFTER, NAMES, THREE};
use towline_e2e::peer::Peer;
use towline_e2e::workload::Workload;
use towline_e2e::{Try, require, wait};

/// Longer than HeartbeatTimeout of these groups.
const STILL: Duration = Duration::from_millis(2_500);
/// What a busy machine may add to an answer.
const BUSY: Duration = Duration::from_millis(1_000);

#[test]
fn a_replica_that_stood_still_does_not_call_itself_normal_before_it_has_heard_its_leader() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let (still, other) = ((active + 1) % 3, (active + 2) % 3);
    group.site(active).runs(&["put", "Q", "hello"], 0)?;
    group.pause(still)?;
    // What they sent meanwhile waits in its sockets, and nothing comes after it.
    wait::pause(MISSED_AFTER / 4);
    group.pause(other)?;
    group.pause(active)?;
    wait::pause(STILL);
    let resumed = Instant::now();
    // Asked while it stands still: answered by whichever thread runs first.
    let asked: Vec<UnixStream> = (0..8).map(|_| asked(&group, still)).collect::<Try<_>>()?;
    group.resume(still)?;
    for stream in &asked {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        knows_nothing(&answer["ok"]["group"], still)?;
    }
    let mut answers = 0;
    while resumed.elapsed() < MISSED_AFTER + BUSY {
        let Ok(status) = group.status(still) else { continue };
        answers += 1;
        knows_nothing(&status, still)?;
    }
    require!(answers > 10, "{answers} answers");
    Ok(())
}

/// A status that was asked for on the instance's control socket, and is not answered yet.
fn asked(group: &Group, instance: Instance) -> Try<UnixStream> {
    let stream = UnixStream::connect(group.site(instance).data.join("towline-control.sock"))?;
    stream.set_read_timeout(Some(STILL * 4))?;
    (&stream).write_all(b"{\"do\":\"status\"}\n")?;
    Ok(stream)
}

/// Whether it calls neither itself nor another one normal.
fn knows_nothing(status: &Value, still: Instance) -> Try {
    let rows = status["instances"].as_array().cloned().unwrap_or_default();
    let better = rows.iter().any(|row| row["status"] == "normal" || row["in_sync"] == true);
    require!(!better && status["in_sync"] == false, "{} says {status}", NAMES[still]);
    Ok(())
}

#[test]
fn a_replica_that_stood_still_is_normal_again_when_it_has_heard_its_leader() -> Try {
    let mut chance = Chance::announced("SIGSTOP of a replica");
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let still = (active + 1) % 3;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    for _ in 0..4 {
        group.pause(still)?;
        wait::pause(STILL);
        group.resume(still)?;
        let normal = wait::until_true("it is normal again", Duration::from_secs(30), || {
            let status = group.status(still).unwrap_or_default();
            status["in_sync"] == true && status["instances"][still]["status"] == "normal"
        });
        normal.map_err(|error| group.explained(&error.to_string()))?;
    }
    // A write that was under way when it was stopped was not the fault of the disk.
    for instance in THREE {
        let told = group.site(instance).log();
        require!(!told.contains("TWL4320E"), "{}: {told}", NAMES[instance]);
    }
    let at = group.until_whole()?;
    group.judge(at, &load.finish()?)?;
    Ok(())
}

#[test]
fn a_switch_to_an_instance_that_was_just_stopped_is_refused_with_words_and_clients_stay() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let (still, other) = ((active + 1) % 3, (active + 2) % 3);
    let mut peer = Peer::begun(group.address(active))?;
    peer.attach_sender(0, "Q")?;
    for through in [active, other] {
        group.until_whole()?;
        group.pause(still)?;
        let began = Instant::now();
        let output = group.site(through).towline(&["switch", "--to", NAMES[still]])?.output()?;
        let took = began.elapsed();
        group.resume(still)?;
        let words = said(&output);
        require!(output.status.code() == Some(1), "{words}");
        require!(took < MISSED_AFTER + BUSY, "{took:?}: {words}");
        let named = format!("'{}'", NAMES[still]);
        require!(words.contains(&named), "{words}");
        // The second, when the active one has missed it meanwhile.
        let why = ["stands still", "is not in sync, but '"];
        require!(why.iter().any(|why| words.contains(why)), "{words}");
        require!(group.until_whole()? == active, "{}", group.explained("another active one"));
    }
    // Its clients were not sent away for nothing.
    peer.put(0, 0, b"hello")?;
    Ok(())
}
