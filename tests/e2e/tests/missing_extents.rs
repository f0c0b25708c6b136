//! An extent with live messages that is missing refuses the start until it is repaired, or until
//! the operator gives its messages up. Runs the commands of docs/guides/damaged-log.md.
//!
//! Not here: one damaged message (`damaged_messages.rs`), a group's instance (`group_damage.rs`).

use std::fs;
use std::path::PathBuf;

use towline_e2e::daemon::{Site, said};
use towline_e2e::numbered::{WITH_DLQ, numbers, text};
use towline_e2e::{Try, require};

const Q: &str = "OLD";
const DLQ: &str = "DEV.DEAD.LETTER.QUEUE";

/// Messages in several extents, which a start does not read, a backup of them, and the oldest
/// extents.
fn in_several_extents() -> Try<(Site, String, Vec<PathBuf>)> {
    let config = format!("{WITH_DLQ}imgintvl = 0\n[log]\nextent_bytes = 4194304\n");
    let site = Site::open()?.with_config(&config);
    let daemon = site.start()?;
    let lines: Vec<String> = (0..LARGE).map(|number| text(number) + &"y".repeat(96_000)).collect();
    site.runs_with(&["put", Q, "--lines"], (lines.join("\n") + "\n").as_bytes(), 0)?;
    site.runs(&["image"], 0)?;
    daemon.stop()?;
    let backup = site.scratch().join("backup").to_string_lossy().into_owned();
    site.runs(&["backup", "--to", &backup], 0)?;
    let names = fs::read_dir(site.data.join("log"))?.map(|entry| entry.map(|it| it.path()));
    let mut extents: Vec<PathBuf> = names.collect::<Result<_, _>>()?;
    extents.retain(|path| path.to_string_lossy().contains("extent-"));
    extents.sort();
    require!(extents.len() >= 3, "only {} extents", extents.len());
    Ok((site, backup, extents))
}

/// Messages of [`in_several_extents`]: fewer than a client takes at once.
const LARGE: usize = 90;

#[test]
fn an_extent_with_live_messages_that_was_removed_by_hand_is_refused_and_repaired() -> Try {
    let (site, backup, extents) = in_several_extents()?;
    // The oldest one, which leaves no gap, and one between others.
    for (extent, what) in extents.iter().zip(["before the oldest one", "between others"]) {
        let name = extent.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::remove_file(extent)?;
        let verify = site.towline(&["log", "verify"])?.output()?;
        require!(!verify.status.success(), "verify did not notice: {}", said(&verify));
        require!(said(&verify).contains(&name), "which one: {}", said(&verify));
        let verified = site.runs(&["log", "verify", "--json"], 1)?;
        require!(verified.contains("\"extents_missing\""), "{verified}");
        let refused = site.start_refused()?;
        require!(!refused.status.success(), "started without {name}");
        for words in ["TWL2060E", &name] {
            require!(said(&refused).contains(words), "no {words}: {}", said(&refused));
        }
        let log = site.log() + &said(&refused);
        require!(!log.contains("TWL2040W"), "it does not say that nothing is to be done: {log}");
        let repaired = site.runs(&["log", "repair", "--from", &backup], 0)?;
        require!(repaired.contains(&name), "{repaired}");
        require!(repaired.contains(&format!("an extent {what} is missing")), "{repaired}");
        let verified = site.runs(&["log", "verify"], 0)?;
        require!(verified.contains("The log is sound."), "{verified}");
    }
    let daemon = site.start()?;
    let output = site.towline(&["get", Q, "--all"])?.output()?;
    let found = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(found == (0..LARGE).collect::<Vec<_>>(), "{found:?}");
    daemon.stop()
}

#[test]
fn messages_of_a_missing_extent_are_given_up_only_on_the_operators_word() -> Try {
    let (mut site, _, extents) = in_several_extents()?;
    let Some(oldest) = extents.first() else { return Err("no extent".into()) };
    fs::remove_file(oldest)?;
    require!(said(&site.start_refused()?).contains("TWL2060E"), "refused");
    site.arguments.push("--without-missing-extents".into());
    let daemon = site.start()?;
    require!(site.log().contains("TWL2061W"), "what is given up is logged: {}", site.log());
    let output = site.towline(&["get", Q, "--all"])?.output()?;
    require!(output.status.code() == Some(1), "{}", said(&output));
    let found = numbers(&String::from_utf8_lossy(&output.stdout));
    require!(found.last() == Some(&(LARGE - 1)) && found.len() < LARGE, "{found:?}");
    let aside = site.queue_number(DLQ, "depth")?;
    let got = found.len() as u64;
    require!(aside + got == LARGE as u64, "{aside} set aside, {got} got");
    require!(site.queue_number(Q, "damaged")? == aside, "status counts them");
    daemon.stop()?;

    // Now they are given up, and the option is not needed again: from the log, and from pages too.
    site.arguments.pop();
    let daemon = site.start()?;
    require!(site.queue_number(DLQ, "depth")? == aside, "the notes are kept");
    site.runs(&["image"], 0)?;
    daemon.stop()?;
    let verified = site.runs(&["log", "verify"], 0)?;
    require!(verified.contains("The log is sound."), "{verified}");
    let daemon = site.start()?;
    require!(site.queue_number(DLQ, "depth")? == aside, "the notes are kept");
    daemon.stop()
}

#[test]
fn notes_of_a_missing_extent_are_messages_again_when_it_is_repaired() -> Try {
    let (mut site, backup, extents) = in_several_extents()?;
    let Some(oldest) = extents.first() else { return Err("no extent".into()) };
    let name = oldest.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fs::remove_file(oldest)?;
    site.arguments.push("--without-missing-extents".into());
    let daemon = site.start()?;
    let output = site.towline(&["get", Q, "--all"])?.output()?;
    let mut found = numbers(&String::from_utf8_lossy(&output.stdout));
    let aside = site.queue_number(DLQ, "depth")?;
    require!(aside > 0, "nothing was set aside: {}", said(&output));
    daemon.stop()?;
    site.arguments.pop();

    let verified = site.runs(&["log", "verify"], 0)?;
    for words in [&name, &format!("{aside} messages that were set aside need"), "is sound"] {
        require!(verified.contains(words), "no {words} in {verified}");
    }
    let told = site.runs(&["log", "verify", "--json"], 0)?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    require!(told["extents_missing_of_notes"][0]["messages"] == aside, "{told}");
    let repaired = site.runs(&["log", "repair", "--from", &backup], 0)?;
    require!(repaired.contains(&name), "{repaired}");
    let verified = site.runs(&["log", "verify"], 0)?;
    require!(!verified.contains("set aside"), "{verified}");
    let daemon = site.start()?;
    let output = site.towline(&["get", DLQ, "--all"])?.output()?;
    found.extend(numbers(&String::from_utf8_lossy(&output.stdout)));
    found.sort_unstable();
    require!(found == (0..LARGE).collect::<Vec<_>>(), "all came in the end: {found:?}");
    daemon.stop()
}

/// Files of a backup, but for its lock.
fn held(backup: &str) -> Try<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(backup)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lock" {
            files.push((name, fs::read(entry.path())?));
        }
    }
    files.sort();
    Ok(files)
}

#[test]
fn a_backup_at_rest_without_an_extent_of_live_messages_is_refused_and_costs_none_before() -> Try {
    let (mut site, backup, extents) = in_several_extents()?;
    let Some(oldest) = extents.first() else { return Err("no extent".into()) };
    let name = oldest.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fs::remove_file(oldest)?;
    let before = held(&backup)?;
    let new = site.scratch().join("new").to_string_lossy().into_owned();
    let refused = |site: &Site| -> Try {
        let folders: [&[&str]; 3] = [&[&backup], &[&backup, "--full"], &[&new]];
        for more in folders {
            let output = site.towline(&[&["backup", "--to"], more].concat())?.output()?;
            let told = said(&output);
            require!(output.status.code() == Some(1), "{more:?}: {told}");
            for words in [name.as_str(), "is gone", "log repair", "--without-missing-extents"] {
                require!(told.contains(words), "{more:?}: no {words} in {told}");
            }
        }
        require!(held(&backup)? == before, "the backup was changed");
        require!(!fs::exists(&new)?, "a folder was made for nothing");
        Ok(())
    };
    refused(&site)?;
    // What waits as a note needs its extent too.
    site.arguments.push("--without-missing-extents".into());
    let daemon = site.start()?;
    site.towline(&["get", Q, "--all"])?.output()?;
    daemon.stop()?;
    refused(&site)?;
    site.runs(&["log", "repair", "--from", &backup], 0)?;
    site.runs(&["backup", "--to", &backup], 0)?;
    let told = site.runs(&["backup", "verify", &backup], 0)?;
    require!(told.contains("The backup is sound."), "{told}");
    Ok(())
}

#[test]
fn a_check_refuses_what_a_start_refuses_when_the_extent_of_the_image_is_gone() -> Try {
    let (site, _, extents) = in_several_extents()?;
    let arguments = ["run", "QM1", "--check"];
    let daemon = site.start()?;
    site.runs(&arguments, 0)?;
    daemon.stop()?;
    site.runs(&arguments, 0)?;
    // The image was taken behind all messages; extents that are made ready lie behind it.
    for extent in extents.iter().rev() {
        let away = extent.with_extension("away");
        fs::rename(extent, &away)?;
        let verified = site.towline(&["log", "verify"])?.output()?;
        if said(&verified).contains("image needs") {
            break;
        }
        fs::rename(&away, extent)?;
    }
    let refused = said(&site.start_refused()?);
    require!(refused.contains("TWL2004E"), "{refused}");
    let checked = site.runs(&arguments, 1)?;
    require!(checked.contains("TWL2004E") && checked.contains("would not start"), "{checked}");
    Ok(())
}

#[test]
fn a_start_is_refused_until_the_last_message_of_a_missing_extent_was_set_aside() -> Try {
    const OPTION: &str = "--without-missing-extents";
    let (mut site, _, extents) = in_several_extents()?;
    let Some(oldest) = extents.first() else { return Err("no extent".into()) };
    fs::remove_file(oldest)?;
    site.arguments.push(OPTION.into());
    let daemon = site.start()?;
    site.mqsc(&format!("ALTER QL({DLQ}) MAXDEPTH(5)"))?;
    site.towline(&["get", Q, "--all"])?.output()?;
    require!(site.queue_number(DLQ, "depth")? == 5, "no more notes than fit");
    daemon.stop()?;

    site.arguments.pop();
    let refused = said(&site.start_refused()?);
    require!(refused.contains("TWL2060E"), "the others still count: {refused}");
    site.arguments.push(OPTION.into());
    let daemon = site.start()?;
    site.mqsc(&format!("ALTER QL({DLQ}) MAXDEPTH(1000)"))?;
    site.towline(&["get", Q, "--all"])?.output()?;
    require!(site.queue_number(DLQ, "depth")? > 5, "the others are set aside too");
    daemon.stop()?;
    site.arguments.pop();
    site.start()?.stop()
}
