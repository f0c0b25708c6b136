//! One test for each sign: a disk that would be honest but for this.

use super::*;

fn storage() -> Storage {
    Storage {
        folder: "/data".into(),
        file_system: "ext4".into(),
        kind: Kind::Local,
        mount_source: Some("/dev/sda1".into()),
        mount_options: vec!["rw".into(), "relatime".into()],
        device: Some(Device {
            name: "sda".into(),
            write_cache: Some("write back".into()),
            fua: Some(false),
            rotational: Some(false),
            is_virtual: false,
        }),
    }
}

fn probe() -> Probe {
    Probe {
        buffered_write_p50_us: 2.5,
        buffered_sync_p50_us: 600.0,
        direct_write_p50_us: Some(40.0),
        direct_sync_p50_us: Some(500.0),
        bulk_sync_bytes_per_s: 450e6,
    }
}

fn device(change: impl FnOnce(&mut Device)) -> Storage {
    let mut storage = storage();
    change(storage.device.as_mut().unwrap());
    storage
}

fn options(options: &[&str]) -> Storage {
    let mount_options = options.iter().map(|option| (*option).to_owned()).collect();
    Storage { mount_options, ..storage() }
}

#[track_caller]
fn expect(storage: &Storage, probe: Probe, verdict: Verdict, because: &str) {
    let judgement = judge(storage, probe);
    assert_eq!(judgement.verdict, verdict, "{:#?}", judgement.evidence);
    let said = judgement.evidence.iter().any(|sentence| sentence.contains(because));
    assert!(said, "{because:?} is not in {:#?}", judgement.evidence);
}

#[test]
fn a_disk_whose_flush_costs_time_is_honest() {
    expect(&storage(), probe(), Verdict::Honest, "volatile cache");
}

#[test]
fn a_disk_without_a_volatile_cache_is_honest_though_its_sync_is_fast() {
    let storage = device(|device| device.write_cache = Some("write through".into()));
    let fast = Probe {
        buffered_sync_p50_us: 25.0,
        direct_write_p50_us: Some(11.0),
        direct_sync_p50_us: Some(11.5),
        bulk_sync_bytes_per_s: 3e9,
        ..probe()
    };
    expect(&storage, fast, Verdict::Honest, "write through");
}

#[test]
fn memory_lies() {
    let storage = Storage { file_system: "tmpfs".into(), kind: Kind::Memory, ..storage() };
    expect(&storage, probe(), Verdict::Lies, "is memory");
}

#[test]
fn a_mount_without_barriers_lies_unless_there_is_no_cache() {
    expect(&options(&["rw", "nobarrier"]), probe(), Verdict::Lies, "nobarrier");
    expect(&options(&["barrier=0"]), probe(), Verdict::Lies, "barrier=0");
    let mut safe = options(&["barrier=0"]);
    safe.device.as_mut().unwrap().write_cache = Some("write through".into());
    expect(&safe, probe(), Verdict::Honest, "has none");
}

#[test]
fn a_volatile_layer_lies_and_another_layer_cannot_be_judged() {
    let layer = |options: Storage| Storage {
        file_system: "overlay".into(),
        kind: Kind::Overlay,
        ..options
    };
    expect(&layer(options(&["volatile"])), probe(), Verdict::Lies, "volatile");
    expect(&layer(storage()), probe(), Verdict::CannotTell, "layer");
}

#[test]
fn a_sync_that_costs_nothing_lies() {
    let free = Probe { buffered_sync_p50_us: 4.0, ..probe() };
    expect(&storage(), free, Verdict::Lies, "the sync does nothing");
}

#[test]
fn over_a_network_or_a_program_a_free_sync_is_only_suspicious() {
    let free = Probe { buffered_sync_p50_us: 4.0, ..probe() };
    for (name, kind) in [("nfs4", Kind::Network), ("fuse.x", Kind::Fuse)] {
        let storage = Storage { file_system: name.into(), kind, ..storage() };
        expect(&storage, free, Verdict::Suspicious, "the sync does nothing");
        expect(&storage, probe(), Verdict::CannotTell, name);
    }
}

#[test]
fn a_sync_faster_than_any_disk_lies() {
    let impossible = Probe { bulk_sync_bytes_per_s: 1e12, ..probe() };
    expect(&storage(), impossible, Verdict::Lies, "no disk can do that");
}

#[test]
fn a_small_sync_faster_than_the_devices_own_rate_is_suspicious() {
    // 4 KiB at 100 MB/s take 41 us.
    let quick = Probe { buffered_sync_p50_us: 30.0, bulk_sync_bytes_per_s: 100e6, ..probe() };
    expect(&storage(), quick, Verdict::Suspicious, "than a sync took");
}

#[test]
fn a_flush_that_costs_nothing_is_suspicious() {
    let same = Probe { direct_write_p50_us: Some(500.0), ..probe() };
    expect(&storage(), same, Verdict::Suspicious, "nothing is emptied");
}

#[test]
fn a_turning_disk_that_does_not_wait_for_its_turn_is_suspicious() {
    let turning = device(|device| device.rotational = Some(true));
    expect(&turning, probe(), Verdict::Suspicious, "turns");
    let slow =
        Probe { buffered_sync_p50_us: 8_400.0, direct_sync_p50_us: Some(8_300.0), ..probe() };
    expect(&turning, slow, Verdict::Honest, "volatile cache");
}

#[test]
fn a_virtual_disk_that_says_it_turns_is_not_held_to_it() {
    let storage = device(|device| {
        device.rotational = Some(true);
        device.is_virtual = true;
    });
    expect(&storage, probe(), Verdict::Honest, "is virtual");
}

#[test]
fn flash_that_empties_its_cache_at_once_is_suspicious() {
    let fast = Probe {
        buffered_sync_p50_us: 16.0,
        direct_write_p50_us: Some(8.0),
        direct_sync_p50_us: Some(12.0),
        bulk_sync_bytes_per_s: 3e9,
        ..probe()
    };
    expect(&storage(), fast, Verdict::Suspicious, "faster than flash");
}

#[test]
fn what_is_not_known_is_not_guessed() {
    expect(
        &Storage { device: None, ..storage() },
        probe(),
        Verdict::CannotTell,
        "could not be found",
    );
    let silent = device(|device| device.write_cache = None);
    expect(&silent, probe(), Verdict::CannotTell, "says nothing");
    let buffered = Probe { direct_write_p50_us: None, direct_sync_p50_us: None, ..probe() };
    expect(&storage(), buffered, Verdict::CannotTell, "no direct I/O");
}
