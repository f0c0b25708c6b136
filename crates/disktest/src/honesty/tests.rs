//! One test for each sign: a disk that would be honest but for this.

use super::*;

fn place() -> FolderLocation {
    FolderLocation {
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

fn device(change: impl FnOnce(&mut Device)) -> FolderLocation {
    let mut place = place();
    change(place.device.as_mut().unwrap());
    place
}

fn options(options: &[&str]) -> FolderLocation {
    let mount_options = options.iter().map(|option| (*option).to_owned()).collect();
    FolderLocation { mount_options, ..place() }
}

#[track_caller]
fn expect(place: &FolderLocation, probe: Probe, verdict: Verdict, because: &str) {
    let judgement = judge(place, probe);
    assert_eq!(judgement.verdict, verdict, "{:#?}", judgement.evidence);
    let said = judgement.evidence.iter().any(|sentence| sentence.contains(because));
    assert!(said, "{because:?} is not in {:#?}", judgement.evidence);
}

#[test]
fn a_disk_with_a_flush_that_costs_time_is_honest() {
    expect(&place(), probe(), Verdict::Honest, "volatile cache");
}

#[test]
fn a_disk_without_a_volatile_cache_is_honest_though_its_sync_is_fast() {
    let place = device(|device| device.write_cache = Some("write through".into()));
    let fast = Probe {
        buffered_sync_p50_us: 25.0,
        direct_write_p50_us: Some(11.0),
        direct_sync_p50_us: Some(11.5),
        bulk_sync_bytes_per_s: 3e9,
        ..probe()
    };
    expect(&place, fast, Verdict::Honest, "write through");
}

#[test]
fn memory_lies() {
    let place = FolderLocation { file_system: "tmpfs".into(), kind: Kind::Memory, ..place() };
    expect(&place, probe(), Verdict::Lies, "is memory");
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
    let layer = |options: FolderLocation| FolderLocation {
        file_system: "overlay".into(),
        kind: Kind::Overlay,
        ..options
    };
    expect(&layer(options(&["volatile"])), probe(), Verdict::Lies, "volatile");
    expect(&layer(place()), probe(), Verdict::CannotTell, "layer");
}

#[test]
fn a_sync_that_costs_nothing_lies() {
    let free = Probe { buffered_sync_p50_us: 4.0, ..probe() };
    expect(&place(), free, Verdict::Lies, "the sync does nothing");
}

#[test]
fn over_a_network_or_a_program_a_free_sync_is_only_suspicious() {
    let free = Probe { buffered_sync_p50_us: 4.0, ..probe() };
    for (name, kind) in [("nfs4", Kind::Network), ("fuse.x", Kind::Fuse)] {
        let place = FolderLocation { file_system: name.into(), kind, ..place() };
        expect(&place, free, Verdict::Suspicious, "the sync does nothing");
        expect(&place, probe(), Verdict::CannotTell, name);
    }
}

#[test]
fn a_sync_faster_than_any_disk_lies() {
    let impossible = Probe { bulk_sync_bytes_per_s: 1e12, ..probe() };
    expect(&place(), impossible, Verdict::Lies, "no disk can do that");
}

#[test]
fn a_small_sync_faster_than_the_devices_own_rate_is_suspicious() {
    // 4 KiB at 100 MB/s take 41 us.
    let quick = Probe { buffered_sync_p50_us: 30.0, bulk_sync_bytes_per_s: 100e6, ..probe() };
    expect(&place(), quick, Verdict::Suspicious, "than a sync took");
}

#[test]
fn a_flush_that_costs_nothing_is_suspicious() {
    let same = Probe { direct_write_p50_us: Some(500.0), ..probe() };
    expect(&place(), same, Verdict::Suspicious, "nothing is emptied");
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
    let place = device(|device| {
        device.rotational = Some(true);
        device.is_virtual = true;
    });
    expect(&place, probe(), Verdict::Honest, "is virtual");
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
    expect(&place(), fast, Verdict::Suspicious, "faster than flash");
}

#[test]
fn what_is_not_known_is_not_guessed() {
    expect(
        &FolderLocation { device: None, ..place() },
        probe(),
        Verdict::CannotTell,
        "could not be found",
    );
    let silent = device(|device| device.write_cache = None);
    expect(&silent, probe(), Verdict::CannotTell, "says nothing");
    let buffered = Probe { direct_write_p50_us: None, direct_sync_p50_us: None, ..probe() };
    expect(&place(), buffered, Verdict::CannotTell, "no direct I/O");
}
