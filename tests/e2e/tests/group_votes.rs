//! An instance gives no vote when its log is not the one for which it made its promises: it was
//! replaced, an older copy of it was put back, or its hard state is an older one. So no instance is
//! elected that lacks what was acknowledged, and everything is there when an instance comes back
//! that has it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use towline_e2e::Try;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::said;
use towline_e2e::extent;
use towline_e2e::group::texts::{has_exactly, put, texts};
use towline_e2e::group::{Design, Group, Instance, NAMES, THREE};
use towline_e2e::lossy::mount::{Lossy, folder_on};
use towline_e2e::paths::{self, copy_folder};
use towline_e2e::peer::Peer;
use towline_e2e::{require, wait};

/// Longer than two instances need to elect one of them: tries come after at most a tenth of a
/// second.
const NOBODY_FOR: Duration = Duration::from_secs(4);

/// Small ones: they are read again and again.
const EXTENT_BYTES: u64 = 4 << 20;
/// Batches begin at multiples of this.
const BLOCK: u64 = 4096;

/// How an instance comes to a log that is not the one it acknowledged with.
#[derive(Clone, Copy, Debug)]
enum Forgets {
    /// `towline instance replace`.
    Replaced,
    /// An older copy of `log`, as a backup of the folder restores it; `group-state` is the
    /// newest.
    OlderLog,
    /// The same, and the copy was made of a running instance that was not started again since: only
    /// what it noted as committed shows it.
    LogOfThisLife,
    /// The log is the newest, `group-state` and `group-committed` are older copies.
    OlderState,
    /// Its disk was lost.
    Wiped,
}

fn data(group: &Group, at: Instance) -> &Path {
    &group.site(at).data
}

/// What is copied beforehand, to be put back.
fn save(group: &Group, at: Instance, to: &Path) -> Try {
    copy_folder(&data(group, at).join("log"), &to.join("log"))?;
    for name in ["group-state", "group-committed"] {
        if data(group, at).join(name).is_file() {
            fs::copy(data(group, at).join(name), to.join(name))?;
        }
    }
    Ok(())
}

fn forget(group: &Group, at: Instance, how: Forgets, saved: &Path) -> Try {
    let data = data(group, at);
    match how {
        Forgets::Replaced => {
            let refused = command(group, at, "replace", &[])?.output()?;
            let said = said(&refused);
            require!(refused.status.code() == Some(1) && said.contains("--force"), "{said}");
            runs(group, at, "replace", &["--force"])?;
        }
        Forgets::OlderLog | Forgets::LogOfThisLife => {
            fs::remove_dir_all(data.join("log"))?;
            copy_folder(&saved.join("log"), &data.join("log"))?;
        }
        Forgets::OlderState => {
            fs::copy(saved.join("group-state"), data.join("group-state"))?;
            drop(fs::remove_file(data.join("group-committed")));
        }
        Forgets::Wiped => {
            fs::remove_dir_all(data)?;
            fs::create_dir(data)?;
        }
    }
    Ok(())
}

/// `towline instance ...` for an instance.
fn command(group: &Group, at: Instance, what: &str, more: &[&str]) -> Try<Command> {
    let mut command = Command::new(paths::towline()?);
    command.args(["instance", what, "--yes", "--data"]).arg(data(group, at));
    command.arg("--config").arg(group.site(at).scratch().join("towline.toml")).args(more);
    Ok(command)
}

fn runs(group: &Group, at: Instance, what: &str, more: &[&str]) -> Try<String> {
    let output = command(group, at, what, more)?.output()?;
    require!(output.status.success(), "{}", said(&output));
    Ok(said(&output))
}

/// No instance is elected for so long.
fn no_leader_is_elected(group: &Group, of: &[Instance]) -> Try {
    let until = std::time::Instant::now() + NOBODY_FOR;
    while std::time::Instant::now() < until {
        for at in of {
            if let Ok(status) = group.status(*at) {
                let active = status["active"].as_str().unwrap_or_default().to_owned();
                if !active.is_empty() || status["role"] == "active" {
                    return Err(group.explained(&format!("{active} was elected")).into());
                }
            }
        }
        wait::pause(Duration::from_millis(50));
    }
    Ok(())
}

/// The active instance has given up, for it hears no majority, and none is elected for so long.
fn no_leader_is_elected_in_time(group: &Group, of: &[Instance]) -> Try {
    wait::until_true("the end of the active part", Duration::from_secs(20), || {
        of.iter().all(|at| group.status(*at).is_ok_and(|status| status["role"] != "active"))
    })?;
    no_leader_is_elected(group, of)
}

/// The status of an instance says that it waits to hear from this other one, and from no other.
fn waits_for(group: &Group, at: Instance, missing: Instance) -> Try {
    let status = group.status(at)?;
    let rows = status["instances"].as_array().cloned().unwrap_or_default();
    let own = rows.iter().find(|row| row["instance"] == NAMES[at]);
    let reason = own.and_then(|row| row["reason"].as_str()).unwrap_or_default();
    let wanted = format!("waits until it has heard from '{}'", NAMES[missing]);
    require!(reason.ends_with(&wanted), "{}", group.explained(&format!("it says '{reason}'")));
    let warned = format!("until it has heard from '{}'", NAMES[missing]);
    let log = group.site(at).log();
    let is_warned = log.lines().any(|line| line.contains("TWL4230W") && line.contains(&warned));
    require!(is_warned, "{}", group.explained("no TWL4230W"));
    Ok(())
}

/// One of the two that hold a message forgets it, the third never had it, the second is away.
fn history(how: Forgets, active_forgets: bool, chance: &mut Chance) -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let (stale, other) = match chance.within(0, 2) {
        0 => ((active + 1) % 3, (active + 2) % 3),
        _ => ((active + 2) % 3, (active + 1) % 3),
    };
    let (forgetful, keeps) = if active_forgets { (active, other) } else { (other, active) };
    println!("{how:?}: {} forgets, {} is stale", NAMES[forgetful], NAMES[stale]);
    put(&group, active, &texts(0, 1))?;
    wait::pause(Duration::from_millis(chance.within(0, 1_500)));
    // An older copy is one of an instance that does not run: here of one life before.
    let saved = tempfile::tempdir()?;
    if matches!(how, Forgets::LogOfThisLife) {
        save(&group, forgetful, saved.path())?;
    } else {
        group.kill(forgetful)?;
        save(&group, forgetful, saved.path())?;
        group.start(forgetful)?;
        group.until_whole()?;
        group.make_active(active)?;
    }
    group.until_whole()?;
    group.kill(stale)?;
    put(&group, active, &texts(1, 5))?;
    // What was noted is a second old at most.
    let least = if matches!(how, Forgets::LogOfThisLife) { 1_500 } else { 0 };
    wait::pause(Duration::from_millis(chance.within(least, 2_500)));
    let (first, second) =
        if chance.within(0, 2) == 0 { (keeps, forgetful) } else { (forgetful, keeps) };
    group.kill(first)?;
    group.kill(second)?;
    forget(&group, forgetful, how, saved.path())?;
    group.start(forgetful)?;
    group.start(stale)?;
    no_leader_is_elected(&group, &[forgetful, stale])?;
    waits_for(&group, forgetful, keeps)?;
    // Also not after a restart of the one that forgot: it is on its disk.
    group.kill(forgetful)?;
    group.start(forgetful)?;
    no_leader_is_elected(&group, &[forgetful, stale])?;
    waits_for(&group, forgetful, keeps)?;
    group.start(keeps)?;
    let served = group.until_whole()?;
    has_exactly(&group, served, &texts(0, 6))?;
    Ok(())
}

#[test]
fn a_replaced_instance_gives_no_vote_and_no_acknowledged_message_is_lost() -> Try {
    let mut chance = Chance::announced("a replaced instance");
    history(Forgets::Replaced, false, &mut chance)?;
    history(Forgets::Replaced, true, &mut chance)
}

#[test]
fn an_instance_with_an_older_log_gives_no_vote_and_no_acknowledged_message_is_lost() -> Try {
    let mut chance = Chance::announced("an older log");
    history(Forgets::OlderLog, true, &mut chance)?;
    history(Forgets::OlderLog, false, &mut chance)?;
    history(Forgets::LogOfThisLife, chance.within(0, 2) == 0, &mut chance)
}

/// Where the log of an instance that does not run ends.
fn log_end(group: &Group, at: Instance) -> Try<u64> {
    let batches = extent::batches(&data(group, at).join("log"))?;
    let last = batches.last().ok_or("no batch")?;
    let name = last.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sequence = u64::from_str_radix(name.trim_start_matches("extent-"), 16)?;
    Ok(sequence * EXTENT_BYTES + last.offset + last.bytes.next_multiple_of(BLOCK))
}

/// Where it ends as the active one knows.
fn acknowledged(group: &Group, active: Instance, of: Instance) -> Try<u64> {
    let status = group.status(active)?;
    let rows = status["instances"].as_array().cloned().unwrap_or_default();
    let row = rows.iter().find(|row| row["instance"] == NAMES[of]);
    let text = row.and_then(|row| row["ack_lsn"].as_str()).unwrap_or_default();
    // Four numbers of 16 bits, the highest first.
    let parts = text.trim_matches(['<', '>']).split(':').map(str::parse::<u64>);
    let parts = parts.collect::<Result<Vec<_>, _>>().map_err(|_| format!("{status}"))?;
    let end = parts.iter().fold(0, |sum, part| sum << 16 | part);
    Ok(end.next_multiple_of(BLOCK))
}

/// An active instance that no other one hears goes on appending: what no other log has.
fn append_alone(group: &Group, alone: Instance) -> Try {
    let mut peer = Peer::begun(group.address(alone))?;
    peer.attach_sender(0, "Q")?;
    group.net()?.isolate(alone);
    let batches = || extent::batches(&data(group, alone).join("log")).map(|all| all.len());
    // No more than two batches wait for others: the second one is larger, so that there is space
    // for what a newer term writes there instead.
    for (number, bytes) in [(0, 10), (1, 30_000)] {
        let before = batches()?;
        peer.put_unanswered(0, number, &vec![b'x'; bytes])?;
        wait::until_true("a batch of its own", Duration::from_secs(20), || {
            batches().is_ok_and(|now| now > before)
        })?;
    }
    Ok(())
}

#[test]
fn an_older_log_of_the_same_length_gives_no_vote_and_no_acknowledged_message_is_lost() -> Try {
    let config = format!("[log]\nextent_bytes = {EXTENT_BYTES}\n");
    // Enough for two batches on a busy machine, and less than elections are waited for.
    let missed_after = Some(Duration::from_secs(3));
    let mut group =
        Group::formed_as(&Design { net: true, config, missed_after, ..Design::default() })?;
    let forgetful = group.until_whole()?;
    put(&group, forgetful, &texts(0, 1))?;
    group.until_whole()?;
    append_alone(&group, forgetful)?;
    group.kill(forgetful)?;
    let saved = tempfile::tempdir()?;
    save(&group, forgetful, saved.path())?;
    let length = log_end(&group, forgetful)?;
    // What was on its way is gone with the connections.
    for other in THREE.into_iter().filter(|other| *other != forgetful) {
        group.net()?.reset(forgetful, other);
    }
    group.net()?.heal_all();
    group.until_active(Some(forgetful))?;
    // Its end gives way to that of a newer term, which grows as long as the copy.
    group.start(forgetful)?;
    let keeps = group.until_whole()?;
    require!(keeps != forgetful, "{}", group.explained("the shorter log of a newer term leads"));
    let stale = 3 - keeps - forgetful;
    group.kill(stale)?;
    let mut count = 1;
    while acknowledged(&group, keeps, forgetful)? < length {
        put(&group, keeps, &texts(count, 1))?;
        count += 1;
    }
    let now = acknowledged(&group, keeps, forgetful)?;
    println!("the copy has {length} bytes, the log {now}, of {count} messages");
    require!(count > 1 && now == length, "{now} is not the same length as {length}");
    group.kill(keeps)?;
    group.kill(forgetful)?;
    forget(&group, forgetful, Forgets::OlderLog, saved.path())?;
    require!(log_end(&group, forgetful)? == length, "the copy is another one");
    group.start(forgetful)?;
    group.start(stale)?;
    no_leader_is_elected(&group, &[forgetful, stale])?;
    waits_for(&group, forgetful, keeps)?;
    group.start(keeps)?;
    let served = group.until_whole()?;
    let (there, wanted) = (Peer::begun(group.address(served))?.drain("Q")?, texts(0, count));
    require!(there == wanted, "{there:?} is there of {wanted:?}");
    Ok(())
}

#[test]
fn an_instance_with_an_older_or_no_hard_state_gives_no_vote() -> Try {
    let mut chance = Chance::announced("an older hard state");
    history(Forgets::OlderState, chance.within(0, 2) == 0, &mut chance)?;
    history(Forgets::Wiped, chance.within(0, 2) == 0, &mut chance)
}

#[test]
fn a_group_of_which_two_may_not_vote_is_brought_back_as_the_guide_says() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let (lost, other) = ((active + 1) % 3, (active + 2) % 3);
    put(&group, active, &texts(0, 5))?;
    group.kill(lost)?;
    put(&group, active, &texts(5, 5))?;
    let refused = command(&group, lost, "force-vote", &[])?.output()?;
    require!(refused.status.code() == Some(1), "it has its vote: {}", said(&refused));
    // The third is gone for good, and neither of the two that are left knows what it promised.
    group.kill(active)?;
    group.kill(other)?;
    for at in [active, other] {
        fs::remove_file(data(&group, at).join("group-state"))?;
        group.start(at)?;
    }
    no_leader_is_elected(&group, &[active, other])?;
    for (asked, of) in [(active, active), (active, other), (other, active), (other, other)] {
        let row = group.status(asked)?["instances"][of].take();
        require!(row["status"] == "blank", "{} says {row}", NAMES[asked]);
    }
    // The steps of docs/guides/native-ha.md, "The group does not elect an active instance".
    group.kill(active)?;
    let shown = runs(&group, active, "force-vote", &[])?;
    require!(shown.contains(&format!("{} ", NAMES[other])), "{shown}");
    require!(shown.contains("does not answer") && shown.contains("The longest log"), "{shown}");
    group.start(active)?;
    no_leader_is_elected(&group, &[active, other])?;
    group.kill(other)?;
    runs(&group, other, "force-vote", &[])?;
    group.start(other)?;
    let served = group.until_in_sync(2)?;
    has_exactly(&group, served, &texts(0, 10))?;
    // The third one comes back after all, as one that was away.
    group.start(lost)?;
    group.until_whole()?;
    // With an active instance there is nothing to be forced.
    group.kill(lost)?;
    fs::remove_file(data(&group, lost).join("group-state"))?;
    let refused = command(&group, lost, "force-vote", &[])?.output()?;
    let said = said(&refused);
    require!(refused.status.code() == Some(1) && said.contains("is active"), "{said}");
    // Nor is a log set aside without which the others could not go on.
    group.kill(other)?;
    let refused = command(&group, lost, "replace", &[])?.output()?;
    require!(refused.status.code() == Some(1), "the other one does not run");
    group.start(other)?;
    group.until_in_sync(2)?;
    runs(&group, lost, "replace", &[])?;
    group.start(lost)?;
    group.until_whole()?;
    Ok(())
}

#[test]
fn an_instance_with_an_empty_disk_waits_for_one_that_is_gone_until_an_operator_ends_that() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let (lost, gone) = ((active + 1) % 3, (active + 2) % 3);
    put(&group, active, &texts(0, 5))?;
    group.until_whole()?;
    // Both that may have taken part in the newest term are asked, and one of them never answers.
    group.kill(gone)?;
    group.kill(lost)?;
    forget(&group, lost, Forgets::Wiped, Path::new(""))?;
    group.start(lost)?;
    no_leader_is_elected_in_time(&group, &[active, lost])?;
    waits_for(&group, lost, gone)?;
    group.kill(lost)?;
    runs(&group, lost, "force-vote", &[])?;
    group.start(lost)?;
    let served = group.until_in_sync(2)?;
    require!(served == active, "the one with the log is active: {}", group.explained(""));
    has_exactly(&group, served, &texts(0, 5))?;
    Ok(())
}

#[test]
fn a_term_and_a_vote_are_on_the_disk_before_any_other_instance_hears_of_them() -> Try {
    let mut chance = Chance::announced("votes and power cuts");
    let lossy = Lossy::mount(4 << 30)?;
    let mut group = Group::plan(&Design::default())?;
    let voter = chance.index(THREE.len());
    group.site_mut(voter).data = folder_on(&lossy, "data")?;
    for instance in THREE {
        group.start(instance)?;
    }
    for round in 0..3 {
        group.until_whole()?;
        let active = (voter + 1 + round % 2) % 3;
        group.make_active(active)?;
        group.until_whole()?;
        // One of the other two is elected, and only with the vote of both.
        group.kill(active)?;
        group.until_active(Some(active))?;
        group.kill(voter)?;
        let state = data(&group, voter).join("group-state");
        let said = fs::read(&state)?;
        lossy.cut_power(0, &mut chance);
        require!(fs::read(&state)? == said, "round {round}: a write was not synced");
        group.start(voter)?;
        group.start(active)?;
    }
    // What an active instance found committed when it became active is noted durably: in a young
    // group nothing else would show that a log is missing.
    group.until_whole()?;
    group.make_active(voter)?;
    let note = data(&group, voter).join("group-committed");
    let first = fs::read(&note).unwrap_or_default();
    // It is the first one of an active instance that is synced; what changes later comes after
    // that.
    wait::until_true("another note", Duration::from_secs(20), || {
        fs::read(&note).is_ok_and(|now| now != first)
    })?;
    group.kill(voter)?;
    lossy.cut_power(0, &mut chance);
    let note = fs::read(&note)?;
    require!(note.windows(8).any(|bytes| bytes == b"TOWLINES"), "the note was not synced");
    group.start(voter)?;
    group.until_whole()?;
    Ok(())
}
