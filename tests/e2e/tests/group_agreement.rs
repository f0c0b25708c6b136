//! Instances of one group with configurations that differ: what may differ does no harm, and what
//! must not is refused at once with both values.

use std::process::Command;

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::said;
use towline_e2e::group::{Design, Group, Instance, NAMES, THREE, WHOLE_MAX};
use towline_e2e::peer::Peer;
use towline_e2e::workload::Workload;
use towline_e2e::{Try, paths, require, wait};

/// The smallest extents that there are.
const EXTENT_BYTES: u64 = 4 << 20;
/// The body of a message that fits into one frame: seventy fill an extent.
const BODY_BYTES: usize = 60_000;

fn log_of(extent_bytes: u64) -> String {
    format!("[log]\nextent_bytes = {extent_bytes}\n")
}

/// The same configuration with the members in this order.
fn reordered(config: &str, order: [Instance; 3]) -> Try<String> {
    const MEMBER: &str = "[[group.member]]\n";
    let mut parts = config.split(MEMBER);
    let head = parts.next().ok_or("no head")?;
    let members: Vec<&str> = parts.collect();
    require!(members.len() == 3, "{} members", members.len());
    let members = order.map(|at| format!("{MEMBER}{}\n", members[at].trim_end()));
    Ok(format!("{head}{}", members.concat()))
}

#[test]
fn members_in_another_order_make_the_same_group() -> Try {
    let mut chance = Chance::announced("members in another order");
    let mut group = Group::plan(&Design::default())?;
    for (instance, order) in THREE.into_iter().zip([[2, 0, 1], [1, 0, 2], [0, 2, 1]]) {
        let config = reordered(&group.site(instance).config, order)?;
        group.site_mut(instance).config = config;
        group.start(instance)?;
    }
    let mut active = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    for _ in 0..2 {
        let wanted = load.units_committed() + 10;
        wait::until_true("commits", WHOLE_MAX, || load.units_committed() >= wanted)?;
        group.kill(active)?;
        let next = group.until_active(None)?;
        group.start(active)?;
        active = next;
        group.until_whole()?;
    }
    group.judge(active, &load.finish()?)?;
    Ok(())
}

#[test]
fn an_instance_with_other_extents_is_refused_with_both_values_and_never_elected() -> Try {
    let design = Design { config: log_of(EXTENT_BYTES), ..Design::default() };
    let mut group = Group::plan(&design)?;
    let (wrong, right) = (2, [0, 1]);
    // A group is formed by three: it begins with the right extents and loses its disk then.
    for instance in THREE {
        group.start(instance)?;
    }
    group.until_whole()?;
    group.make_active(right[0])?;
    group.kill(wrong)?;
    group.lose_disk(wrong)?;
    let config = group.site(wrong).config.replacen(&log_of(EXTENT_BYTES), &log_of(8 << 20), 1);
    group.site_mut(wrong).config = config;
    group.start(wrong)?;
    let why = "log.extent_bytes is '4194304' at 'a' and '8388608' at 'c'";
    wait::until_true("a refusal at both ends", WHOLE_MAX, || {
        [right[0], wrong].iter().all(|at| group.site(*at).log().contains(why))
    })?;
    for (at, peer) in [(right[0], wrong), (wrong, right[0])] {
        let shown = wait::until("the reason in the status", WHOLE_MAX, || {
            let reason = group.status(at).ok()?["instances"][peer]["reason"].clone();
            reason.as_str().filter(|reason| reason.contains(why)).map(str::to_owned)
        })?;
        require!(shown.contains(why), "{shown}");
    }
    // Over some boundaries of both kinds of extents, and over a change of the active.
    let body = vec![b'x'; BODY_BYTES];
    let mut peer = Peer::begun(group.address(right[0]))?;
    peer.attach_sender(0, "BIG")?;
    for number in 0..300 {
        peer.put(0, number, &body)?;
    }
    group.switch(right[0], Some(right[1]))?;
    let mut peer = Peer::begun(group.address(right[1]))?;
    peer.attach_sender(0, "BIG")?;
    for number in 0..100 {
        peer.put(0, number, &body)?;
    }
    for at in right {
        require!(!group.has_ended(at), "{} ended: {}", NAMES[at], group.explained("other extents"));
    }
    require!(group.status(wrong)?["role"] != "active", "the wrong one is active");
    let refusals = group.site(right[0]).log().matches("TWL4104W").count();
    require!(refusals <= 2, "a refusal was told {refusals} times");
    Ok(())
}

#[test]
fn an_instance_without_a_name_is_refused_with_what_to_do() -> Try {
    let group = Group::plan(&Design::default())?;
    let site = group.site(0);
    for (given, why) in [
        ("instance = \"\"\n", "it must say which of 'a', 'b', 'c' runs with this file"),
        ("", "missing field `instance`"),
    ] {
        let file = site.scratch().join("nameless.toml");
        std::fs::write(&file, site.config.replacen("instance = \"a\"\n", given, 1))?;
        let mut command = Command::new(paths::towline()?);
        command.args(["run", "QM1", "--data"]).arg(site.scratch().join("nobody"));
        let output = command.arg("--config").arg(&file).output()?;
        require!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
    }
    Ok(())
}

#[test]
fn a_difference_that_does_no_harm_is_told_and_the_group_works() -> Try {
    let mut group = Group::plan(&Design::default())?;
    let config = group.site(1).config.clone();
    let config = config.replacen("[group]\n", "[group]\nregion_ciphers = \"ANY_TLS13\"\n", 1);
    group.site_mut(1).config = format!("[queue_manager]\nmaxumsgs = 77\n{config}");
    let other_region = "[group]\nregion_ciphers = \"TLS_AES_256_GCM_SHA384\"\n";
    group.site_mut(2).config = group.site(2).config.replacen("[group]\n", other_region, 1);
    for instance in THREE {
        group.start(instance)?;
    }
    group.until_whole()?;
    let told = "TWL4120W";
    let why = "queue_manager.maxumsgs is '10000' at 'a' and '77' at 'b'";
    let of_region = "group.region_ciphers is 'any' at 'a' and 'TLS_AES_256_GCM_SHA384' at 'c'";
    wait::until_true("a word about it", WHOLE_MAX, || {
        let log = group.site(0).log();
        [told, why, of_region].iter().all(|part| log.contains(part))
    })?;
    let log = group.site(0).log();
    require!(!log.contains("region_ciphers is 'any' at 'a' and 'any'"), "{log}");
    let rows: Value = group.status(0)?["instances"].clone();
    require!(rows[1]["reason"] == "", "{rows}");
    Ok(())
}
