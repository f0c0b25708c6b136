//! A group of one instance: what it keeps through kills, the commands of a group, what it does when
//! its hard state, its log or its disk is not what it was, and the way from and to a queue manager
//! that is in no group.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Daemon, Site, said};
use towline_e2e::group::one::GroupOfOne;
use towline_e2e::group::{Design, Group, THREE};
use towline_e2e::history::Tally;
use towline_e2e::peer::Peer;
use towline_e2e::slow::Slow;
use towline_e2e::workload::{Workload, drain_all};
use towline_e2e::{Try, paths, require, wait};

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
/// HeartbeatTimeout of the group.
const TIMEOUT_MS: u64 = 1_500;
const ROUNDS: u32 = 12;
const SMALL: &str = "[log]\nextent_bytes = 4194304\n";

fn group_status(site: &Site) -> Try<Value> {
    Ok(site.status()?["group"].clone())
}

fn put(site: &Site, text: &str) -> Try {
    site.runs(&["put", "Q", text], 0).map(drop)
}

fn get_all(site: &Site) -> Try<String> {
    site.runs(&["get", "Q", "--all"], 0)
}

/// A copy of a folder, in the same state.
fn copy_folder(from: &Path, to: &Path) -> Try {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to.join(entry.file_name()))?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[test]
fn after_every_kill_each_acknowledged_message_is_there_once_and_no_unit_is_half() -> Try {
    let mut chance = Chance::announced("kill -9 of a group of one");
    let group = GroupOfOne::plan(SMALL)?;
    let mut daemon = group.site.start()?;
    let mut sum = Tally::default();
    for round in 0..ROUNDS {
        let after = Duration::from_millis(chance.within(50, 400));
        let load = Workload::start(&daemon, round, &mut chance);
        wait::until_true("work begun", LIMIT, || load.units_begun() > 0)?;
        wait::pause(after);
        daemon.kill()?;
        let history = load.end()?;
        daemon = group.site.start()?;
        let found = drain_all(&daemon)?;
        let tally = history.judge(&found);
        sum.add(tally.map_err(|error| format!("round {round}, killed after {after:?}: {error}"))?);
    }
    println!("{sum:?}");
    require!(sum.committed > 20, "too little was committed to prove anything: {sum:?}");
    daemon.stop()
}

#[test]
fn the_commands_of_a_group_work_with_one_instance_and_those_that_need_another_one_say_so() -> Try {
    let group = GroupOfOne::plan("")?;
    let site = &group.site;
    let daemon = site.start()?;
    put(site, "kept")?;
    let status = group_status(site)?;
    require!(status["configured_count"] == 1 && status["in_sync_count"] == 1, "{status}");
    require!(status["active"] == "a" && status["role"] == "active", "{status}");
    require!(status["serving"] == true && status["in_sync"] == true, "{status}");
    let rows = status["instances"].as_array().ok_or("no instances")?;
    require!(rows.len() == 1 && rows[0]["status"] == "normal", "{status}");
    let text = site.runs(&["status"], 0)?;
    require!(text.contains("QUORUM              1/1"), "{text}");

    let config = group.config();
    let checked = Command::new(paths::towline()?).args(["group", "check", &config]).output()?;
    require!(checked.status.success(), "{}", said(&checked));
    let refused = site.towline(&["switch"])?.output()?;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    require!(!refused.status.success() && why.contains("only one of its group"), "{why}");
    site.runs(&["switch", "--to", "a"], 0)?;
    site.runs(&["switch", "--to", "b"], 1)?;

    // Executed again in the same process.
    let pid = daemon.pid();
    let term = status["term"].as_u64();
    let restarted = site.runs(&["rolling-restart", "--this-one"], 0)?;
    require!(restarted.contains("a restarted, in sync"), "{restarted}");
    require!(site.status()?["pid"] == pid, "another process");
    require!(group_status(site)?["term"].as_u64() > term, "the same term");
    require!(get_all(site)? == "kept\n", "a restart lost a message");
    put(site, "kept again")?;

    // Without --force: there is no group that would stop with it.
    site.runs(&["stop"], 0)?;
    drop(daemon);
    let replace = ["instance", "replace", "--config", &config, "--yes", "--force"];
    let refused = site.towline(&replace)?.output()?;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    require!(refused.status.code() == Some(1) && why.contains("only one of its group"), "{why}");
    site.runs(&["instance", "force-vote", "--config", &config, "--yes"], 1)?;
    let daemon = site.start()?;
    require!(get_all(site)? == "kept again\n", "a stop lost a message");
    daemon.stop()
}

#[test]
fn a_lost_hard_state_costs_nothing_and_a_log_that_lacks_something_serves_no_client() -> Try {
    let group = GroupOfOne::plan("")?;
    let site = &group.site;
    site.start()?.stop()?;
    let older = site.scratch().join("older");
    copy_folder(&site.data.join("log"), &older)?;
    let daemon = site.start()?;
    put(site, "acknowledged")?;
    let term = group_status(site)?["term"].as_u64();
    daemon.kill()?;
    fs::remove_file(site.data.join("group-state"))?;
    let daemon = site.start()?;
    require!(group_status(site)?["term"].as_u64() > term, "no term above those of its log");
    require!(site.runs(&["browse", "Q"], 0)?.contains("acknowledged"), "it is lost");
    daemon.stop()?;

    // An older copy of the log: what was acknowledged since is not there.
    fs::remove_dir_all(site.data.join("log"))?;
    copy_folder(&older, &site.data.join("log"))?;
    let mut command = site.command()?;
    let log = fs::File::create(site.scratch().join("blank.err"))?;
    let printed = || fs::read_to_string(site.scratch().join("blank.err")).unwrap_or_default();
    let mut child = Killed(command.stderr(log).stdout(std::process::Stdio::null()).spawn()?);
    wait::until_true("TWL4232E", LIMIT, || printed().contains("TWL4232E"))?;
    wait::until_true("a status", LIMIT, || group_status(site).is_ok())?;
    let status = group_status(site)?;
    require!(status["serving"] == false && status["active"] == "", "{status}");
    require!(status["instances"][0]["status"] == "blank", "{status}");
    child.end();
    let forced = ["instance", "force-vote", "--config", &group.config(), "--yes"];
    site.runs(&forced, 0)?;
    let daemon = site.start()?;
    require!(site.runs(&["get", "Q"], 3).is_ok(), "the operator gave it up");
    put(site, "goes on")?;
    daemon.kill()?;
    let daemon = site.start()?;
    require!(get_all(site)? == "goes on\n", "it goes on from there");
    daemon.stop()
}

/// A process that is killed with its test.
struct Killed(std::process::Child);

impl Killed {
    fn end(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends its daemon before its disk goes.
struct OnSlowDisk {
    daemon: Option<Daemon>,
    disk: Slow,
}

impl Drop for OnSlowDisk {
    fn drop(&mut self) {
        // A process cannot end while its disk hangs.
        self.disk.go_on();
        self.daemon = None;
    }
}

#[test]
fn a_disk_that_hangs_keeps_clients_waiting_and_disconnects_none() -> Try {
    let group = GroupOfOne::plan("")?;
    let site = &group.site;
    let (below, log) = (site.scratch().join("below"), site.data.join("log"));
    fs::create_dir_all(&below)?;
    fs::create_dir_all(&log)?;
    let disk = Slow::mount(&below, &log, Duration::ZERO)?;
    let mut on_disk = OnSlowDisk { daemon: None, disk };
    on_disk.daemon = Some(site.start()?);
    let address = on_disk.daemon.as_ref().map(|daemon| daemon.address().to_owned());
    let mut peer = Peer::begun(&address.unwrap_or_default())?.patient(LIMIT);
    peer.attach_sender(0, "Q")?;
    peer.put(0, 0, b"before")?;
    let term = group_status(site)?["term"].as_u64();

    on_disk.disk.hang();
    peer.put_unanswered(0, 1, b"meanwhile")?;
    wait::until_true("a disk that is overdue", LIMIT, || {
        let overdue = group_status(site).map(|status| status["sync_overdue_ms"].as_u64());
        overdue.is_ok_and(|overdue| overdue >= Some(2 * TIMEOUT_MS))
    })?;
    let text = site.runs(&["status"], 0)?;
    require!(text.contains("sync overdue since "), "{text}");
    on_disk.disk.go_on();
    peer.await_accepted(1)?;
    peer.put(0, 2, b"after")?;
    let status = group_status(site)?;
    require!(status["term"].as_u64() == term, "it gave up although there is no other: {status}");
    require!(site.log().contains("TWL4320E"), "{}", site.log());
    // The disk is looked at from time to time, so a put may be answered before that is said.
    wait::until_true("TWL4321I", LIMIT, || site.log().contains("TWL4321I"))?;
    let depth = site.queue_number("Q", "depth")?;
    require!(depth == 3, "{depth} of three messages");
    Ok(())
}

#[test]
fn a_queue_manager_without_a_group_becomes_a_group_of_one_and_goes_back_by_a_backup() -> Try {
    let mut group = GroupOfOne::plan("")?;
    let with_group = std::mem::take(&mut group.site.config);
    let daemon = group.site.start()?;
    put(&group.site, "before the group")?;
    daemon.kill()?;
    group.site.config = with_group;
    let site = &group.site;
    let daemon = site.start()?;
    require!(site.runs(&["browse", "Q"], 0)?.contains("before the group"), "it is lost");
    put(site, "in the group")?;
    daemon.kill()?;
    let daemon = site.start()?;

    let backup = site.scratch().join("backup").display().to_string();
    site.runs(&["backup", "--to", &backup], 0)?;
    daemon.stop()?;
    // Its folder is one of a group: without the configuration of it, it may be one that must not
    // serve.
    let mut without = Site::open()?;
    without.data = site.data.clone();
    let refused = without.start_refused()?;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    require!(why.contains("instance of a group"), "{why}");
    let restored = Site::open()?;
    restored.runs(&["restore", "--from", &backup], 0)?;
    let daemon = restored.start()?;
    require!(get_all(&restored)? == "before the group\nin the group\n", "not what was backed up");
    daemon.stop()
}

#[test]
fn a_group_of_one_grows_to_three_by_a_forced_vote_and_one_of_three_serves_nobody_alone() -> Try {
    let mut group = Group::plan(&Design::default())?;
    let of_three = group.site(0).config.clone();
    let second = of_three.find("\n[[group.member]]\nname = \"b\"").ok_or("no second member")?;
    let of_one = of_three[..second].to_owned();
    // First in no group: its log has an id of its own.
    let before = of_three.find("[group]").ok_or("no group")?;
    group.site_mut(0).config = of_three[..before].to_owned();
    let daemon = group.site(0).start()?;
    put(group.site(0), "of none")?;
    daemon.stop()?;
    group.site_mut(0).config.clone_from(&of_one);
    group.start(0)?;
    put(group.site(0), "of one")?;
    group.stop(0)?;

    group.site_mut(0).config = of_three;
    for instance in THREE {
        group.start(instance)?;
    }
    // The one with the data is the only one that votes, and no majority.
    wait::until_true("three that are connected", LIMIT, || {
        let rows = group.status(0).map(|status| status["instances"].clone());
        rows.is_ok_and(|rows| THREE.iter().all(|at| rows[*at]["connected_here"] == true))
    })?;
    require!(
        group.status(0)?["active"] == "",
        "{}",
        group.explained("it is elected by blank ones")
    );
    group.site(1).runs(&["stop", "--force"], 0)?;
    group.await_end(1)?;
    let config = group.site(1).scratch().join("towline.toml").display().to_string();
    group.site(1).runs(&["instance", "force-vote", "--config", &config, "--yes"], 0)?;
    group.start(1)?;
    require!(group.until_whole()? == 0, "{}", group.explained("another one is active"));
    let got = group.site(2).runs(&["get", "Q", "--all", "--url", &group.url(2)], 0)?;
    require!(got == "of none\nof one\n", "{got:?}");

    put(group.site(0), "of three")?;
    for instance in THREE {
        group.kill(instance)?;
    }
    let as_of_three = group.site(0).scratch().join("as-of-three");
    copy_folder(&group.site(0).data, &as_of_three)?;
    group.site_mut(0).config = of_one;
    let printed = group.site(0).scratch().join("alone.err");
    let log = fs::File::create(&printed)?;
    let mut command = group.site(0).command()?;
    let alone = Killed(command.stderr(log).stdout(std::process::Stdio::null()).spawn()?);
    wait::until_true("TWL4232E", LIMIT, || {
        fs::read_to_string(&printed).unwrap_or_default().contains("TWL4232E")
    })?;
    let status = group.status(0);
    let serves = status.is_ok_and(|status| status["serving"] == true);
    require!(!serves, "it serves although the two others may have gone on");
    drop(alone);

    // The word of an operator, also without a start with this configuration before.
    let site = group.site(0);
    let config = site.scratch().join("towline.toml").display().to_string();
    for folder_before in [None, Some(&as_of_three)] {
        if let Some(before) = folder_before {
            fs::remove_dir_all(&site.data)?;
            copy_folder(before, &site.data)?;
        }
        site.runs(&["instance", "force-vote", "--config", &config, "--yes"], 0)?;
        let daemon = site.start()?;
        require!(site.runs(&["browse", "Q"], 0)?.contains("of three"), "it is lost");
        daemon.stop()?;
    }
    Ok(())
}
