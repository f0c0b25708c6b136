//! Damage of the log of an instance of a group: what another one has is fetched, the extent
//! repaired, and the client notices nothing; what no instance has is set aside, as in a queue
//! manager alone.
//!
//! Not here: a queue manager alone (`damaged_messages.rs`), disks that hang or are full
//! (`group_disks.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use towline_e2e::daemon::said;
use towline_e2e::extent::flip;
use towline_e2e::group::{Design, Group, Instance, NAMES, THREE, WHOLE_MAX};
use towline_e2e::peer::{Peer, attach_receiver, credit_flow};
use towline_e2e::wire::{Value, amqp, code};
use towline_e2e::{Try, require, wait};

const Q: &str = "OLD";
const DLQ: &str = "DEV.DEAD.LETTER.QUEUE";
const COUNT: usize = 40;
/// Which one is hit.
const HIT: usize = 17;

fn text(number: usize) -> String {
    format!("message {number:03} {}", "x".repeat(4_000))
}

/// A group with messages of one unit of work that a start does not read, none of which is in
/// memory; the instance that is active.
fn written() -> Try<Group> {
    let config = "[queue_manager]\ndeadq = \"DEV.DEAD.LETTER.QUEUE\"\n";
    let group = Group::formed_as(&Design { config: config.into(), ..Design::default() })?;
    let active = group.until_whole()?;
    let lines: Vec<String> = (0..COUNT).map(text).collect();
    let input = lines.join("\n") + "\n";
    let put = ["put", Q, "--lines", "--transaction", "40"];
    group.site(active).runs_with(&put, input.as_bytes(), 0)?;
    again(group)
}

/// The same, and the beginning of the log was reclaimed: an instance that lost its disk gets a
/// copy, and not the log from its first batch on.
fn written_in_a_log_without_its_beginning() -> Try<Group> {
    let config = "[log]\nextent_bytes = 4194304\n\
                  [queue_manager]\ndeadq = \"DEV.DEAD.LETTER.QUEUE\"\n";
    let group = Group::formed_as(&Design { config: config.into(), ..Design::default() })?;
    let active = group.until_whole()?;
    let site = group.site(active);
    let input = "z".repeat(400_000) + "\n";
    site.runs_with(&["put", Q, "--lines"], input.repeat(30).as_bytes(), 0)?;
    site.runs(&["get", Q, "--all"], 0)?;
    site.runs(&["image"], 0)?;
    let first = site.data.join("log/extent-0000000000000000");
    wait::until_true("the first extent is reclaimed", WHOLE_MAX, || !first.exists())?;
    let lines: Vec<String> = (0..COUNT).map(text).collect();
    let input = lines.join("\n") + "\n";
    site.runs_with(&["put", Q, "--lines", "--transaction", "40"], input.as_bytes(), 0)?;
    again(group)
}

/// A group with messages that fill extents of 4 MiB.
fn with_large_messages(config: &str) -> Try<Group> {
    let group = Group::formed_as(&Design { config: config.into(), ..Design::default() })?;
    let active = group.until_whole()?;
    let large = |number| text(number) + &"y".repeat(400_000) + "\n";
    let input: String = (0..COUNT).map(large).collect();
    group.site(active).runs_with(&["put", Q, "--lines"], input.as_bytes(), 0)?;
    Ok(group)
}

/// The same after an end in order of all, which takes images.
fn again(mut group: Group) -> Try<Group> {
    group.until_whole()?;
    for instance in THREE {
        group.stop(instance)?;
    }
    for instance in THREE {
        group.start(instance)?;
    }
    group.make_active(0)?;
    Ok(group)
}

/// Each message is a batch of its own.
fn put_one_by_one(group: &Group, active: Instance) -> Try {
    for number in 0..COUNT {
        let line = text(number) + "\n";
        group.site(active).runs_with(&["put", Q, "--lines"], line.as_bytes(), 0)?;
    }
    Ok(())
}

/// Flips one bit of a text, in the extent of an instance that has it.
fn damage(group: &Group, instance: Instance, wanted: &str) -> Try {
    for entry in fs::read_dir(group.site(instance).data.join("log"))? {
        let path = entry?.path();
        if path.to_string_lossy().contains("extent-")
            && let Some(at) = place_in(&path, wanted.as_bytes())?
        {
            return flip(&path, at + 2_000, 3);
        }
    }
    Err(format!("{} does not have {}", NAMES[instance], &wanted[..11]).into())
}

fn place_in(extent: &Path, wanted: &[u8]) -> Try<Option<u64>> {
    let bytes = fs::read(extent)?;
    Ok(bytes.windows(wanted.len()).position(|found| found == wanted).map(|at| at as u64))
}

/// The numbers of the messages that a command printed, each of which is whole.
fn numbers(printed: &[u8]) -> Try<Vec<usize>> {
    let printed = String::from_utf8_lossy(printed);
    let mut numbers = Vec::new();
    for line in printed.lines().filter(|line| line.starts_with("message ")) {
        let number: usize = line.get(8..11).ok_or("too short")?.parse()?;
        require!(line == text(number), "message {number} is another one");
        numbers.push(number);
    }
    Ok(numbers)
}

fn times_said(group: &Group, at: Instance, id: &str) -> usize {
    group.site(at).log().matches(id).count()
}

/// Ends all, and looks at the log of each.
fn all_are_sound(mut group: Group) -> Try {
    for instance in THREE {
        group.stop(instance)?;
    }
    for instance in THREE {
        let verified = group.site(instance).towline(&["log", "verify"])?.output()?;
        let what = said(&verified);
        require!(verified.status.success(), "{}: {what}", group.explained(NAMES[instance]));
    }
    Ok(())
}

fn gets_all_once(group: &Group, active: Instance) -> Try {
    let got = group.site(active).towline(&["get", Q, "--all"])?.output()?;
    let explained = || group.explained(&said(&got));
    require!(got.status.success(), "{}", explained());
    let found = numbers(&got.stdout)?;
    require!(found == (0..COUNT).collect::<Vec<_>>(), "{found:?}: {}", explained());
    for queue in [Q, DLQ] {
        let left = group.site(active).queue_number(queue, "depth")?;
        require!(left == 0, "{left} messages in {queue}: {}", explained());
    }
    require!(group.site(active).queue_number(Q, "damaged")? == 0, "none is counted as damaged");
    Ok(())
}

#[test]
fn a_backup_fetches_what_is_damaged_from_another_instance_and_goes_on() -> Try {
    let group = written()?;
    damage(&group, 0, &text(HIT))?;
    let site = group.site(0);
    let folder = site.scratch().join("backup").to_string_lossy().into_owned();
    let told = site.runs(&["backup", "--to", &folder], 0)?;
    let explained = || group.explained(&told);
    require!(told.contains("full backup") && !told.contains("damaged"), "{}", explained());
    require!(times_said(&group, 0, "TWL4221W") == 1, "{}", explained());
    require!(times_said(&group, 0, "TWL2070W") == 0, "{}", explained());
    let verified = site.runs(&["backup", "verify", &folder], 0)?;
    require!(verified.contains("The backup is sound."), "{verified}");
    // No instance has it: the backup is made all the same.
    for instance in THREE {
        damage(&group, instance, &text(HIT))?;
    }
    let second = site.scratch().join("second").to_string_lossy().into_owned();
    let told = site.runs(&["backup", "--to", &second], 1)?;
    require!(told.contains("1 messages in it cannot be read"), "{}", group.explained(&told));
    Ok(())
}

#[test]
fn a_damaged_batch_of_the_active_instance_is_fetched_from_another_one_and_the_client_gets_all()
-> Try {
    let group = written()?;
    damage(&group, 0, &text(HIT))?;
    gets_all_once(&group, 0)?;
    require!(times_said(&group, 0, "TWL4221W") == 1, "{}", group.explained("told once"));
    let given = times_said(&group, 1, "TWL4224I") + times_said(&group, 2, "TWL4224I");
    require!(given == 1, "{}", group.explained("given once"));
    let status = group.status(0)?;
    require!(status["repaired_batches"] == 1, "{status}");
    let shown = group.site(0).runs(&["status"], 0)?;
    require!(shown.contains("1 batches from other instances"), "{shown}");
    all_are_sound(group)
}

#[test]
fn what_a_second_instance_has_damaged_too_is_fetched_from_the_third_by_both() -> Try {
    let group = written()?;
    for instance in [0, 1] {
        damage(&group, instance, &text(HIT))?;
    }
    gets_all_once(&group, 0)?;
    require!(group.status(0)?["repaired_batches"] == 1, "{}", group.explained("repaired"));
    // That it was asked showed the second one its own damage.
    let what = "the second instance repairs its log";
    let repaired = || times_said(&group, 1, "TWL4221W") == 1;
    let waited = wait::until_true(what, WHOLE_MAX, repaired);
    waited.map_err(|error| group.explained(&error.to_string()))?;
    all_are_sound(group)
}

#[test]
fn what_all_instances_have_damaged_is_set_aside_once_and_counted() -> Try {
    let group = written()?;
    for instance in THREE {
        damage(&group, instance, &text(HIT))?;
    }
    let got = group.site(0).towline(&["get", Q, "--all"])?.output()?;
    let found = numbers(&got.stdout)?;
    let others: Vec<usize> = (0..COUNT).filter(|number| *number != HIT).collect();
    require!(found == others, "{found:?}: {}", group.explained(&said(&got)));
    require!(group.site(0).queue_number(Q, "damaged")? == 1, "status counts it");
    require!(group.site(0).queue_number(DLQ, "depth")? == 1, "the dead-letter queue has it");
    for (id, times) in [("TWL2050E", 1), ("TWL4223W", 1), ("TWL4221W", 0)] {
        let said = times_said(&group, 0, id);
        require!(said == times, "{}", group.explained(&format!("{id}: {said}")));
    }
    require!(group.status(0)?["unrepaired_batches"] == 1, "{}", group.explained("status"));
    Ok(())
}

#[test]
fn what_was_set_aside_while_an_instance_was_away_is_repaired_when_it_is_back() -> Try {
    let mut group = written()?;
    for instance in [0, 1] {
        damage(&group, instance, &text(HIT))?;
    }
    group.kill(2)?;
    let got = group.site(0).towline(&["get", Q, "--all"])?.output()?;
    let others: Vec<usize> = (0..COUNT).filter(|number| *number != HIT).collect();
    require!(numbers(&got.stdout)? == others, "{}", group.explained(&said(&got)));
    require!(group.site(0).queue_number(DLQ, "depth")? == 1, "the dead-letter queue has it");
    group.start(2)?;
    // Nothing has to ask for it.
    for instance in [0, 1] {
        let repaired = || times_said(&group, instance, "TWL4221W") == 1;
        wait::until_true("the batch is repaired", WHOLE_MAX, repaired)
            .map_err(|error| group.explained(&error.to_string()))?;
    }
    let moved = group.site(0).towline(&["move", DLQ, Q])?.output()?;
    require!(moved.status.success(), "{}", group.explained(&said(&moved)));
    let got = group.site(0).towline(&["get", Q, "--all"])?.output()?;
    require!(numbers(&got.stdout)? == [HIT], "{}", group.explained(&said(&got)));
    all_are_sound(group)
}

/// Each kind of get comes to a damaged message of its own, while the process runs.
#[test]
fn browsers_selectors_correlation_ids_and_gets_without_settlement_get_what_was_damaged() -> Try {
    let group = Group::formed()?;
    let active = group.until_whole()?;
    let kinds = [(1, "BROWSED"), (2, "CORRELATED"), (3, "SELECTED"), (4, "PRESETTLED")];
    for (number, queue) in kinds {
        let line = text(number) + "\n";
        let put = ["put", queue, "--lines", "--correlation-id", "its-own"];
        group.site(active).runs_with(&put, line.as_bytes(), 0)?;
    }
    let group = again(group)?;
    for (number, _) in kinds {
        damage(&group, 0, &text(number))?;
    }
    let site = group.site(0);
    for (number, command) in [
        (1, &["browse", "BROWSED"][..]),
        (2, &["get", "CORRELATED", "--correlation-id", "its-own"]),
        (3, &["get", "SELECTED", "--selector", "JMSCorrelationID = 'its-own'"]),
    ] {
        let output = site.towline(command)?.output()?;
        let found = numbers(&output.stdout)?;
        require!(found == [number], "{command:?}: {}", group.explained(&said(&output)));
    }
    let mut peer = Peer::begun(group.address(0))?;
    let mut attach = attach_receiver(5, "PRESETTLED");
    if let Value::Described(_, list) = &mut attach
        && let Value::List(fields) = list.as_mut()
        && let Some(settled) = fields.get_mut(3)
    {
        *settled = Value::Ubyte(1);
    }
    peer.send(&amqp(0, &attach, &[]))?;
    peer.expect(code::ATTACH)?;
    peer.send(&amqp(0, &credit_flow(5, 0, 1), &[]))?;
    let got = peer.expect(code::TRANSFER)?;
    let whole = got.payload.windows(4_012).any(|found| found == text(4).as_bytes());
    require!(whole, "{}", group.explained("another message"));
    require!(site.queue_number("PRESETTLED", "depth")? == 0, "it was settled as it was sent");
    require!(times_said(&group, 0, "TWL4221W") == 4, "{}", group.explained("each is repaired"));
    require!(site.queue_number(DLQ, "depth")? == 0, "none is set aside");
    all_are_sound(group)
}

/// What a start reads is repaired before it is read; while no other instance answers, it is
/// refused.
#[test]
fn a_start_that_finds_damage_repairs_it_from_the_others_and_is_refused_without_them() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    put_one_by_one(&group, active)?;
    let [hit, third] = [(active + 1) % 3, (active + 2) % 3];
    group.kill(hit)?;
    damage(&group, hit, &text(HIT))?;
    damage(&group, hit, &text(HIT + 3))?;
    group.start(hit)?;
    group.until_whole()?;
    let said_twice = times_said(&group, hit, "TWL4221W") == 2;
    require!(said_twice, "{}", group.explained("each is repaired"));

    for instance in [hit, third, active] {
        group.kill(instance)?;
    }
    damage(&group, hit, &text(HIT))?;
    let refused = said(&group.site(hit).start_refused()?);
    for words in ["a batch before the tail is damaged", "extent-", "TWL4223W"] {
        require!(refused.contains(words), "no {words} in {refused}");
    }
    for instance in [active, third, hit] {
        group.start(instance)?;
    }
    group.make_active(hit)?;
    let got = group.site(hit).towline(&["get", Q, "--all"])?.output()?;
    let found = numbers(&got.stdout)?;
    require!(found == (0..COUNT).collect::<Vec<_>>(), "{}", group.explained(&said(&got)));
    all_are_sound(group)
}

/// Two that are damaged in different batches have together what both need: they give it to each
/// other before either runs.
#[test]
fn two_damaged_instances_whose_third_is_away_repair_each_other_and_serve() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    put_one_by_one(&group, active)?;
    for instance in THREE {
        group.kill(instance)?;
    }
    let (one, other, away) = (active, (active + 1) % 3, (active + 2) % 3);
    damage(&group, one, &text(HIT))?;
    damage(&group, other, &text(HIT + 5))?;
    damage(&group, other, &text(HIT + 9))?;
    let started = group.start_together(&[one, other]);
    started.map_err(|error| group.explained(&error.to_string()))?;
    let serving = group.until_in_sync(2)?;
    for (instance, repaired) in [(one, 1), (other, 2)] {
        let said = times_said(&group, instance, "TWL4221W");
        require!(said == repaired, "{}", group.explained(&format!("{said} repaired")));
    }
    gets_all_once(&group, serving)?;
    group.start(away)?;
    group.until_whole()?;
    all_are_sound(group)
}

/// The active one reads what another one lacks from its disk, and finds damage there.
#[test]
fn one_that_lags_is_sent_what_the_active_one_had_damaged() -> Try {
    let mut group = Group::formed()?;
    let active = group.until_whole()?;
    let away = (active + 1) % 3;
    group.kill(away)?;
    let lines: Vec<String> = (0..COUNT).map(text).collect();
    let input = lines.join("\n") + "\n";
    group.site(active).runs_with(&["put", Q, "--lines"], input.as_bytes(), 0)?;
    // Far more than what is kept in memory for others.
    let load = ["load", "put", "--count", "12000", "--size", "5000", "--quiet", "--url"];
    let url = group.url(active);
    let loaded = group.site(active).towline(&[&load[..], &[&url]].concat())?.output()?;
    require!(loaded.status.success(), "{}", group.explained(&said(&loaded)));
    damage(&group, active, &text(HIT))?;
    group.start(away)?;
    group.until_whole()?;
    require!(times_said(&group, active, "TWL4221W") == 1, "{}", group.explained("repaired"));
    require!(times_said(&group, away, "TWL4213I") == 0, "{}", group.explained("no copy"));
    all_are_sound(group)
}

/// What is copied to an instance that lost its disk is damaged, and nothing had read it.
#[test]
fn a_copy_of_a_damaged_log_is_refused_and_the_next_one_is_of_the_repaired_log() -> Try {
    let mut group = written_in_a_log_without_its_beginning()?;
    let lost = 1;
    damage(&group, 0, &text(HIT))?;
    group.kill(lost)?;
    group.lose_disk(lost)?;
    group.start(lost)?;
    group.until_whole()?;
    require!(times_said(&group, 0, "TWL4221W") == 1, "{}", group.explained("it is repaired"));
    require!(times_said(&group, lost, "TWL4213I") == 1, "{}", group.explained("a copy came"));
    gets_all_once(&group, group.until_whole()?)?;
    all_are_sound(group)
}

/// An extent that a start does not read, with messages that live, is gone:
/// docs/guides/damaged-log.md says that the start is refused, and that a full copy of another
/// instance's log restores it.
#[test]
fn an_extent_removed_by_hand_is_refused_at_a_start_and_a_full_copy_brings_it_back() -> Try {
    let config = "[log]\nextent_bytes = 4194304\n";
    let mut group = again(with_large_messages(config)?)?;
    for is_active in [false, true] {
        let active = group.until_whole()?;
        let hit = if is_active { active } else { (active + 1) % 3 };
        group.stop(hit)?;
        let extent = extent_of(&group, hit, &text(HIT))?;
        fs::remove_file(&extent)?;
        // Also while the two others serve clients: none of them has these bytes under these
        // headers.
        is_refused_until_replaced(&mut group, hit, &extent)?;
    }
    all_are_sound(group)
}

/// The oldest extent is gone, and what was written last is not yet known to be committed when the
/// instance starts: that might have taken the messages away, so it is judged when the instance has
/// applied it.
#[test]
fn the_oldest_extent_removed_by_hand_ends_the_instance_before_it_could_lead() -> Try {
    let config = "[log]\nextent_bytes = 4194304\n[queue_manager]\nimglogln = 1\n";
    let mut group = again(with_large_messages(config)?)?;
    let active = group.until_whole()?;
    let hit = (active + 1) % 3;
    let oldest = extent_of(&group, hit, &text(0))?;
    // Killed at once, the instance has not noted that this is committed.
    group.site(active).runs(&["put", Q, "one more"], 0)?;
    group.kill(hit)?;
    fs::remove_file(&oldest)?;
    is_refused_until_replaced(&mut group, hit, &oldest)?;
    all_are_sound(group)
}

/// The operator starts an instance that lacks an extent all the same: the two others have its
/// messages.
#[test]
fn an_instance_started_without_an_extent_leads_no_group_that_has_it_and_gets_a_copy() -> Try {
    let config =
        "[log]\nextent_bytes = 4194304\n[queue_manager]\ndeadq = \"DEV.DEAD.LETTER.QUEUE\"\n";
    let mut group = again(with_large_messages(config)?)?;
    for instance in THREE {
        group.stop(instance)?;
    }
    let hit = 0;
    fs::remove_file(extent_of(&group, hit, &text(HIT))?)?;
    group.site_mut(hit).arguments.push("--without-missing-extents".into());
    // Alone: it says why it is not in sync.
    group.start(hit)?;
    require!(times_said(&group, hit, "TWL2061W") == 1, "{}", group.explained("given up"));
    let status = group.status(hit)?.to_string();
    require!(status.contains("extents of its log are missing"), "{status}");
    // With one other, which stands at once, long before this one would.
    group.start(1)?;
    require!(group.until_active(None)? == 1, "{}", group.explained("who is active"));
    group.start(2)?;
    // For the active instance it is in sync meanwhile: what it acknowledges counts.
    wait::until_true("a copy came", WHOLE_MAX, || times_said(&group, hit, "TWL4213I") == 1)
        .map_err(|error| group.explained(&error.to_string()))?;
    group.until_whole()?;
    require!(times_said(&group, hit, "TWL4203I") == led_before(&group, hit), "it never led");
    let status = group.status(hit)?.to_string();
    require!(!status.contains("extents of its log are missing"), "{status}");
    // Now it may lead, and has all.
    group.make_active(hit)?;
    let browsed = group.site(hit).towline(&["browse", Q])?.output()?;
    let found = String::from_utf8_lossy(&browsed.stdout).matches("message ").count();
    require!(found == COUNT, "{found} messages: {}", group.explained(NAMES[hit]));
    require!(group.site(hit).queue_number(DLQ, "depth")? == 0, "none was set aside");
    all_are_sound(group)
}

/// How often an instance was active before it was started without an extent.
fn led_before(group: &Group, at: Instance) -> usize {
    let log = group.site(at).log();
    let before = log.split("TWL2061W").next().unwrap_or_default();
    before.matches("TWL4203I").count()
}

/// The start of an instance without this extent is refused, and a full copy restores all messages.
fn is_refused_until_replaced(group: &mut Group, hit: Instance, extent: &Path) -> Try {
    let name = extent.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let refused = said(&group.site(hit).start_refused()?);
    for words in ["TWL2060E", &name] {
        require!(refused.contains(words), "no {words} in {refused}");
    }
    let config = group.site(hit).scratch().join("towline.toml").to_string_lossy().into_owned();
    group.until_in_sync(2)?;
    group.site(hit).runs(&["instance", "replace", "--yes", "--config", &config], 0)?;
    group.start(hit)?;
    group.until_whole()?;
    group.make_active(hit)?;
    let browsed = group.site(hit).towline(&["browse", Q])?.output()?;
    let found = String::from_utf8_lossy(&browsed.stdout).matches("message ").count();
    require!(found == COUNT, "{found} messages: {}", group.explained(NAMES[hit]));
    Ok(())
}

/// The extent of an instance that has this text.
fn extent_of(group: &Group, instance: Instance, wanted: &str) -> Try<PathBuf> {
    for entry in fs::read_dir(group.site(instance).data.join("log"))? {
        let path = entry?.path();
        let is_extent = path.to_string_lossy().contains("extent-");
        if is_extent && place_in(&path, wanted.as_bytes())?.is_some() {
            return Ok(path);
        }
    }
    Err(format!("{} does not have {}", NAMES[instance], &wanted[..11]).into())
}

/// All that it says is known from the other extents: no other instance is asked, and the next start
/// finds nothing.
#[test]
fn a_damaged_header_of_an_extent_is_written_again_at_a_start_which_is_said_once() -> Try {
    // No image is due before two extents are full: a start reads all of them.
    let mut group = with_large_messages("[log]\nextent_bytes = 8388608\n")?;
    let hit = (group.until_whole()? + 1) % 3;
    group.kill(hit)?;
    flip(&group.site(hit).data.join("log/extent-0000000000000001"), 33, 2)?;
    group.start(hit)?;
    group.until_whole()?;
    let said = times_said(&group, hit, "TWL2042W");
    require!(said == 1, "{}", group.explained(&format!("{said} times")));
    require!(times_said(&group, hit, "TWL4221W") == 0, "{}", group.explained("no batch was"));
    group.kill(hit)?;
    group.start(hit)?;
    group.until_whole()?;
    // The log of the process before may be shown too.
    require!(times_said(&group, hit, "TWL2042W") <= said, "{}", group.explained("it was written"));
    all_are_sound(group)
}
