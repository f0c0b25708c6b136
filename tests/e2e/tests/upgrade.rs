//! Data folders of earlier versions start and have all that was in them; those of later versions
//! are refused by file and version, and not touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use towline_e2e::daemon::{Site, said};
use towline_e2e::extent::{batches, overwrite};
use towline_e2e::peer::Peer;
use towline_e2e::{Try, fail, paths, require};

/// Versions of which there is a folder in `golden/`.
const VERSIONS: [&str; 4] = ["version-1", "version-2", "version-3", "version-4"];

/// A site with a golden data folder.
fn golden(version: &str) -> Try<Site> {
    let site = Site::closed()?;
    let archive = paths::sources().join("golden").join(format!("{version}.tar.gz"));
    let mut unpacking = Command::new("tar");
    let output = unpacking.arg("-xzf").arg(archive).current_dir(site.scratch()).output()?;
    require!(output.status.success(), "tar: {}", said(&output));
    require!(site.data.join("log").is_dir(), "no data folder in the archive");
    Ok(site)
}

/// The messages of each queue, in order.
fn listed(version: &str) -> Try<BTreeMap<String, Vec<String>>> {
    let list = paths::sources().join("golden").join(format!("{version}.txt"));
    let mut queues: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(list)?.lines() {
        let (queue, text) = line.split_once(' ').ok_or("no queue")?;
        let text = match text.split_once(" times ") {
            Some((letter, count)) => letter.repeat(count.parse()?),
            None => text.to_owned(),
        };
        queues.entry(queue.to_owned()).or_default().push(text);
    }
    Ok(queues)
}

#[test]
fn a_folder_of_each_earlier_version_has_all_its_messages_and_goes_on() -> Try {
    for version in VERSIONS {
        let site = golden(version)?;
        let daemon = site.start().map_err(|error| format!("{version}: {error}"))?;
        let shown = site.mqsc("DISPLAY QLOCAL(GOLD.PLAIN) MAXDEPTH DESCR")?;
        require!(shown.contains("77777") && shown.contains("as it was"), "{version}: {shown}");
        site.mqsc("DISPLAY QALIAS(GOLD.ALIAS)")?;
        let listed = listed(version)?;
        for (queue, texts) in &listed {
            let depth = site.queue_number(queue, "depth")?;
            require!(depth == texts.len() as u64, "{version}: {depth} messages in {queue}");
        }
        let mut peer = Peer::begun(daemon.address())?;
        peer.attach_sender(0, "GOLD.ALIAS")?;
        peer.put(0, 0, b"one more")?;
        // The first start wrote nothing of the old messages anew; the second one reads its image
        // too.
        daemon.stop()?;
        let daemon = site.start()?;
        let mut peer = Peer::begun(daemon.address())?;
        peer.attach_sender(0, "GOLD.ALIAS")?;
        peer.put(0, 0, b"and another")?;
        daemon.kill()?;
        let daemon = site.start()?;
        for (queue, mut texts) in listed {
            if queue == "GOLD.PLAIN" {
                texts.extend(["one more".to_owned(), "and another".to_owned()]);
            }
            let found = Peer::begun(daemon.address())?.drain(&queue)?;
            let same = found == texts;
            require!(same, "{version}: {queue} has {} of {}", found.len(), texts.len());
        }
        daemon.stop()?;
        site.runs(&["log", "verify"], 0)?;
    }
    Ok(())
}

#[test]
fn a_folder_of_each_earlier_version_can_be_backed_up_as_it_is_and_restored() -> Try {
    for version in VERSIONS {
        let mut site = golden(version)?;
        let backup = site.scratch().join("backup").to_string_lossy().into_owned();
        site.runs(&["backup", "--to", &backup], 0)?;
        site.data = site.scratch().join("restored");
        site.runs(&["restore", "--from", &backup], 0)?;
        let daemon = site.start().map_err(|error| format!("{version}: {error}"))?;
        for (queue, texts) in listed(version)? {
            let found = Peer::begun(daemon.address())?.drain(&queue)?;
            let same = found == texts;
            require!(same, "{version}: {queue} has {} of {}", found.len(), texts.len());
        }
        daemon.stop()?;
    }
    Ok(())
}

/// Changes a folder, and expects a start that refuses with these words and leaves all as it is.
fn refused(what: &str, words: &[&str], change: impl Fn(&Path) -> Try<String>) -> Try {
    let site = golden("version-2")?;
    let log = site.data.join("log");
    let file = change(&log)?;
    let before = contents(&log)?;
    let output = site.start_refused()?;
    let said = said(&output);
    require!(!output.status.success(), "{what}: it started");
    require!(said.contains("TWL1016E") && said.contains(&file), "{what}: {file}? {said}");
    for word in words {
        require!(said.contains(word), "{what}: no '{word}' in: {said}");
    }
    require!(contents(&log)? == before, "{what}: the folder was changed");
    Ok(())
}

/// All files but the lock.
fn contents(folder: &Path) -> Try<BTreeMap<String, Vec<u8>>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lock" {
            contents.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(contents)
}

#[test]
fn a_folder_with_an_extent_of_a_later_version_is_refused() -> Try {
    refused("extent", &["version 7", "up to 2"], |log| {
        let name = newest(log, "extent-")?;
        let mut header = fs::read(log.join(&name))?;
        header.truncate(4_096);
        put(&mut header, 8, &7_u16.to_le_bytes());
        seal(&mut header, 0..48, 48);
        overwrite(&log.join(&name), 0, &header)?;
        Ok(name)
    })
}

#[test]
fn a_folder_with_an_image_file_of_a_later_version_is_refused() -> Try {
    refused("image file", &["version 7", "up to 2"], |log| {
        let name = newest(log, "image-")?;
        let mut header = fs::read(log.join(&name))?;
        header.truncate(4_096);
        put(&mut header, 8, &7_u16.to_le_bytes());
        seal(&mut header, 0..52, 52);
        seal(&mut header, 0..84, 84);
        overwrite(&log.join(&name), 0, &header)?;
        Ok(name)
    })
}

/// A later version of pages comes with one of images (docs/internals/log-format.md).
#[test]
fn a_folder_with_the_content_of_an_image_or_of_pages_of_a_later_version_is_refused() -> Try {
    refused("image content", &["version 4", "up to 3"], |log| {
        let name = newest(log, "image-")?;
        let mut bytes = fs::read(log.join(&name))?;
        let content = 4_096 + 8;
        require!(bytes[content..].starts_with(b"TWLIMAGE"), "not where the image is");
        bytes[content + 8] = 4;
        let length = u64::from_le_bytes(bytes[40..48].try_into()?);
        let end = 4_096 + usize::try_from(length)?;
        seal(&mut bytes, 4_096..end, 48);
        seal(&mut bytes, 0..52, 52);
        seal(&mut bytes, 0..84, 84);
        overwrite(&log.join(&name), 0, &bytes)?;
        Ok(name)
    })
}

#[test]
fn a_folder_with_a_record_of_a_later_version_is_refused() -> Try {
    refused("record", &["version 3", "up to 2"], |log| {
        change_record(log, |record| record[0] = record[0] & 0x9f | 0x40)
    })
}

#[test]
fn a_folder_with_a_record_of_an_unknown_kind_or_with_an_unknown_field_is_refused() -> Try {
    refused("kind", &["a record of kind 31", "reads up to format level 3"], |log| {
        change_record(log, |record| record[0] = record[0] & 0x80 | 0x20 | 31)
    })?;
    // A format level with a second field, which takes the rest of the record.
    refused("field", &["field 2 of a level", "reads up to format level 3"], |log| {
        change_record(log, |record| {
            record[0] = record[0] & 0x80 | 0x20 | 13;
            record[1] = u8::try_from(record.len() - 2).unwrap_or(1);
            record[2] = 0x08;
        })
    })
}

/// Changes the first record of the last batch that begins with a short one; yields its extent.
fn change_record(log: &Path, change: impl Fn(&mut [u8])) -> Try<String> {
    for last in batches(log)?.into_iter().rev() {
        let bytes = fs::read(&last.file)?;
        let log_id = bytes[16..32].to_vec();
        let begin = usize::try_from(last.offset)?;
        let mut batch = bytes[begin..begin + usize::try_from(last.bytes)?].to_vec();
        // One byte of prefix: 31 bytes at most.
        let Some(length) = batch.get(40).filter(|prefix| **prefix & 0x80 == 0) else { continue };
        let record = 41..41 + usize::from(length >> 2);
        if record.len() < 3 {
            continue;
        }
        change(&mut batch[record]);
        let summed = [&log_id, &batch[40..], &batch[..8], &batch[12..40]].concat();
        let sum = crc32c(&summed);
        put(&mut batch, 8, &sum.to_le_bytes());
        overwrite(&last.file, last.offset, &batch)?;
        return Ok(last.file.file_name().ok_or("no name")?.to_string_lossy().into_owned());
    }
    fail!("no short record in {}", log.display())
}

fn newest(log: &Path, prefix: &str) -> Try<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(log)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let found = names.into_iter().rfind(|name| name.starts_with(prefix));
    found.ok_or_else(|| format!("no {prefix}").into())
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Puts the checksum of a part where it belongs.
fn seal(bytes: &mut [u8], part: std::ops::Range<usize>, at: usize) {
    let sum = crc32c(&bytes[part]);
    put(bytes, at, &sum.to_le_bytes());
}

/// CRC-32C, bit by bit (RFC 3720, appendix B.4: polynomial 0x1EDC6F41, reflected).
fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
        }
    }
    !sum
}
