//! `towline disktest` on a file system that forgets what was not synced, and that can lie.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::lossy::mount::{Lossy, folder_on};
use towline_e2e::{Try, paths, require};

const MIB: u64 = 1 << 20;
/// Exit codes, as documented.
const FIT: i32 = 0;
const FAILED: i32 = 1;
const NOT_FIT: i32 = 3;
/// More than the file holds, so that it is written over too.
const RECORDS: &str = "700";

fn disktest(folder: &Path, arguments: &[&str], code: i32) -> Try<Output> {
    let mut command = Command::new(paths::towline()?);
    command.arg("disktest").args(arguments).current_dir(folder).stdin(Stdio::null());
    let output = command.output()?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (said(&output.stdout), said(&output.stderr));
    require!(output.status.code() == Some(code), "{arguments:?}: {}\n{out}{errors}", output.status);
    Ok(output)
}

fn json(output: &Output) -> Try<Value> {
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Writes records, cuts the power so that `kept` percent of what was not synced stays, and looks
/// for them.
fn cut(lossy: &Lossy, name: &str, kept: u64, chance: &mut Chance, code: i32) -> Try<Value> {
    let folder = folder_on(lossy, name)?;
    let arguments = ["--power-cut-check", "write", "cut", "--size", "1MiB", "--records", RECORDS];
    let told = disktest(&folder, &arguments, FIT)?;
    let last = String::from_utf8_lossy(&told.stdout).lines().last().unwrap_or_default().to_owned();
    require!(last == RECORDS, "the last number told is {last:?}");
    lossy.cut_power(kept, chance);
    let verify = ["--power-cut-check", "verify", "cut", "--acked", &last, "--json", "-"];
    json(&disktest(&folder, &verify, code)?)
}

#[test]
fn a_power_cut_shows_a_disk_that_keeps_its_word_and_one_that_lies() -> Try {
    let mut chance = Chance::announced("power cut check");
    let lossy = Lossy::mount(256 * MIB)?;
    let honest = cut(&lossy, "honest", 0, &mut chance, FIT)?;
    require!(honest["missing_count"] == 0 && honest["highest_number"] == 700, "{honest}");
    lossy.with_disk(|disk| disk.set_syncs_lie(true));
    for (name, kept) in [("all-lost", 0), ("some-lost", 60)] {
        let lost = cut(&lossy, name, kept, &mut chance, NOT_FIT)?;
        require!(lost["complete"] == false && lost["missing_count"] != 0, "{lost}");
    }
    Ok(())
}

#[test]
fn what_a_program_serves_is_not_called_honest() -> Try {
    let lossy = Lossy::mount(64 * MIB)?;
    lossy.with_disk(|disk| disk.set_syncs_lie(true));
    let folder = folder_on(&lossy, "served")?;
    let result = json(&disktest(&folder, &["--quick", "--json", "-"], FIT)?)?;
    require!(result["file_system_kind"] == "fuse", "{result}");
    let verdict = &result["sync"]["verdict"];
    require!(verdict == "cannot_tell" || verdict == "suspicious", "{verdict}");
    let modes = result["blocks"].as_array().map_or(0, Vec::len);
    require!(modes == 4, "{modes} ways and sizes");
    require!(std::fs::read_dir(&folder)?.next().is_none(), "something stays behind");
    Ok(())
}

#[test]
fn a_full_disk_and_a_broken_one_are_told_and_nothing_stays_behind() -> Try {
    let lossy = Lossy::mount(64 * MIB)?;
    let folder = folder_on(&lossy, "sick")?;
    let fails = |what: &str| -> Try {
        let output = disktest(&folder, &["--quick"], FAILED)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        require!(errors.to_lowercase().contains(what), "{what:?} is not in {errors:?}");
        require!(std::fs::read_dir(&folder)?.next().is_none(), "something stays behind");
        Ok(())
    };
    lossy.with_disk(|disk| disk.set_bytes_max(4 * MIB));
    fails("no room")?;
    // A file system that counts no blocks shows its limit only when it is written to.
    lossy.with_disk(|disk| disk.set_bytes_max(0));
    fails("no space left")?;
    lossy.with_disk(|disk| {
        disk.set_bytes_max(64 * MIB);
        disk.set_syncs_fail(true);
    });
    fails("input/output error")
}
