//! The second process of the lock test: does what its standard input says, one line for one thing,
//! and answers each with one line. Not here: what should come out (`locks`).
//!
//! Invariant: it ends with its parent, also while it is paused.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Bytes of a number in the file: digits with zeros in front, so that each is as long as the other.
const DIGITS: usize = 20;
/// A file that is renamed is as long as this: more than one page can be seen half.
const CONTENT_BYTES: usize = 64 * 1024;
/// What the last of the renamed files is full of.
const LAST: u8 = b'.';
/// Nothing that is waited for takes this long on anything that works.
const LIMIT: Duration = Duration::from_secs(20);

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// flock(2): the whole file.
    Flock,
    /// An open file description lock of fcntl(2), over the whole file.
    Ofd,
}

impl Lock {
    /// Word in tables, JSON and between the processes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Lock::Flock => "flock",
            Lock::Ofd => "ofd",
        }
    }

    fn of(word: &str) -> io::Result<Lock> {
        [Lock::Flock, Lock::Ofd].into_iter().find(|lock| lock.name() == word).ok_or_else(wrong)
    }

    /// Tries to take it; false when another process has it.
    fn take(self, file: &File) -> io::Result<bool> {
        let taken = match self {
            Lock::Flock => rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive),
            Lock::Ofd => ofd(file, libc::F_WRLCK),
        };
        match taken {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn free(self, file: &File) -> io::Result<()> {
        let freed = match self {
            Lock::Flock => rustix::fs::flock(file, FlockOperation::NonBlockingUnlock),
            Lock::Ofd => ofd(file, libc::F_UNLCK),
        };
        Ok(freed?)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the constants are 0 to 2, the fields 16 bits")]
fn ofd(file: &File, kind: libc::c_int) -> Result<(), Errno> {
    let whole = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        // Must be 0 for this kind of lock (fcntl(2)).
        l_pid: 0,
    };
    let done = fcntl(file, FcntlArg::F_OFD_SETLK(&whole));
    done.map(|_| ()).map_err(|error| Errno::from_raw_os_error(error as i32))
}

/// Body of the second process: works in `folder` until standard input ends.
///
/// # Errors
/// When no process reads the answers.
pub(crate) fn run(folder: &Path) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut second = Commands { folder, file: None };
    for line in io::stdin().lock().lines() {
        let answer = second.obey(&line?).unwrap_or_else(|error| format!("error {error}"));
        say(&answer)?;
    }
    Ok(())
}

fn say(answer: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{answer}")?;
    out.flush()
}

struct Commands<'a> {
    folder: &'a Path,
    file: Option<File>,
}

impl Commands<'_> {
    fn obey(&mut self, line: &str) -> io::Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["open", name] => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                self.file = Some(options.open(self.folder.join(name))?);
                Ok("done".into())
            }
            ["take", lock] => {
                let taken = Lock::of(lock)?.take(self.file()?)?;
                Ok(if taken { "yes" } else { "no" }.into())
            }
            ["free", lock] => Lock::of(lock)?.free(self.file()?).map(|()| "done".into()),
            ["write", number] => {
                let number = number.parse().map_err(|_| wrong())?;
                write_number(self.file()?, number).map(|()| "done".into())
            }
            ["read"] => read_number(self.file()?).map(|number| number.to_string()),
            ["count", lock, rounds] => {
                count(self.file()?, Lock::of(lock)?, rounds.parse().map_err(|_| wrong())?)
            }
            ["make", name, rounds] => make(self.folder, name, rounds.parse().map_err(|_| wrong())?),
            ["link", name, own, rounds] => {
                link(self.folder, name, own, rounds.parse().map_err(|_| wrong())?)
            }
            ["hand", name, to] => hand(self.folder, name, to),
            ["beat", name, ms] => beat(&self.folder.join(name), milliseconds(ms)?),
            ["listen", name, ms] => listen(&self.folder.join(name), milliseconds(ms)?),
            ["rename", name, rounds] => {
                rename(self.folder, name, rounds.parse().map_err(|_| wrong())?)
            }
            ["watch", name] => watch(&self.folder.join(name)),
            _ => Err(wrong()),
        }
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(wrong)
    }
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not understood")
}

fn write_number(file: &File, number: u64) -> io::Result<()> {
    file.write_all_at(format!("{number:0DIGITS$}").as_bytes(), 0)?;
    file.sync_data()
}

/// The number in the file; 0 when there is none.
fn read_number(file: &File) -> io::Result<u64> {
    let mut digits = [0; DIGITS];
    let count = file.read_at(&mut digits, 0)?;
    let text = String::from_utf8_lossy(digits.get(..count).unwrap_or(&[])).into_owned();
    if text.is_empty() { Ok(0) } else { text.parse().map_err(io::Error::other) }
}

/// Adds one to the number in the file so many times, under the lock each time.
fn count(file: &File, lock: Lock, rounds: u64) -> io::Result<String> {
    let began = Instant::now();
    for _ in 0..rounds {
        while !lock.take(file)? {
            if began.elapsed() > LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
        let number = read_number(file)?;
        write_number(file, number.saturating_add(1))?;
        lock.free(file)?;
    }
    Ok("done".into())
}

/// Tries to make so many files that the other process tries to make too; says which came out ours.
fn make(folder: &Path, name: &str, rounds: u64) -> io::Result<String> {
    let mut made = String::from("made");
    for round in 0..rounds {
        let path = folder.join(format!("{name}-{round}"));
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(_) => {
                made.push(' ');
                made.push_str(&round.to_string());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// As [`make`], by links to a file of one's own.
fn link(folder: &Path, name: &str, own: &str, rounds: u64) -> io::Result<String> {
    let own = folder.join(format!("{name}.{own}"));
    File::create(&own)?.sync_all()?;
    let mut made = String::from("made");
    for round in 0..rounds {
        match fs::hard_link(&own, folder.join(format!("{name}-{round}"))) {
            Ok(()) => {
                made.push(' ');
                made.push_str(&round.to_string());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// Makes a folder with a link to a file in it, and gives it its name when all is synced.
fn hand(folder: &Path, name: &str, to: &str) -> io::Result<String> {
    let new = folder.join(format!("{to}.new"));
    fs::create_dir(&new)?;
    fs::hard_link(folder.join(name), new.join(name))?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, folder.join(to))?;
    File::open(folder)?.sync_all()?;
    Ok("done".into())
}

/// Writes a higher number each time that `interval` has gone by, until the process is ended.
fn beat(path: &Path, interval: Duration) -> io::Result<String> {
    let file = File::create(path)?;
    let began = Instant::now();
    for number in 1.. {
        write_number(&file, number)?;
        if number == 1 {
            say("beating")?;
        }
        if began.elapsed() > LIMIT * 2 {
            break;
        }
        std::thread::park_timeout(interval);
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Reads the number that another process counts up, and says when it has been the same for
/// `silence`.
fn listen(path: &Path, silence: Duration) -> io::Result<String> {
    let began = Instant::now();
    let (mut last, mut changes, mut since) = (0, 0_u64, began);
    while began.elapsed() < LIMIT {
        // Opened each time: that is what makes a network file system ask its server.
        let number = read_number(&File::open(path)?)?;
        if number != last {
            (last, since) = (number, Instant::now());
            changes += 1;
            if changes == 2 {
                say("hearing")?;
            }
        } else if since.elapsed() > silence {
            let after = since.elapsed().as_millis();
            return Ok(format!("silent for {after} ms after {changes} signs of life"));
        }
        std::thread::park_timeout(silence / 100);
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn milliseconds(text: &str) -> io::Result<Duration> {
    text.parse().map(Duration::from_millis).map_err(|_| wrong())
}

/// Replaces one file by another again and again, each full of one letter.
fn rename(folder: &Path, name: &str, rounds: u64) -> io::Result<String> {
    let (new, old) = (folder.join(format!("{name}.new")), folder.join(name));
    let letters = (b'a'..=b'z').cycle();
    for (round, letter) in (1..=rounds).zip(letters) {
        let letter = if round == rounds { LAST } else { letter };
        fs::write(&new, vec![letter; CONTENT_BYTES])?;
        fs::rename(&new, &old)?;
    }
    Ok("done".into())
}

/// Reads a file that is being replaced until its last content comes: it must always be there, and
/// whole.
fn watch(path: &Path) -> io::Result<String> {
    say("watching")?;
    let (mut whole, mut torn, mut gone) = (0_u64, 0_u64, 0_u64);
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        match fs::read(path) {
            Ok(content) => {
                let first = content.first().copied();
                let same = content.iter().all(|byte| Some(*byte) == first);
                if same && content.len() == CONTENT_BYTES {
                    whole += 1;
                } else {
                    torn += 1;
                }
                if first == Some(LAST) {
                    return Ok(format!("whole {whole} torn {torn} gone {gone}"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => gone += 1,
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_open_files_exclude_each_other_with_both_kinds_of_lock() {
        let folder = tempfile::tempdir().unwrap();
        for lock in [Lock::Flock, Lock::Ofd] {
            let path = folder.path().join(lock.name());
            let open = || {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false).open(&path).unwrap()
            };
            let (one, two) = (open(), open());
            assert!(lock.take(&one).unwrap());
            assert!(!lock.take(&two).unwrap(), "{lock:?}");
            lock.free(&one).unwrap();
            assert!(lock.take(&two).unwrap());
            drop(two);
            assert!(lock.take(&one).unwrap(), "{lock:?}: closing frees");
        }
    }

    #[test]
    fn what_is_not_understood_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let mut second = Commands { folder: folder.path(), file: None };
        for line in ["", "take flock", "open", "count ofd x", "take posix"] {
            assert!(second.obey(line).is_err(), "{line}");
        }
        assert_eq!(second.obey("open a").unwrap(), "done");
        assert_eq!(second.obey("read").unwrap(), "0");
        assert_eq!(second.obey("write 41").unwrap(), "done");
        assert_eq!(second.obey("count ofd 1").unwrap(), "done");
        assert_eq!(second.obey("read").unwrap(), "42");
        assert_eq!(second.obey("make f 3").unwrap(), "made 0 1 2");
        assert_eq!(second.obey("make f 4").unwrap(), "made 3");
        assert_eq!(second.obey("link l one 2").unwrap(), "made 0 1");
        assert_eq!(second.obey("link l two 3").unwrap(), "made 2");
        assert_eq!(second.obey("hand a folder").unwrap(), "done");
        assert_eq!(second.obey("open folder/a").unwrap(), "done");
        assert_eq!(second.obey("read").unwrap(), "42");
        assert!(second.obey("listen a 1").unwrap().starts_with("silent for "));
        assert_eq!(second.obey("rename r 5").unwrap(), "done");
        assert_eq!(second.obey("watch r").unwrap(), "whole 1 torn 0 gone 0");
    }
}
