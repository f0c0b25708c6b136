//! A torn tail is cut silently to a prefix of commits; damage before the tail is reported and
//! refused.

use std::fs;
use std::path::PathBuf;

use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Site, said};
use towline_e2e::extent::{Batch, batches, copy_folder, flip, overwrite};
use towline_e2e::peer::{Peer, transfer_in_unit};
use towline_e2e::wire::{Value, amqp, code, described, message};
use towline_e2e::{Try, fail, require};

/// Small, so that a copy is quick; the least that the configuration takes.
const SMALL_EXTENTS: &str = "[log]\nextent_bytes = 4194304\n";
/// Else an image on a busy machine covers the extent that is missed.
const NO_IMAGES: &str = "[queue_manager]\nimglogln = 0\nimgintvl = 0\n";
const QUEUE: &str = "TORN";

/// Messages of the last unit.
const UNIT: u32 = 3;

/// A log with some single puts and, at its end, one unit of three small messages.
struct Written {
    site: Site,
    /// The data folder as the kill left it.
    original: PathBuf,
    batches: Vec<Batch>,
    singles: usize,
}

impl Written {
    fn new(singles: u32) -> Try<Self> {
        let site = Site::open()?.with_config(SMALL_EXTENTS);
        let daemon = site.start()?;
        let mut peer = Peer::begun(daemon.address())?;
        peer.attach_sender(0, QUEUE)?;
        for number in 0..singles {
            peer.put(0, number, format!("single {number}").as_bytes())?;
        }
        commit_unit(&mut peer, singles)?;
        daemon.kill()?;
        let original = site.scratch().join("original");
        fs::rename(&site.data, &original)?;
        let batches = batches(&original.join("log"))?;
        Ok(Self { site, original, batches, singles: singles as usize })
    }

    /// Puts the data folder back as the kill left it.
    fn restore(&self) -> Try {
        if self.site.data.exists() {
            fs::remove_dir_all(&self.site.data)?;
        }
        copy_folder(&self.original, &self.site.data)
    }

    /// The batch's file in the data folder.
    fn file(&self, batch: &Batch) -> Try<PathBuf> {
        let Some(name) = batch.file.file_name() else { fail!("no name") };
        Ok(self.site.data.join("log").join(name))
    }

    /// Starts, and gives back what is in the queue.
    fn texts(&self) -> Try<Vec<String>> {
        let daemon = self.site.start()?;
        let texts = Peer::begun(daemon.address())?.drain(QUEUE)?;
        daemon.kill()?;
        Ok(texts)
    }

    fn last(&self) -> Try<&Batch> {
        self.batches.last().ok_or_else(|| "no batch".into())
    }
}

/// Puts three messages in one unit and commits it.
fn commit_unit(peer: &mut Peer, first_delivery: u32) -> Try {
    peer.attach_coordinator(9)?;
    let declared = peer.control(9, first_delivery, &described(code::DECLARE, vec![]))?;
    let unit = declared.field(0).clone();
    for number in 0..UNIT {
        let transfer = transfer_in_unit(0, first_delivery + 1 + number, &unit);
        peer.send(&amqp(0, &transfer, &message(true, format!("unit {number}").as_bytes())))?;
        peer.expect(code::DISPOSITION)?;
    }
    let discharge = described(code::DISCHARGE, vec![unit, Value::Bool(false)]);
    let outcome = peer.control(9, first_delivery + 1 + UNIT, &discharge)?;
    require!(outcome.code() == Some(code::ACCEPTED), "the commit was not accepted: {outcome:?}");
    Ok(())
}

#[test]
fn a_log_torn_at_every_byte_of_its_last_batch_recovers_to_a_prefix_of_commits() -> Try {
    let written = Written::new(5)?;
    let last = written.last()?.clone();
    written.restore()?;
    let whole = written.texts()?;
    require!(whole.len() == written.singles + UNIT as usize, "untorn: {whole:?}");
    println!("the last batch has {} bytes", last.bytes);
    for kept in 0..last.bytes {
        written.restore()?;
        let lost = usize::try_from(last.bytes - kept)?;
        overwrite(&written.file(&last)?, last.offset + kept, &vec![0; lost])?;
        let texts = written.texts().map_err(|error| format!("torn at byte {kept}: {error}"))?;
        let prefix = whole.get(..written.singles).unwrap_or_default();
        // The last bytes of the batch may be zeros by themselves: then nothing was torn.
        let right = texts == prefix || texts == whole;
        require!(right, "torn at byte {kept}: {texts:?}");
        require!(kept + 16 > last.bytes || texts == prefix, "torn at {kept}, yet whole");
    }
    Ok(())
}

#[test]
fn a_torn_tail_of_garbage_is_cut_too() -> Try {
    let mut chance = Chance::announced("garbage in the tail");
    let written = Written::new(5)?;
    let last = written.last()?.clone();
    for _ in 0..20 {
        written.restore()?;
        let kept = chance.within(0, last.bytes);
        let lost = last.bytes.next_multiple_of(4096) - kept;
        let garbage: Vec<u8> = (0..lost).map(|_| chance.bits().to_le_bytes()[0]).collect();
        overwrite(&written.file(&last)?, last.offset + kept, &garbage)?;
        let texts = written.texts().map_err(|error| format!("garbage from {kept}: {error}"))?;
        require!(texts.len() == written.singles, "garbage from {kept}: {texts:?}");
    }
    Ok(())
}

#[test]
fn a_flipped_bit_before_the_tail_is_told_with_extent_and_position_and_never_skipped() -> Try {
    let mut chance = Chance::announced("flipped bits");
    let written = Written::new(40)?;
    // Every put waited for the one before, so all but the last batches were known to be durable.
    let count = written.batches.len().saturating_sub(3);
    require!(count > 20, "only {count} batches");
    for round in 0..30 {
        let Some(batch) = written.batches.get(chance.index(count)) else { fail!("no batch") };
        let position =
            if round < 10 { chance.within(0, 40) } else { chance.within(0, batch.bytes) };
        let at = batch.offset + position;
        written.restore()?;
        let file = written.file(batch)?;
        flip(&file, at, u32::try_from(chance.within(0, 8))?)?;
        let what = format!("batch {} at {}, byte {position}", batch.index, batch.offset);
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();

        let output = written.site.towline(&["log", "verify"])?.output()?;
        let verified = said(&output);
        require!(!output.status.success(), "verify did not notice {what}: {verified}");
        require!(tells(&verified, &name, batch), "verify does not tell {what}: {verified}");

        let refused = written.site.start_refused().map_err(|error| format!("{what}: {error}"))?;
        let words = said(&refused);
        require!(!refused.status.success(), "started over {what}: {words}");
        require!(tells(&words, &name, batch), "start does not tell {what}: {words}");
    }
    Ok(())
}

/// Extent and position are in the text, as numbers or as the file's name.
fn tells(words: &str, name: &str, batch: &Batch) -> bool {
    let sequence = name.strip_prefix("extent-").unwrap_or(name);
    let short = sequence.trim_start_matches('0');
    let short = if short.is_empty() { "0" } else { short };
    let extent = words.contains(name) || words.contains(&format!("extent {short}"));
    let offset = batch.offset.to_string();
    extent && (words.contains(&offset) || words.contains(&format!("{:#x}", batch.offset)))
}

#[test]
fn a_whole_log_verifies_and_dumps() -> Try {
    let written = Written::new(3)?;
    written.restore()?;
    let verify = written.site.towline(&["log", "verify", "--json"])?.output()?;
    require!(verify.status.success(), "verify: {}", said(&verify));
    let report: serde_json::Value = serde_json::from_slice(&verify.stdout)?;
    let count = written.batches.len() as u64;
    require!(report["batches"].as_u64() == Some(count), "{count} batches, but {report}");
    let dump = written.site.towline(&["log", "dump"])?.output()?;
    require!(dump.status.success(), "dump: {}", said(&dump));
    require!(said(&dump).lines().count() >= written.batches.len(), "dump: {}", said(&dump));
    Ok(())
}

#[test]
fn a_missing_or_emptied_extent_is_told_and_refused() -> Try {
    let site = Site::open()?.with_config(&format!("{SMALL_EXTENTS}{NO_IMAGES}"));
    let daemon = site.start()?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, QUEUE)?;
    for number in 0..200 {
        peer.put(0, number, &vec![b'x'; 60_000])?;
    }
    daemon.kill()?;
    let original = site.scratch().join("original");
    fs::rename(&site.data, &original)?;
    let all = batches(&original.join("log"))?;
    let mut files: Vec<PathBuf> = all.iter().map(|batch| batch.file.clone()).collect();
    files.dedup();
    require!(files.len() >= 3, "only {} extents", files.len());
    let Some(name) = files.get(1).and_then(|file| file.file_name()) else { fail!("no name") };
    for emptied in [false, true] {
        if site.data.exists() {
            fs::remove_dir_all(&site.data)?;
        }
        copy_folder(&original, &site.data)?;
        let file = site.data.join("log").join(name);
        if emptied {
            fs::write(&file, b"")?
        } else {
            fs::remove_file(&file)?
        }
        let verify = site.towline(&["log", "verify"])?.output()?;
        require!(!verify.status.success(), "verify did not notice: {}", said(&verify));
        let refused = site.start_refused()?;
        require!(!refused.status.success(), "started without {}", name.display());
    }
    Ok(())
}

#[test]
fn the_extent_that_the_image_needs_first_comes_back_from_a_backup() -> Try {
    let site = Site::open()?.with_config(SMALL_EXTENTS);
    let daemon = site.start()?;
    let backup = site.scratch().join("backup").to_string_lossy().into_owned();
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, QUEUE)?;
    for number in 0..40 {
        peer.put(0, number, format!("single {number}").as_bytes())?;
    }
    drop(peer);
    site.runs(&["backup", "--to", &backup], 0)?;
    // The image at the end lies in the extent in which the log ends.
    daemon.stop()?;
    site.runs(&["backup", "--to", &backup], 0)?;
    let extent = site.data.join("log/extent-0000000000000000");
    fs::remove_file(&extent)?;
    let refused = said(&site.start_refused()?);
    require!(refused.contains("TWL2004E"), "{refused}");
    // That nothing stood behind what the backup has cannot be proven.
    let repaired = site.runs(&["log", "repair", "--from", &backup], 1)?;
    for words in ["repaired: extent-0000000000000000", "ends at ", "1 findings repaired", "0 left"]
    {
        require!(repaired.contains(words), "no {words} in {repaired}");
    }
    require!(!repaired.contains("put the files back"), "advice for what is repaired: {repaired}");
    site.runs(&["log", "verify"], 0)?;
    let daemon = site.start()?;
    let texts = Peer::begun(daemon.address())?.drain(QUEUE)?;
    require!(texts.len() == 40, "{} of 40", texts.len());
    daemon.stop()
}
