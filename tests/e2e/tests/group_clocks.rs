//! Clocks that jump, and certificates that have expired: time-outs of a group go by the monotonic
//! clock, messages without an expiry stay, and an expired certificate keeps out its owner alone.

use std::time::Duration;

use towline_e2e::chance::Chance;
use towline_e2e::group::{Design, Group, Instance, NAMES, THREE, WHOLE_MAX};
use towline_e2e::peer::{Peer, transfer_in_unit};
use towline_e2e::wait;
use towline_e2e::wire::{Value, amqp, code, described, message};
use towline_e2e::workload::Workload;
use towline_e2e::{Try, require};

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;
/// Longer than clients need to go on elsewhere.
const GO_ON_MAX: Duration = Duration::from_secs(40);
const Q: &str = "CLOCKS";

fn others(instance: Instance) -> [Instance; 2] {
    [(instance + 1) % 3, (instance + 2) % 3]
}

/// So long that no instance on a busy machine misses another one: no instance is stopped or cut off
/// here.
const NEVER_MISSED: Duration = Duration::from_secs(30);

/// A group of instances with clocks and links of their own.
fn formed() -> Try<Group> {
    let missed_after = Some(NEVER_MISSED);
    Group::formed_as(&Design { net: true, clocks: true, missed_after, ..Design::default() })
}

/// What an instance logged with this id, line by line.
fn told(group: &Group, at: Instance, id: &str) -> Vec<String> {
    let log = group.site(at).log();
    log.lines().filter(|line| line.contains(id)).map(str::to_owned).collect()
}

fn until_told(group: &Group, at: Instance, id: &str, more_than: usize) -> Try {
    let what = format!("{id} from {}", NAMES[at]);
    let waited = wait::until_true(&what, WHOLE_MAX, || told(group, at, id).len() > more_than);
    waited.map_err(|error| group.explained(&error.to_string()).into())
}

fn until_committed(group: &Group, load: &Workload, more: usize) -> Try {
    let wanted = load.units_committed() + more;
    let waited = wait::until_true("commits", GO_ON_MAX, || load.units_committed() >= wanted);
    waited.map_err(|error| group.explained(&error.to_string()).into())
}

/// Puts some messages with `towline put`.
fn put(group: &Group, at: Instance, count: &str, ttl_s: Option<&str>) -> Try {
    let url = group.url(at);
    let mut arguments = vec!["put", Q, "body", "--count", count, "--url", &url];
    if let Some(seconds) = ttl_s {
        arguments.extend(["--ttl", seconds]);
    }
    group.site(at).runs(&arguments, 0)?;
    Ok(())
}

#[test]
fn wall_clocks_that_jump_elect_nobody_and_lose_nothing() -> Try {
    let mut chance = Chance::announced("wall clocks jump");
    let group = formed()?;
    let active = group.until_whole()?;
    let term = group.status(active)?["term"].clone();
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&group, &load, 5)?;
    for seconds in [HOUR_S, -HOUR_S, 0] {
        for at in THREE {
            group.shift_clock(at, seconds)?;
            until_committed(&group, &load, 5)?;
        }
    }
    require!(group.until_whole()? == active, "another one is active");
    let now = group.status(active)?["term"].clone();
    require!(now == term, "{}", group.explained(&format!("term {term} became {now}")));
    group.judge(active, &load.finish()?)?;
    Ok(())
}

/// The clock is looked at while the instance runs: what expires at a time of day does, and the age
/// of a unit of work is as before.
#[test]
fn a_step_of_the_clock_expires_messages_and_makes_no_unit_of_work_older() -> Try {
    const CONTROL: u32 = 9;
    let group = formed()?;
    let active = group.until_whole()?;
    put(&group, active, "1", Some("1800"))?;
    let mut peer = Peer::begun(group.address(active))?;
    peer.attach_sender(0, Q)?;
    peer.attach_coordinator(CONTROL)?;
    let declared = peer.control(CONTROL, 0, &described(code::DECLARE, vec![]))?;
    let unit = declared.field(0).clone();
    let body = message(true, b"in a unit");
    peer.send(&amqp(0, &transfer_in_unit(0, 1, &unit), &body))?;
    peer.expect(code::DISPOSITION)?;
    group.shift_clock(active, HOUR_S)?;
    until_told(&group, active, "TWL1050W", 0)?;
    let expired = || group.site(active).queue_number(Q, "expired").is_ok_and(|count| count == 1);
    wait::until_true("the end of the message", WHOLE_MAX, expired)?;
    // The scan for what expired, and that for units that are too old, come one with the other.
    let commit = described(code::DISCHARGE, vec![unit, Value::Bool(false)]);
    let answer = peer.control(CONTROL, 2, &commit)?;
    require!(answer.code() == Some(code::ACCEPTED), "the unit was ended: {answer:?}");
    Ok(())
}

#[test]
fn a_message_without_an_expiry_stays_whatever_the_clock_of_the_next_active_says() -> Try {
    let mut group = formed()?;
    let first = group.until_whole()?;
    put(&group, first, "20", None)?;
    put(&group, first, "5", Some("1800"))?;
    let [ahead, behind] = others(first);
    for (at, seconds, live) in [(behind, -HOUR_S, 25), (ahead, HOUR_S, 20), (first, 0, 20)] {
        // A process reads the wall clock when it starts.
        group.shift_clock(at, seconds)?;
        group.kill(at)?;
        group.start(at)?;
        group.make_active(at)?;
        let shown = group.site(at).runs(&["browse", Q], 0)?;
        let shown = shown.matches("body").count();
        require!(shown == live, "{shown} of {live} messages at {seconds:+} s");
    }
    let kept = Peer::begun(group.address(first))?.drain(Q)?.len();
    require!(kept == 20, "{kept} of 20 messages are there");
    Ok(())
}

#[test]
fn an_expired_certificate_is_told_ahead_and_keeps_out_its_owner_alone_until_it_is_renewed() -> Try {
    let mut chance = Chance::announced("a certificate expires");
    let group = formed()?;
    let active = group.until_whole()?;
    let [owner, other] = others(active);
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    let starts = THREE.map(|at| told(&group, at, "TWL1001I").len());
    // A new one that lasts for a day: taken over without a restart, and its expiry is reported.
    group.issue_papers_for(&[owner], 1)?;
    until_told(&group, owner, "TWL4105I", 0)?;
    until_told(&group, owner, "TWL4106W", 0)?;
    // Two days later.
    for at in THREE {
        group.shift_clock(at, 2 * DAY_S)?;
    }
    until_told(&group, owner, "TWL4107E", 0)?;
    for at in [active, other] {
        require!(told(&group, at, "TWL4107E").is_empty(), "{} has one that counts", NAMES[at]);
    }
    // Connections that stand are not ended.
    require!(group.until_whole()? == active, "another one is active");
    until_committed(&group, &load, 5)?;
    // New ones are refused, and the other two serve on.
    for at in [active, other] {
        group.net()?.reset(owner, at);
    }
    let refusals = |at: Instance| {
        let all = ["TWL4103W", "TWL4104W"].map(|id| told(&group, at, id)).concat();
        all.iter().filter(|line| line.contains("certificate has expired")).count()
    };
    let came = [active, other].map(|at| told(&group, at, "TWL4207I").len());
    for at in [active, other] {
        wait::until_true("a refusal", WHOLE_MAX, || refusals(at) > 0)
            .map_err(|error| group.explained(&error.to_string()))?;
    }
    require!(group.until_in_sync(2)? == active, "another one is active");
    until_committed(&group, &load, 10)?;
    let now = [active, other].map(|at| told(&group, at, "TWL4207I").len());
    require!(now == came, "{}", group.explained("it was let in"));
    // Renewed: it comes back by itself.
    let taken = told(&group, owner, "TWL4105I").len();
    group.issue_papers_for(&[owner], 365)?;
    until_told(&group, owner, "TWL4105I", taken)?;
    require!(group.until_whole()? == active, "another one is active");
    until_committed(&group, &load, 5)?;
    group.judge(active, &load.finish()?)?;
    for at in THREE {
        let again = told(&group, at, "TWL1001I").len() - starts[at];
        require!(again == 0, "{} began again", NAMES[at]);
    }
    Ok(())
}
