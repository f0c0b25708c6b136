//! Backups of a real daemon: under load, over kills, onto a full disk, and back to the end, to a
//! position and to a time. What was acknowledged before a backup began is in it; no unit is half in
//! it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use towline_e2e::chance::Chance;
use towline_e2e::daemon::{Daemon, Site, said};
use towline_e2e::extent::flip;
use towline_e2e::lossy::mount::{Lossy, folder_on};
use towline_e2e::peer::Peer;
use towline_e2e::{Try, fail, paths, require, wait};

/// Small extents, and little space for indexes, so that extents and pages come and go.
const CONFIG: &str = "[log]\nextent_bytes = 4194304\n[queue_manager]\nindex_bytes_max = 0\n";
const LIMIT: Duration = Duration::from_secs(60);
/// Messages in a unit of work.
const UNIT: u64 = 5;

fn towline(arguments: &[&str]) -> Try<Command> {
    let mut command = Command::new(paths::towline()?);
    command.args(arguments).stdin(Stdio::null());
    command.env_remove("TOWLINE_DATA").env_remove("TOWLINE_URL");
    Ok(command)
}

fn runs(arguments: &[&str], code: i32) -> Try<Output> {
    let output = towline(arguments)?.output()?;
    let right = output.status.code() == Some(code);
    require!(right, "{arguments:?} gave {}, not {code}: {}", output.status, said(&output));
    Ok(output)
}

/// What `towline backup --json` prints.
fn back_up(site: &Site, to: &Path, more: &[&str]) -> Try<Value> {
    let (to, data) = (to.to_string_lossy(), site.data.to_string_lossy());
    let fixed = ["backup", "--json", "--to", &to, "--data", &data];
    let output = runs(&[&fixed, more].concat(), 0)?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn verify(backup: &Path, code: i32) -> Try<String> {
    Ok(said(&runs(&["backup", "verify", &backup.to_string_lossy()], code)?))
}

fn restore(backup: &Path, data: &Path, more: &[&str]) -> Try<Value> {
    let (from, data) = (backup.to_string_lossy(), data.to_string_lossy());
    let fixed = ["restore", "--json", "--from", &from, "--data", &data];
    let output = runs(&[&fixed, more].concat(), 0)?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A site with a data folder from a backup.
fn restored(backup: &Path, more: &[&str]) -> Try<Site> {
    let site = Site::open()?.with_config(CONFIG);
    restore(backup, &site.data, more)?;
    Ok(site)
}

fn text<'a>(reply: &'a Value, key: &str) -> Try<&'a str> {
    reply[key].as_str().ok_or_else(|| format!("no {key} in {reply}").into())
}

/// Puts units of messages and takes some away again, and puts single messages one after the other
/// of which it is known which were acknowledged.
struct Load {
    children: Vec<Child>,
    images: JoinHandle<u32>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU32>,
    single: JoinHandle<Result<(), String>>,
}

impl Load {
    fn start(site: &Site, daemon: &Daemon) -> Try<Load> {
        let lines = site.scratch().join("lines");
        let mut file = File::create(&lines)?;
        let padding = "p".repeat(700);
        for number in 1..=200_000 {
            writeln!(file, "{number} {padding}")?;
        }
        let unit = UNIT.to_string();
        let mut put = site.towline(&["put", "UNITS", "--lines", "--transaction", &unit])?;
        put.stdin(File::open(&lines)?).stdout(Stdio::null()).stderr(Stdio::null());
        let mut get = site.towline(&["get", "UNITS", "--follow", "--transaction", "2"])?;
        get.stdout(Stdio::null()).stderr(Stdio::null());
        let children = vec![put.spawn()?, get.spawn()?];
        let (stop, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (told, count) = (Arc::clone(&stop), Arc::clone(&acknowledged));
        let address = daemon.address().to_owned();
        // Images make pages and extents free that a backup may be copying.
        let (over, mut image) = (Arc::clone(&stop), site.towline(&["image"])?);
        let images = thread::spawn(move || {
            image.stdout(Stdio::null()).stderr(Stdio::null());
            let mut taken = 0;
            while !over.load(Ordering::SeqCst) && image.status().is_ok_and(|it| it.success()) {
                taken += 1;
            }
            taken
        });
        let single = thread::spawn(move || {
            let work = || -> Try {
                let mut peer = Peer::begun(&address)?;
                peer.attach_sender(0, "SINGLE")?;
                for number in 0.. {
                    if told.load(Ordering::SeqCst) {
                        break;
                    }
                    peer.put(0, number, number.to_string().as_bytes())?;
                    count.store(number + 1, Ordering::SeqCst);
                }
                Ok(())
            };
            work().map_err(|error| error.to_string())
        });
        Ok(Load { children, images, stop, acknowledged, single })
    }

    fn acknowledged(&self) -> u32 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    fn until_more(&self, more: u32) -> Try {
        let wanted = self.acknowledged() + more;
        wait::until_true("more is put", LIMIT, || self.acknowledged() >= wanted)
    }

    fn end(self) -> Try {
        self.stop.store(true, Ordering::SeqCst);
        for mut child in self.children {
            child.kill()?;
            child.wait()?;
        }
        println!("{} images were taken", self.images.join().unwrap_or(0));
        match self.single.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => fail!("the single putter: {error}"),
            Err(_) => fail!("the single putter panicked"),
        }
    }
}

/// Judges a restored queue manager: single messages are those from 0 on without a gap, at least
/// `acknowledged` of them; units are whole.
fn judge(site: &Site, acknowledged: u32) -> Try<u32> {
    let daemon = site.start()?;
    let singles = Peer::begun(daemon.address())?.drain("SINGLE")?;
    for (number, text) in singles.iter().enumerate() {
        require!(*text == number.to_string(), "message {number} is {text}");
    }
    let count = u32::try_from(singles.len())?;
    require!(count >= acknowledged, "LOST: {count} of {acknowledged} acknowledged messages");
    let units = Peer::begun(daemon.address())?.drain("UNITS")?;
    let number = |text: &String| text.split(' ').next().and_then(|text| text.parse::<u64>().ok());
    let numbers: Vec<u64> = units.iter().filter_map(number).collect();
    require!(numbers.len() == units.len(), "a message that nobody put");
    require!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap in {numbers:?}");
    if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
        require!(last.is_multiple_of(UNIT), "HALF A UNIT: put up to {last}");
        require!((first - 1).is_multiple_of(2), "HALF A UNIT: got up to {}", first - 1);
    }
    daemon.stop()?;
    site.runs(&["log", "verify"], 0)?;
    Ok(count)
}

#[test]
fn backups_under_load_hold_all_that_was_acknowledged_before_them_and_no_half_unit() -> Try {
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let load = Load::start(&site, &daemon)?;
    load.until_more(50)?;
    let backup = site.scratch().join("backup");
    let mut made = Vec::new();
    for round in 0..4 {
        let before = load.acknowledged();
        let reply = back_up(&site, &backup, &["--keep-images", "2"])?;
        require!(reply["full"] == (round == 0), "round {round}: {reply}");
        let after = load.acknowledged();
        made.push((before, after, text(&reply, "lsn")?.to_owned(), reply.clone()));
        verify(&backup, 0)?;
        load.until_more(50)?;
    }
    daemon.kill()?;
    // It is gone, and so the putters complain.
    drop(load.end());
    let (before, _, _, last) = &made[3];
    let site_at_end = restored(&backup, &[])?;
    judge(&site_at_end, *before)?;
    // Back to the end of the third backup, and to a position between it and the last.
    let (before, after, lsn, _) = &made[2];
    let third = restored(&backup, &["--to-lsn", lsn])?;
    let count = judge(&third, *before)?;
    require!(count <= *after + 1, "{count} messages, {after} were acknowledged by then");
    let between = (position(lsn)? + position(text(last, "lsn")?)?) / 2;
    let middle = Site::open()?.with_config(CONFIG);
    let (from, to) = (backup.to_string_lossy(), middle.data.to_string_lossy());
    let between = between.to_string();
    let fixed = ["restore", "--from", &from, "--data", &to, "--to-lsn", &between];
    let output = towline(&fixed)?.output()?;
    if output.status.success() {
        judge(&middle, *before)?;
    } else {
        // On a slow machine the log may have gone round meanwhile: then that is what it must say.
        let words = said(&output);
        require!(words.contains("was not copied before it was used again"), "{words}");
    }
    // Further back than two backups nothing is kept.
    let data = site.scratch().join("too-far");
    let (from, to) = (backup.to_string_lossy(), data.to_string_lossy());
    let refused = runs(&["restore", "--from", &from, "--data", &to, "--to-lsn", &made[0].2], 1)?;
    let first = text(last, "first_lsn")?;
    require!(said(&refused).contains(first), "the earliest is not told: {}", said(&refused));
    Ok(())
}

fn position(text: &str) -> Try<u64> {
    let words = text.trim_matches(['<', '>']).split(':').map(str::parse::<u64>);
    words.into_iter().try_fold(0, |sum, word| Ok((sum << 16) | word?))
}

/// Puts `count` messages of 50 kB.
fn fill(daemon: &Daemon, count: u32) -> Try {
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, "FILL")?;
    for number in 0..count {
        peer.put(0, number, &[b'f'; 50_000])?;
    }
    Ok(())
}

fn depth(site: &Site, queue: &str) -> Try<usize> {
    let daemon = site.start()?;
    let count = Peer::begun(daemon.address())?.drain(queue)?.len();
    daemon.stop()?;
    Ok(count)
}

#[test]
fn a_kill_of_the_daemon_while_it_is_backed_up_leaves_the_backup_before() -> Try {
    let mut chance = Chance::announced("kill -9 during a backup");
    let site = Site::open()?.with_config(CONFIG);
    let mut daemon = site.start()?;
    fill(&daemon, 40)?;
    let backup = site.scratch().join("backup");
    back_up(&site, &backup, &[])?;
    let mut put = 40;
    for _ in 0..6 {
        fill(&daemon, 200)?;
        put += 200;
        let (to, data) = (backup.to_string_lossy(), site.data.to_string_lossy());
        let mut command = towline(&["backup", "--to", &to, "--data", &data])?;
        let mut asking = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let manifest = fs::read(backup.join("manifest.json"))?;
        wait::until_true("the backup has begun", LIMIT, || {
            let over = fs::read(backup.join("manifest.json")).is_ok_and(|now| now != manifest);
            over || backup.join("progress").exists()
        })?;
        wait::pause(Duration::from_millis(chance.within(0, 30)));
        daemon.kill()?;
        asking.wait()?;
        verify(&backup, 0)?;
        daemon = site.start()?;
    }
    back_up(&site, &backup, &[])?;
    verify(&backup, 0)?;
    daemon.stop()?;
    require!(depth(&restored(&backup, &[])?, "FILL")? == put, "not all of {put} messages");
    Ok(())
}

#[test]
fn a_kill_of_a_restore_leaves_a_folder_that_is_refused_until_it_is_done_again() -> Try {
    let mut chance = Chance::announced("kill -9 during a restore");
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    fill(&daemon, 600)?;
    let backup = site.scratch().join("backup");
    back_up(&site, &backup, &[])?;
    daemon.kill()?;
    let mut refusals = 0;
    for _ in 0..4 {
        let back = Site::open()?.with_config(CONFIG);
        let (from, data) = (backup.to_string_lossy(), back.data.to_string_lossy());
        let mut command = towline(&["restore", "--from", &from, "--data", &data])?;
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mark = back.data.join("log").join("restoring");
        wait::until_true("the restore has begun", LIMIT, || {
            mark.exists() || matches!(child.try_wait(), Ok(Some(_)))
        })?;
        wait::pause(Duration::from_millis(chance.within(0, 15)));
        child.kill()?;
        child.wait()?;
        if mark.exists() {
            refusals += 1;
            let words = said(&back.start_refused()?);
            require!(words.contains("TWL1017E"), "not refused as unfinished: {words}");
            restore(&backup, &back.data, &[])?;
        }
        require!(depth(&back, "FILL")? == 600, "not all messages");
    }
    println!("{refusals} of 4 were interrupted");
    Ok(())
}

#[test]
fn a_damaged_backup_is_found_and_not_restored() -> Try {
    let mut chance = Chance::announced("flipped bits in a backup");
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    fill(&daemon, 20)?;
    let backup = site.scratch().join("backup");
    back_up(&site, &backup, &[])?;
    fill(&daemon, 20)?;
    // At rest now.
    daemon.stop()?;
    let reply = back_up(&site, &backup, &[])?;
    require!(reply["full"] == false, "{reply}");
    verify(&backup, 0)?;
    for entry in fs::read_dir(&backup)? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "lock" || name == "manifest.json" {
            continue;
        }
        let (at, bit) = (chance.within(0, file.metadata()?.len()), chance.within(0, 8));
        flip(&file, at, u32::try_from(bit)?)?;
        let words = verify(&backup, 1)?;
        require!(words.contains(&name), "verify does not tell {name}: {words}");
        let back = site.scratch().join("back");
        let (from, data) = (backup.to_string_lossy(), back.to_string_lossy());
        let words = said(&runs(&["restore", "--from", &from, "--data", &data], 1)?);
        require!(words.contains(&name), "restore does not tell {name}: {words}");
        flip(&file, at, u32::try_from(bit)?)?;
    }
    verify(&backup, 0)?;
    require!(depth(&restored(&backup, &[])?, "FILL")? == 40, "not all messages");
    Ok(())
}

#[test]
fn a_full_disk_under_the_backup_is_told_and_leaves_the_one_before() -> Try {
    const MIB: u64 = 1 << 20;
    let lossy = Lossy::mount(24 * MIB)?;
    let backup: PathBuf = folder_on(&lossy, "backup")?;
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    fill(&daemon, 200)?;
    back_up(&site, &backup, &[])?;
    fill(&daemon, 400)?;
    let (to, data) = (backup.to_string_lossy(), site.data.to_string_lossy());
    let words = said(&runs(&["backup", "--to", &to, "--data", &data], 1)?);
    require!(words.contains("free space"), "it is not told what to do: {words}");
    require!(site.log().contains("TWL2023E"), "the daemon's log does not tell");
    verify(&backup, 0)?;
    lossy.with_disk(|disk| disk.set_bytes_max(256 * MIB));
    back_up(&site, &backup, &[])?;
    daemon.stop()?;
    require!(depth(&restored(&backup, &[])?, "FILL")? == 600, "not all messages");
    Ok(())
}

#[test]
fn a_restore_to_a_time_brings_back_what_was_there_then() -> Try {
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let backup = site.scratch().join("backup");
    back_up(&site, &backup, &[])?;
    let times = site.data.join("log").join("times");
    let row_after = |puts: u32| -> Try {
        let before = fs::read(&times).unwrap_or_default();
        fill(&daemon, puts)?;
        wait::until_true("a row", LIMIT, || fs::read(&times).is_ok_and(|now| now != before))
    };
    row_after(7)?;
    row_after(1)?;
    // A row that was being written during the last put need not have it; the next one has.
    row_after(1)?;
    let then = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_millis(100);
    // The daemon's clock may be a little ahead of or behind ours.
    wait::pause(Duration::from_millis(300));
    row_after(30)?;
    back_up(&site, &backup, &[])?;
    daemon.stop()?;
    let then = rfc3339(then)?;
    let count = depth(&restored(&backup, &["--to-time", &then])?, "FILL")?;
    require!((8..=9).contains(&count), "{count} messages at {then}");
    let data = site.scratch().join("future");
    let (from, to) = (backup.to_string_lossy(), data.to_string_lossy());
    let future = "2999-01-01T00:00:00Z";
    let words = said(&runs(&["restore", "--from", &from, "--data", &to, "--to-time", future], 1)?);
    require!(words.contains("out of reach"), "{words}");
    Ok(())
}

/// As `date` writes it, to the millisecond.
fn rfc3339(since_epoch: Duration) -> Try<String> {
    let moment = format!("@{:.3}", since_epoch.as_secs_f64());
    let mut date = Command::new("date");
    let output = date.args(["-u", "-d", &moment, "+%Y-%m-%dT%H:%M:%S.%3NZ"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[test]
fn a_folder_with_something_else_in_it_is_refused_as_target_and_as_data() -> Try {
    let site = Site::open()?.with_config(CONFIG);
    let daemon = site.start()?;
    let strange = site.scratch().join("strange");
    fs::create_dir(&strange)?;
    fs::write(strange.join("letter.txt"), "mine")?;
    let data = site.data.to_string_lossy().into_owned();
    let words = said(&runs(&["backup", "--to", &strange.to_string_lossy(), "--data", &data], 1)?);
    require!(words.contains("letter.txt"), "{words}");
    require!(fs::read_dir(&strange)?.count() == 1, "the folder was changed");
    // Its own log folder is no destination either.
    let log = site.data.join("log");
    runs(&["backup", "--to", &log.to_string_lossy(), "--data", &data], 1)?;
    let inside = log.join("backup");
    let inside_name = inside.to_string_lossy();
    let into_the_log = ["backup", "--to", &inside_name, "--data", &data];
    let words = said(&runs(&into_the_log, 1)?);
    require!(words.contains("lies in the log folder"), "{words}");
    let backup = site.scratch().join("backup");
    back_up(&site, &backup, &[])?;
    daemon.stop()?;
    let words = said(&runs(&into_the_log, 1)?);
    require!(words.contains("lies in the log folder") && !inside.exists(), "{words}");
    let (from, strange) = (backup.to_string_lossy(), strange.to_string_lossy());
    for data in [&*strange, &data] {
        let words = said(&runs(&["restore", "--from", &from, "--data", data], 1)?);
        require!(words.contains("not empty"), "{words}");
    }
    Ok(())
}
