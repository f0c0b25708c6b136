//! A data folder that is put back whole, as a snapshot of its volume, and a clone that is started
//! beside the original: log and hard state bear each other out, and only the other instances know
//! better.

use std::fs;
use std::path::Path;
use std::time::Duration;

use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::group::texts::{has_exactly, put, texts};
use towline_e2e::group::{Group, Instance, LINKS_PORT, NAMES};
use towline_e2e::paths::copy_folder;
use towline_e2e::{Try, require, wait};

/// Longer than two instances need to elect one of them.
const NOBODY_FOR: Duration = Duration::from_secs(4);
/// Far above what any of this takes.
const LONG: Duration = Duration::from_secs(30);

fn put_back(group: &Group, at: Instance, copy: &Path) -> Try {
    let data = &group.site(at).data;
    fs::remove_dir_all(data)?;
    copy_folder(copy, data)
}

/// How often a message stands in the log of an instance.
fn said(group: &Group, at: Instance, message: &str) -> usize {
    group.site(at).log().lines().filter(|line| line.contains(message)).count()
}

fn until_said(group: &Group, at: Instance, message: &str, times: usize) -> Try {
    let waited = wait::until_true(message, LONG, || said(group, at, message) >= times);
    waited.map_err(|_| group.explained(&format!("no {message}")).into())
}

/// No instance took its own folder for an older copy, and none was refused.
fn no_alarm(group: &Group) -> Try {
    for at in 0..3 {
        for message in ["TWL4250W", "TWL4251W"] {
            require!(said(group, at, message) == 0, "{}", group.explained(message));
        }
    }
    Ok(())
}

fn no_leader_is_elected(group: &Group, of: &[Instance]) -> Try {
    let elected =
        || of.iter().any(|at| group.status(*at).is_ok_and(|status| status["role"] == "active"));
    let is_elected = wait::until_true("an active instance", NOBODY_FOR, elected).is_ok();
    require!(!is_elected, "{}", group.explained("one was elected"));
    Ok(())
}

/// A group with one message; its active instance, and the two others.
fn with_a_message() -> Try<(Group, [Instance; 3])> {
    let group = Group::formed()?;
    let active = group.until_whole()?;
    put(&group, active, &texts(0, 1))?;
    group.until_whole()?;
    Ok((group, [active, (active + 1) % 3, (active + 2) % 3]))
}

/// Two hold messages that the third one lacks. The folder of one of the two is put back; whether
/// the other one runs then, or is away and only the stale one knows of the later start.
fn history(knows_by_active: bool) -> Try {
    let (mut group, [active, back, stale]) = with_a_message()?;
    let copy = tempfile::tempdir()?;
    group.stop(back)?;
    copy_folder(&group.site(back).data, copy.path())?;
    group.start(back)?;
    group.until_whole()?;
    group.kill(stale)?;
    put(&group, active, &texts(1, 5))?;
    group.kill(back)?;
    put_back(&group, back, copy.path())?;
    no_alarm(&group)?;
    if knows_by_active {
        group.start(back)?;
        until_said(&group, back, "TWL4250W", 1)?;
    }
    // The only log with all messages is away; the two others would be a majority.
    group.kill(active)?;
    group.start(stale)?;
    if !knows_by_active {
        group.start(back)?;
    }
    no_leader_is_elected(&group, &[back, stale])?;
    until_said(&group, back, "TWL4250W", 1)?;
    let status = group.status(back)?;
    let rows = status["instances"].as_array().cloned().unwrap_or_default();
    let own = rows.iter().find(|row| row["instance"] == NAMES[back]);
    let reason = own.and_then(|row| row["reason"].as_str()).unwrap_or_default();
    require!(reason.starts_with("its data folder was put back"), "{status}");
    // Also not after a restart: it is on its disk.
    group.kill(back)?;
    group.start(back)?;
    no_leader_is_elected(&group, &[back, stale])?;
    group.start(active)?;
    let served = group.until_whole()?;
    has_exactly(&group, served, &texts(0, 6))?;
    require!(said(&group, back, "TWL4250W") == 1, "{}", group.explained("it is said once"));
    // It is as any other again: one of two that serve.
    group.kill(served)?;
    group.until_active(Some(served))?;
    Ok(())
}

#[test]
fn a_folder_put_back_whole_gives_no_vote_and_no_acknowledged_message_is_lost() -> Try {
    history(true)?;
    history(false)
}

#[test]
fn a_copy_of_a_running_instance_that_is_put_back_is_recognised_by_what_it_acknowledged() -> Try {
    let (mut group, [active, back, _]) = with_a_message()?;
    // As a snapshot of the volume: of one moment.
    let copy = tempfile::tempdir()?;
    group.pause(back)?;
    copy_folder(&group.site(back).data, copy.path())?;
    group.resume(back)?;
    group.until_whole()?;
    group.make_active(active)?;
    put(&group, active, &texts(1, 5))?;
    group.until_whole()?;
    group.kill(back)?;
    put_back(&group, back, copy.path())?;
    group.start(back)?;
    until_said(&group, back, "TWL4250W", 1)?;
    let served = group.until_whole()?;
    has_exactly(&group, served, &texts(0, 6))
}

/// A process with a copy of the folder of an instance, and its name and certificate, at other
/// addresses.
fn clone_of(group: &Group, at: Instance, copy: &Path) -> Try<(Site, Daemon)> {
    let mut clone = Site::open()?;
    copy_folder(copy, &clone.data)?;
    let own = group.links_address(at);
    let other = own.replace(&format!(":{LINKS_PORT}"), &format!(":{}", LINKS_PORT + 1));
    clone.config = group.site(at).config.replace(&own, &other);
    let daemon = clone.start()?;
    Ok((clone, daemon))
}

#[test]
fn a_clone_beside_the_original_is_refused_and_harms_nothing_and_forgets_when_it_is_alone() -> Try {
    let (mut group, [active, original, third]) = with_a_message()?;
    let copy = tempfile::tempdir()?;
    group.stop(original)?;
    copy_folder(&group.site(original).data, copy.path())?;
    group.start(original)?;
    group.until_whole()?;
    let (clone, daemon) = clone_of(&group, original, copy.path())?;
    let refused = "another process that is instance";
    wait::until_true("its refusal", LONG, || clone.log().matches(refused).count() >= 2)?;
    for at in [active, third] {
        until_said(&group, at, "TWL4251W", 1)?;
    }
    require!(said(&group, original, "TWL4250W") == 0, "{}", group.explained("it is harmed"));
    put(&group, active, &texts(1, 5))?;
    // The original serves, and a restart of it is no clone.
    group.make_active(original)?;
    // An instance that starts hears whichever process comes first: the clone waits meanwhile.
    daemon.pause()?;
    group.kill(third)?;
    put(&group, original, &texts(6, 5))?;
    group.start(third)?;
    group.until_whole()?;
    let before = said(&group, third, "TWL4251W");
    daemon.wake()?;
    until_said(&group, third, "TWL4251W", before + 1)?;
    require!(said(&group, original, "TWL4250W") == 0, "{}", group.explained("it is harmed"));
    // Alone, it is heard, and learns that it is not what it takes itself for.
    group.kill(original)?;
    wait::until_true("it learns", LONG, || clone.log().contains("TWL4250W"))?;
    daemon.kill()?;
    let served = group.until_active(Some(original))?;
    has_exactly(&group, served, &texts(0, 11))
}

#[test]
fn restarts_switches_and_replaced_or_lost_logs_raise_no_alarm() -> Try {
    let (mut group, [first, ..]) = with_a_message()?;
    for round in 0..2 {
        for at in 0..3 {
            match round {
                0 => group.kill(at)?,
                _ => group.stop(at)?,
            }
            group.start(at)?;
            group.until_whole()?;
        }
        group.make_active((first + round) % 3)?;
        group.until_whole()?;
    }
    // All at once, and one that is paused while others come back.
    (0..3).try_for_each(|at| group.kill(at))?;
    (0..3).try_for_each(|at| group.start(at))?;
    let active = group.until_whole()?;
    let (replaced, lost) = ((active + 1) % 3, (active + 2) % 3);
    group.stop(replaced)?;
    fs::remove_dir_all(group.site(replaced).data.join("log"))?;
    group.start(replaced)?;
    group.until_whole()?;
    group.stop(lost)?;
    fs::remove_dir_all(&group.site(lost).data)?;
    fs::create_dir(&group.site(lost).data)?;
    group.start(lost)?;
    let served = group.until_whole()?;
    no_alarm(&group)?;
    has_exactly(&group, served, &texts(0, 1))
}
