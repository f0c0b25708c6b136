//! Pages and images that are damaged, gone or old: nothing is lost, and what happens is reported.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Site, said};
use towline_e2e::deep::{
    Filler, NO_INDEX, ReadMode, Traits, drains_to, fill, in_order, take, take_into,
};
use towline_e2e::extent::{copy_folder, overwrite};
use towline_e2e::{Try, fail, require, wait};

const Q: &str = "DEEP";
/// Three times what stays in memory.
const COUNT: u32 = 50_000;
/// Put after the newest image.
const AFTER: u32 = 1_000;
/// What the queue holds: some of its front was got between the images.
const HELD: std::ops::Range<u32> = 5_000..COUNT + AFTER;
/// The daemon halts.
const DAMAGED: &str = "TWL2018E";
/// The daemon reads the whole log.
const REBUILDS: &str = "TWL2019W";

/// A deep queue with two images, its daemon killed; kept apart, to be damaged again and again.
struct Kept {
    site: Site,
    original: PathBuf,
    /// The page file as it was at the first image.
    old_pages: PathBuf,
}

impl Kept {
    fn new() -> Try<Self> {
        let site = Site::open()?.with_config(NO_INDEX);
        let daemon = site.start()?;
        fill(daemon.address(), Q, 0..COUNT)?;
        site.runs(&["image"], 0)?;
        let old_pages = site.scratch().join("old-pages");
        fs::copy(site.data.join("log/pages"), &old_pages)?;
        in_order(&take(daemon.address(), Q, ReadMode::Get, HELD.start)?, 0..HELD.start)?;
        site.until_got(Q, u64::from(HELD.start))?;
        site.runs(&["image"], 0)?;
        fill(daemon.address(), Q, COUNT..COUNT + AFTER)?;
        daemon.kill()?;
        let original = site.scratch().join("original");
        fs::rename(&site.data, &original)?;
        Ok(Self { site, original, old_pages })
    }

    /// Puts the data folder back as the kill left it, then damages it.
    fn damaged(&self, damage: impl FnOnce(&Path) -> Try) -> Try {
        if self.site.data.exists() {
            fs::remove_dir_all(&self.site.data)?;
        }
        copy_folder(&self.original, &self.site.data)?;
        damage(&self.site.data.join("log"))
    }

    /// All messages are there, once a daemon that halts when it meets the damage was started again.
    /// Yields which of the two messages was said.
    fn loses_nothing(&self) -> Try<&'static str> {
        let said_before = self.site.log().len();
        let mut halted = false;
        loop {
            let started = self.site.start();
            let log = self.site.log().split_off(said_before);
            let mut daemon = match started {
                Ok(daemon) => daemon,
                Err(_) if log.contains(DAMAGED) && !halted => {
                    halted = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let drained = drains_to(daemon.address(), Q, HELD);
            let log = self.site.log().split_off(said_before);
            match drained {
                Ok(()) => {
                    daemon.stop()?;
                    let told = if log.contains(DAMAGED) { DAMAGED } else { REBUILDS };
                    require!(log.contains(REBUILDS), "nothing was said of a rebuild: {log}");
                    return Ok(told);
                }
                Err(error) if halted || !log.contains(DAMAGED) => return Err(error),
                Err(_) => {
                    daemon.await_end(Duration::from_secs(20))?;
                    halted = true;
                }
            }
            // What was got before the halt was not settled for good, or it is missing now: the kept
            // folder is damaged anew, with the mark that the halt left.
            let marker = self.site.data.join("rebuild-queues");
            require!(marker.exists(), "a halt leaves a mark for the next start");
            self.damaged(|_| Ok(()))?;
            fs::write(marker, b"")?;
        }
    }
}

/// The images of a log folder, oldest first.
fn images(log: &Path) -> Try<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(log)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("image-") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn newest(log: &Path) -> Try<PathBuf> {
    images(log)?.pop().ok_or_else(|| "no image".into())
}

#[test]
fn damaged_pages_are_noticed_and_the_queues_rebuilt() -> Try {
    let kept = Kept::new()?;
    let mut chance = Chance::announced("damaged pages");
    kept.damaged(|_| Ok(()))?;
    let pages = kept.site.data.join("log/pages");
    let length = fs::metadata(&pages)?.len();
    for round in 0..4 {
        let at = chance.within(0, length / 4096 * 4096 - 4096) / 4096 * 4096;
        kept.damaged(|_| overwrite(&pages, at, &chance.bits().to_le_bytes()))?;
        let daemon = kept.site.start()?;
        let drained = drains_to(daemon.address(), Q, HELD);
        drop(daemon);
        if drained.is_ok() {
            println!("round {round}: nothing lies at {at} of the pages");
            continue;
        }
        kept.damaged(|_| overwrite(&pages, at, &[0x55; 8]))?;
        let told = kept.loses_nothing().map_err(|error| format!("at {at}: {error}"))?;
        println!("round {round}, at {at}: {told}");
    }
    kept.damaged(|log| Ok(fs::remove_file(log.join("pages"))?))?;
    let told = kept.loses_nothing().map_err(|error| format!("no pages: {error}"))?;
    require!(told == REBUILDS, "noticed at the start: {told}");
    kept.damaged(|_| Ok(fs::File::options().write(true).open(&pages)?.set_len(40_960)?))?;
    let told = kept.loses_nothing().map_err(|error| format!("cut pages: {error}"))?;
    require!(told == REBUILDS, "noticed at the start: {told}");
    kept.damaged(|log| fs::copy(&kept.old_pages, log.join("pages")).map(drop).map_err(Into::into))?;
    let told = kept.loses_nothing().map_err(|error| format!("old pages: {error}"))?;
    println!("old pages: {told}");
    Ok(())
}

#[test]
fn a_damaged_newest_image_is_passed_over_and_nothing_is_lost() -> Try {
    let kept = Kept::new()?;
    kept.damaged(|log| overwrite(&newest(log)?, 5_000, &[0xff; 16]))?;
    require!(kept.loses_nothing()? == REBUILDS, "noticed at the start");
    // The pages are those of the rebuilt queues from then on, whenever the process dies.
    for pause_ms in [0, 30, 200] {
        kept.damaged(|log| overwrite(&newest(log)?, 5_000, &[0xff; 16]))?;
        let daemon = kept.site.start()?;
        wait::pause(Duration::from_millis(pause_ms));
        daemon.kill()?;
        let daemon = kept.site.start()?;
        drains_to(daemon.address(), Q, HELD)?;
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn a_newest_image_that_is_gone_loses_nothing() -> Try {
    let kept = Kept::new()?;
    kept.damaged(|log| Ok(fs::remove_file(newest(log)?)?))?;
    let mut daemon = kept.site.start()?;
    // The pages of the older image may have been used again: then the daemon halts when it meets
    // one, and the next start rebuilds.
    if drains_to(daemon.address(), Q, HELD).is_err() {
        daemon.await_end(Duration::from_secs(20))?;
        require!(kept.site.log().contains(DAMAGED), "it halted for another reason");
        kept.damaged(|log| Ok(fs::remove_file(newest(log)?)?))?;
        fs::write(kept.site.data.join("rebuild-queues"), b"")?;
        daemon = kept.site.start()?;
        drains_to(daemon.address(), Q, HELD)?;
    }
    daemon.stop()
}

#[test]
fn without_a_whole_image_and_the_log_s_beginning_a_start_is_refused_with_advice() -> Try {
    let site = Site::open()?.with_config(NO_INDEX);
    let daemon = site.start()?;
    fill(daemon.address(), Q, 0..COUNT)?;
    drains_to(daemon.address(), Q, 0..COUNT)?;
    let gone = || !site.data.join("log/extent-0000000000000000").exists();
    wait::until_true("the oldest extent is let go", Duration::from_secs(30), || {
        site.runs(&["image"], 0).is_ok() && gone()
    })?;
    fill(daemon.address(), Q, 0..10)?;
    site.runs(&["image"], 0)?;
    daemon.kill()?;
    let log = site.data.join("log");
    let original = site.scratch().join("original");
    copy_folder(&site.data, &original)?;
    let all = images(&log)?;
    require!(all.len() == 2, "two images: {all:?}");
    for image in &all {
        overwrite(image, 4_200, &[0xff; 16])?;
    }
    let refused = site.start_refused()?;
    let words = said(&refused);
    require!(!refused.status.success(), "started without an image: {words}");
    let (image, restore) = (words.contains("image"), words.contains("backup"));
    require!(image && restore, "it does not say what to do: {words}");
    for name in all.iter().filter_map(|image| image.file_name()) {
        fs::copy(original.join("log").join(name), log.join(name))?;
    }
    let daemon = site.start()?;
    drains_to(daemon.address(), Q, 0..10)?;
    daemon.stop()
}

/// What the clients of one round know.
#[derive(Default)]
struct Round {
    /// Numbers of which all were acknowledged.
    put: std::ops::Range<u32>,
    /// Bodies that were got, and settled without an answer.
    got: Vec<u32>,
}

#[test]
fn a_kill_while_pages_and_images_are_written_loses_nothing_and_invents_nothing() -> Try {
    let mut chance = Chance::announced("kill -9 among pages and images");
    let site = Site::open()?.with_config(NO_INDEX);
    let mut daemon = site.start()?;
    fill(daemon.address(), Q, 0..COUNT)?;
    let (mut next, mut sure, mut perhaps) = (COUNT, COUNT, Vec::new());
    let mut left: Vec<u32> = (0..COUNT).collect();
    for number in 0..8 {
        let after = Duration::from_millis(chance.within(50, 900));
        let round = kill_round(&site, daemon, next, after);
        let round = round.map_err(|error| format!("round {number}, {after:?}: {error}"))?;
        left.extend(round.put.clone());
        perhaps.extend(round.got);
        sure = sure.max(round.put.end);
        // The batch on its way when the process died may be there in part.
        next = sure + 1_000;
        perhaps.extend(sure..next);
        left.extend(sure..next);
        sure = next;
        daemon = site.start()?;
    }
    let got = take(daemon.address(), Q, ReadMode::Get, u32::MAX)?;
    perhaps.sort_unstable();
    let here: std::collections::BTreeSet<&str> = got.iter().map(String::as_str).collect();
    require!(here.len() == got.len(), "a message is there twice");
    let unsure = |number: &u32| perhaps.binary_search(number).is_ok();
    left.retain(|number| !unsure(number) || here.contains(number.to_string().as_str()));
    in_order(&got, left.into_iter())?;
    daemon.stop()
}

/// Puts from `next` on, gets, and takes images until the process is killed.
fn kill_round(
    site: &Site,
    daemon: towline_e2e::daemon::Daemon,
    next: u32,
    after: Duration,
) -> Try<Round> {
    let address = daemon.address().to_owned();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let filler = scope.spawn(|| {
            let mut end = next;
            let Ok(mut filler) = Filler::open(&address, Q) else { return end };
            let batch = |from| (from..from + 200).map(|number| (number, Traits::default()));
            while filler.put(batch(end)).is_ok() {
                end += 200;
            }
            end
        });
        let getter = scope.spawn(|| {
            let mut got = Vec::new();
            let mut texts = Vec::new();
            while texts.len() < 3_000
                && take_into(&mut texts, &address, Q, ReadMode::Get, 500).is_ok()
            {}
            got.extend(texts.iter().filter_map(|text| text.parse::<u32>().ok()));
            got
        });
        let imager = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // Near the end it is refused: no client is connected.
                drop(site.runs(&["image"], 0));
            }
        });
        wait::pause(after);
        let killed = daemon.kill();
        over.store(true, Ordering::Relaxed);
        let (Ok(end), Ok(got), Ok(())) = (filler.join(), getter.join(), imager.join()) else {
            fail!("a client panicked")
        };
        killed?;
        Ok(Round { put: next..end, got })
    })
}
