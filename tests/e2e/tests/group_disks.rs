//! A group in which a disk does not answer, or is full: the group goes on without it.

use std::time::{Duration, Instant};

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::chaos::disk::ChaosDisk;
use towline_e2e::group::{Design, Group, Instance, MISSED_AFTER, NAMES, THREE};
use towline_e2e::peer::Peer;
use towline_e2e::slow::Slow;
use towline_e2e::through::pass_through;
use towline_e2e::workload::Workload;
use towline_e2e::{Try, require, wait};

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
/// What an election, and a busy machine, may add to the time after which a disk is held for gone.
const ELECTION_MAX: Duration = Duration::from_secs(4);

/// A group with each log on a disk that can hang.
struct Hanging {
    /// Ended before its disks go.
    group: Group,
    disks: Vec<Slow>,
}

impl Hanging {
    fn formed() -> Try<Hanging> {
        let mut group = Group::plan(&Design::default())?;
        let mut disks = Vec::new();
        for instance in THREE {
            let (below, log) = (group.site(instance).scratch().join("below"), "log");
            let log = group.site(instance).data.join(log);
            std::fs::create_dir_all(&below)?;
            std::fs::create_dir_all(&log)?;
            disks.push(Slow::mount(&below, &log, Duration::ZERO)?);
        }
        for instance in THREE {
            group.start(instance)?;
        }
        group.until_whole()?;
        Ok(Hanging { group, disks })
    }

    fn row(&self, of: Instance, at: Instance) -> Try<Value> {
        Ok(self.group.status(at)?["instances"][of].clone())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // A process cannot end while its disk hangs.
        self.disks.iter().for_each(Slow::go_on);
    }
}

fn until_committed(load: &Workload, more: usize) -> Try {
    let wanted = load.units_committed() + more;
    wait::until_true("commits", LIMIT, || load.units_committed() >= wanted)
}

#[test]
fn an_active_whose_disk_hangs_gives_up_and_clients_go_on_through_all_three() -> Try {
    let mut chance = Chance::announced("a disk that hangs");
    let hanging = Hanging::formed()?;
    let group = &hanging.group;
    let active = group.until_whole()?;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&load, 10)?;

    hanging.disks[active].hang();
    let began = Instant::now();
    let next = group.until_active(Some(active))?;
    let took = began.elapsed();
    println!("another instance was active after {took:?}");
    require!(took < MISSED_AFTER + ELECTION_MAX, "{}", group.explained(&format!("{took:?}")));
    until_committed(&load, 20).map_err(|error| group.explained(&error.to_string()))?;

    // The instance with the hanging disk says so, knows the active instance, and relays clients to
    // it.
    let said = group.site(active).log();
    require!(said.contains("TWL4320E") && said.contains("extent-"), "{said}");
    let status = group.status(active)?;
    let since = status["sync_overdue_ms"].as_u64().unwrap_or(0);
    require!(u128::from(since) >= MISSED_AFTER.as_millis(), "{status}");
    require!(status["role"] == "replica" && status["active"] == NAMES[next], "{status}");
    wait::until_true("the active one to know of it", LIMIT, || {
        hanging.row(active, next).is_ok_and(|row| row["status"] == "sync_overdue")
    })?;
    let url = group.url(active);
    group.site(next).runs(&["put", "THROUGH", "hello", "--url", &url], 0)?;
    group.site(next).runs(&["get", "THROUGH", "--url", &group.url(next)], 0)?;

    hanging.disks[active].go_on();
    require!(group.until_whole()? == next, "it took the active part back");
    until_committed(&load, 10)?;
    group.judge(next, &load.finish()?)?;
    Ok(())
}

#[test]
fn a_replica_whose_disk_hangs_does_not_become_active_and_follows_again_afterwards() -> Try {
    let mut chance = Chance::announced("a replica's disk that hangs");
    let mut hanging = Hanging::formed()?;
    let group = &hanging.group;
    let active = group.until_whole()?;
    let hangs = (active + 1) % 3;
    let load = Workload::start_returning(group.urls(), 0, &mut chance);
    until_committed(&load, 10)?;
    hanging.disks[hangs].hang();
    wait::until_true("a disk that is overdue", LIMIT, || {
        group.status(hangs).is_ok_and(|status| status["sync_overdue_ms"].as_u64() > Some(0))
    })?;
    until_committed(&load, 10).map_err(|error| group.explained(&error.to_string()))?;
    let text = group.site(hangs).runs(&["status"], 0)?;
    require!(text.contains("sync overdue since "), "{text}");
    let term = group.status(hangs)?["term"].as_u64();

    // It is one of two then, and stays where it is.
    hanging.group.kill(active)?;
    let group = &hanging.group;
    let other = 3 - active - hangs;
    wait::until_true("one without an active instance", LIMIT, || {
        group.status(other).is_ok_and(|status| status["active"] == "")
    })?;
    let status = group.status(hangs)?;
    require!(status["role"] == "replica" && status["term"].as_u64() == term, "{status}");
    hanging.disks[hangs].go_on();
    hanging.group.until_active(Some(active))?;
    hanging.group.start(active)?;
    let at = hanging.group.until_whole()?;
    hanging.group.judge(at, &load.finish()?)?;
    Ok(())
}

#[test]
fn an_active_whose_log_is_full_hands_over_to_one_that_has_room() -> Try {
    const SMALL: Instance = 0;
    let config = "[log]\nextent_bytes = 4194304\nreserve_bytes = 8388608\n";
    let design = Design { config: config.to_owned(), ..Design::default() };
    let mut group = Group::plan(&design)?;
    let bounded = format!("{config}log_bytes_max = 67108864\n");
    let site = group.site_mut(SMALL);
    site.config = site.config.replace(config, &bounded);
    for instance in THREE {
        group.start(instance)?;
    }
    group.until_whole()?;
    group.make_active(SMALL)?;
    let mut peer = Peer::begun(group.address(SMALL))?;
    peer.attach_sender(0, "FULL")?;
    let body = vec![b'x'; 50_000];
    let refused = (0..5_000).find(|number| peer.put(0, *number, &body).is_err());
    require!(refused.is_some(), "5,000 messages of 50 kB fit on 64 MiB");
    let next = group.until_active(Some(SMALL))?;
    wait::until_true("a put at the instance that has room", LIMIT, || {
        let put = Peer::begun(group.address(next)).and_then(|mut peer| {
            peer.attach_sender(0, "FULL")?;
            peer.put(0, 0, b"again")
        });
        put.is_ok()
    })?;
    let said = group.site(SMALL).log();
    require!(said.matches("TWL4322W").count() == 1, "{said}");
    Ok(())
}

#[test]
fn an_instance_that_becomes_active_with_a_full_log_refuses_puts_and_gets_go_on() -> Try {
    let config =
        "[log]\nextent_bytes = 4194304\nreserve_bytes = 8388608\nlog_bytes_max = 67108864\n";
    let mut group = Group::formed_as(&Design { config: config.to_owned(), ..Design::default() })?;
    let mut filled = 0_u32;
    for _ in 0..2 {
        let active = group.until_whole()?;
        let mut peer = Peer::begun(group.address(active))?;
        peer.attach_sender(0, "FULL")?;
        let body = vec![b'x'; 50_000];
        let refused = (0..5_000).find(|number| peer.put(0, *number, &body).is_err());
        let taken = refused.ok_or("5,000 messages of 50 kB fit on 64 MiB")?;
        require!(filled == 0 || taken == 0, "{taken} more after {filled}: the reserve is used up");
        filled += taken;
        group.kill(active)?;
        group.until_active(Some(active))?;
        group.start(active)?;
    }
    let active = group.until_whole()?;
    let mut peer = Peer::begun(group.address(active))?;
    let got = peer.drain("FULL")?.len();
    require!(got == usize::try_from(filled)?, "{got} of {filled}");
    wait::until_true("room for puts", LIMIT, || {
        let put = Peer::begun(group.address(active)).and_then(|mut peer| {
            peer.attach_sender(0, "FULL")?;
            peer.put(0, 0, b"again")
        });
        put.is_ok()
    })
}

/// Also when the active instance changes meanwhile: what a replica applied it relocates later.
#[test]
fn one_forgotten_message_never_fills_the_logs_of_a_group() -> Try {
    let config =
        "[log]\nextent_bytes = 4194304\nreserve_bytes = 1048576\nlog_bytes_max = 17825792\n";
    let mut group = Group::formed_as(&Design { config: config.to_owned(), ..Design::default() })?;
    let active = group.until_whole()?;
    group.site(active).runs(&["put", "FORGOTTEN", "a message of 21 bytes"], 0)?;
    for _ in 0..2 {
        let active = group.until_whole()?;
        pass_through(group.address(active), "BUSY", 48 << 20)
            .map_err(|error| group.explained(&error.to_string()))?;
        group.kill(active)?;
        group.until_active(Some(active))?;
        group.start(active)?;
    }
    let active = group.until_whole()?;
    let texts = Peer::begun(group.address(active))?.drain("FORGOTTEN")?;
    require!(texts == ["a message of 21 bytes"], "{texts:?}");
    Ok(())
}

/// Neither a byte nor a file can be added: what a start and a re-execution write stands in what is
/// there.
#[test]
fn an_instance_without_one_free_byte_or_name_re_executes_itself_and_is_started() -> Try {
    const SMALL: Instance = 0;
    let config = "[log]\nextent_bytes = 4194304\nreserve_bytes = 8388608\n";
    let mut group = Group::plan(&Design { config: config.into(), ..Design::default() })?;
    let disk = ChaosDisk::plain(group.site(SMALL))?;
    for instance in THREE {
        group.start(instance)?;
    }
    group.until_whole()?;
    group.make_active(SMALL)?;
    group.site(SMALL).runs(&["put", "Q", "hello"], 0)?;
    disk.fill()?;
    disk.take_names()?;
    let term = group.status(SMALL)?["term"].as_u64();
    // It re-executes itself when it hands over.
    let next = group.switch(SMALL, Some(1))?;
    let is_back = wait::until_true("it is back as a replica", LIMIT, || {
        let status = group.status(SMALL).unwrap_or_default();
        status["term"].as_u64() > term && status["in_sync"] == true
    });
    is_back.map_err(|error| group.explained(&error.to_string()))?;
    require!(!group.has_ended(SMALL), "{}", group.explained("it ended"));
    let said = group.site(SMALL).log();
    require!(!said.contains("TWL1014E"), "{said}");
    group.kill(SMALL)?;
    group.start(SMALL).map_err(|error| group.explained(&error.to_string()))?;
    require!(group.until_whole()? == next, "{}", group.explained("another active one"));
    let got = group.site(next).runs(&["get", "Q"], 0)?;
    require!(got.trim() == "hello", "{got}");
    drop(group);
    drop(disk);
    Ok(())
}
