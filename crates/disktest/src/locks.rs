//! Are the locks of a shared file system fit for two instances of which one is active? Two
//! processes contend, are killed and paused, and look at each other's files.
//!
//! Both run on this machine: a file system that fails here is unfit; one that passes must still be
//! looked at from two machines. Not here: what the processes do (`second`).
//!
//! Invariant: each test uses files of its own, and processes of its own.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::Serialize;

use super::guard::{GuardedName, Itself};
use super::second::Lock;

/// How long an answer is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(40);
/// How long a lock may stay taken when its holder was killed.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// How long a paused holder is watched.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_QUICK: Duration = Duration::from_millis(300);
/// A holder that is only slow is not silent.
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// Between two tries to take a lock.
const TRY_AGAIN: Duration = Duration::from_millis(5);
/// Each process adds one so many times.
const COUNT_ROUNDS: u64 = 100;
/// Files that both try to make; changes of a file that is watched.
const MAKE_ROUNDS: u64 = 200;
const RENAME_ROUNDS: u64 = 200;
/// Times that one process reads what the other wrote.
const SEEN_ROUNDS: u64 = 20;

/// One test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LockTest {
    pub(crate) test: &'static str,
    /// Which lock; `None`: it is about files.
    pub(crate) lock: Option<&'static str>,
    pub(crate) passed: bool,
    /// What was seen.
    pub(crate) seen: String,
    /// What it means for two instances on one file system.
    pub(crate) meaning: &'static str,
}

/// What a test is called, and what its result means.
struct Case {
    test: &'static str,
    when_passed: &'static str,
    when_failed: &'static str,
}

const EXCLUSION: Case = Case {
    test: "one holder at a time",
    when_passed: "at most one instance is active",
    when_failed: "UNFIT: two instances could be active at once",
};
const KILLED: Case = Case {
    test: "free after kill -9",
    when_passed: "a standby takes over when the active instance dies",
    when_failed: "UNFIT: no standby could take over",
};
const PAUSED: Case = Case {
    test: "kept while paused",
    when_passed: "an instance that stalls is not replaced behind its back",
    when_failed: "UNFIT: an instance that stalled wakes up beside another",
};
const COUNTED: Case = Case {
    test: "counting under the lock",
    when_passed: "the lock also orders what is read and written",
    when_failed: "UNFIT: instances overwrite each other's files",
};
const MADE: Case = Case {
    test: "O_EXCL: one maker",
    when_passed: "a file is made by one instance only",
    when_failed: "UNFIT: two instances could make the same file",
};
const RENAMED: Case = Case {
    test: "rename is atomic",
    when_passed: "a file is seen as it was or as it is, never in between",
    when_failed: "UNFIT: a standby could read half a file",
};
const SEEN: Case = Case {
    test: "writes are seen at once",
    when_passed: "a standby reads all that was synced before",
    when_failed: "UNFIT: a standby could miss acknowledged messages",
};

const LINKED: Case = Case {
    test: "link: one maker",
    when_passed: "of two standbys that take over at once, one does",
    when_failed: "UNFIT: two standbys could take over at once",
};
const HANDED: Case = Case {
    test: "links, folders handed on",
    when_passed: "a standby gets the log without copying it",
    when_failed: "UNFIT: a standby could not make a log folder of its own",
};
const HEARD: Case = Case {
    test: "silence while paused",
    when_passed: "a lease that runs out is noticed, one that lasts is not mistaken",
    when_failed: "UNFIT: a standby would wait for ever, or replace one that lives",
};

/// Runs all tests in a folder of their own below `folder`. `progress` gets how many of how many are
/// done.
///
/// # Errors
/// When the folder or the processes cannot be made. What a test runs into is its result.
pub(crate) fn run(
    folder: &Path,
    is_quick: bool,
    itself: Itself<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> io::Result<Vec<LockTest>> {
    let place = GuardedName::new(folder, "locks", itself)?;
    fs::create_dir(place.path())?;
    let pause = if is_quick { PAUSE_QUICK } else { PAUSE };
    let bench = LockBench { folder: place.path(), itself, pause };
    type Test<'b> = fn(&LockBench<'b>, Lock) -> Result<String, String>;
    let of_locks: [(&Case, Test<'_>); 4] = [
        (&EXCLUSION, LockBench::exclusion),
        (&KILLED, LockBench::killed),
        (&PAUSED, LockBench::paused),
        (&COUNTED, LockBench::counted),
    ];
    let mut results = Vec::new();
    type FileTest<'b> = fn(&LockBench<'b>) -> Result<String, String>;
    let of_files: [(&Case, FileTest<'_>); 6] = [
        (&MADE, LockBench::made),
        (&LINKED, LockBench::linked),
        (&RENAMED, LockBench::renamed),
        (&SEEN, LockBench::seen),
        (&HANDED, LockBench::handed),
        (&HEARD, LockBench::heard),
    ];
    let total = of_locks.len() * 2 + of_files.len();
    for lock in [Lock::Flock, Lock::Ofd] {
        for (case, test) in of_locks {
            results.push(case.result(Some(lock), test(&bench, lock)));
            progress(results.len(), total);
        }
    }
    for (case, test) in of_files {
        results.push(case.result(None, test(&bench)));
        progress(results.len(), total);
    }
    Ok(results)
}

impl Case {
    fn result(&self, lock: Option<Lock>, result: Result<String, String>) -> LockTest {
        let passed = result.is_ok();
        LockTest {
            test: self.test,
            lock: lock.map(Lock::name),
            passed,
            seen: result.unwrap_or_else(|what| what),
            meaning: if passed { self.when_passed } else { self.when_failed },
        }
    }
}

/// The folder of the tests. Each gives back what was seen: `Err` when that is a failure.
struct LockBench<'a> {
    folder: &'a Path,
    itself: Itself<'a>,
    pause: Duration,
}

impl LockBench<'_> {
    fn two(&self) -> Result<(SecondProcess, SecondProcess), String> {
        Ok((self.one()?, self.one()?))
    }

    fn one(&self) -> Result<SecondProcess, String> {
        SecondProcess::start(self.itself, self.folder).map_err(|error| error.to_string())
    }

    /// Two processes with one file open; the first has the lock.
    fn held(&self, test: &str, lock: Lock) -> Result<(SecondProcess, SecondProcess), String> {
        let (mut first, mut second) = self.two()?;
        let name = format!("{test}-{}", lock.name());
        first.does(&format!("open {name}"))?;
        second.does(&format!("open {name}"))?;
        if first.takes(lock)? { Ok((first, second)) } else { Err("a free lock is refused".into()) }
    }

    fn exclusion(&self, lock: Lock) -> Result<String, String> {
        let (mut first, mut second) = self.held("exclusion", lock)?;
        if second.takes(lock)? {
            return Err("both processes have the lock".into());
        }
        first.does(&format!("free {}", lock.name()))?;
        if !second.takes(lock)? {
            return Err("refused although it is free".into());
        }
        if first.takes(lock)? {
            return Err("both processes have the lock, the second first".into());
        }
        Ok("refused while held, given when free".into())
    }

    fn killed(&self, lock: Lock) -> Result<String, String> {
        let (first, mut second) = self.held("killed", lock)?;
        if second.takes(lock)? {
            return Err("both processes have the lock".into());
        }
        let began = Instant::now();
        drop(first);
        while !second.takes(lock)? {
            if began.elapsed() > RELEASE_LIMIT {
                return Err(format!("still held {} s later", RELEASE_LIMIT.as_secs()));
            }
            thread::park_timeout(TRY_AGAIN);
        }
        Ok(format!("free after {} ms", began.elapsed().as_millis()))
    }

    fn paused(&self, lock: Lock) -> Result<String, String> {
        let (mut first, mut second) = self.held("paused", lock)?;
        first.pause().map_err(|error| format!("cannot be paused: {error}"))?;
        let began = Instant::now();
        while began.elapsed() < self.pause {
            if second.takes(lock)? {
                return Err(format!("lost after {} ms", began.elapsed().as_millis()));
            }
            thread::park_timeout(TRY_AGAIN);
        }
        first.wake().map_err(|error| error.to_string())?;
        first.does(&format!("free {}", lock.name()))?;
        if !second.takes(lock)? {
            return Err("never free again".into());
        }
        Ok(format!("held over {} ms of SIGSTOP", self.pause.as_millis()))
    }

    fn counted(&self, lock: Lock) -> Result<String, String> {
        let (mut first, mut second) = self.held("counted", lock)?;
        first.does("write 0")?;
        first.does(&format!("free {}", lock.name()))?;
        let order = format!("count {} {COUNT_ROUNDS}", lock.name());
        first.tell(&order)?;
        second.tell(&order)?;
        first.answers("done")?;
        second.answers("done")?;
        let sum = first.ask("read")?;
        if sum == (2 * COUNT_ROUNDS).to_string() {
            Ok(format!("2 x {COUNT_ROUNDS} gave {sum}"))
        } else {
            Err(format!("2 x {COUNT_ROUNDS} gave {sum}"))
        }
    }

    fn made(&self) -> Result<String, String> {
        let order = format!("make excl {MAKE_ROUNDS}");
        self.each_by_one([&order, &order])
    }

    fn linked(&self) -> Result<String, String> {
        let order = |own: &str| format!("link linked {own} {MAKE_ROUNDS}");
        self.each_by_one([&order("one"), &order("two")])
    }

    /// Two processes make the same files, as the orders say.
    fn each_by_one(&self, orders: [&str; 2]) -> Result<String, String> {
        let (mut first, mut second) = self.two()?;
        first.tell(orders[0])?;
        second.tell(orders[1])?;
        let answers = [first.answer()?, second.answer()?];
        let mut made = Vec::new();
        for answer in &answers {
            let numbers = answer.strip_prefix("made").ok_or_else(|| answer.clone())?;
            made.extend(numbers.split_ascii_whitespace().filter_map(|n| n.parse::<u64>().ok()));
        }
        made.sort_unstable();
        if made.into_iter().eq(0..MAKE_ROUNDS) {
            Ok(format!("{MAKE_ROUNDS} files, each made once"))
        } else {
            Err("a file was created twice, or by no process".into())
        }
    }

    fn renamed(&self) -> Result<String, String> {
        let (mut first, mut second) = self.two()?;
        // There is a file from the start; it is not the last one, which ends the watching.
        fs::write(self.folder.join("renamed"), vec![b'a'; 64 * 1024])
            .map_err(|error| error.to_string())?;
        second.tell("watch renamed")?;
        second.answers("watching")?;
        first.does(&format!("rename renamed {RENAME_ROUNDS}"))?;
        let answer = second.answer()?;
        if answer.ends_with(" torn 0 gone 0") { Ok(answer) } else { Err(answer) }
    }

    /// What one process wrote reaches the other one by a link in a folder that got its name when it
    /// was finished; and so does what is written under the old name later.
    fn handed(&self) -> Result<String, String> {
        let (mut first, mut second) = self.two()?;
        first.does("open handed")?;
        first.does("write 41")?;
        second.does("hand handed folder")?;
        second.does("open folder/handed")?;
        let read = second.ask("read")?;
        if read != "41" {
            return Err(format!("41 was written, {read} is read by the link"));
        }
        first.does("write 42")?;
        let read = second.ask("read")?;
        if read != "42" {
            return Err(format!("42 was written, {read} is read by the link"));
        }
        Ok("a linked file in a renamed folder is the same file".into())
    }

    fn heard(&self) -> Result<String, String> {
        let (mut first, mut second) = self.two()?;
        let silence = self.pause.max(SILENCE_MIN);
        first.tell(&format!("beat heard {}", (silence / 20).as_millis()))?;
        first.answers("beating")?;
        second.tell(&format!("listen heard {}", silence.as_millis()))?;
        second.answers("hearing")?;
        // As long again, in which neither process may report silence.
        if let Some(early) = second.answer_within(silence + silence / 2)? {
            return Err(format!("{early} although the holder was at work"));
        }
        first.pause().map_err(|error| format!("cannot be paused: {error}"))?;
        second.answer()
    }

    fn seen(&self) -> Result<String, String> {
        let (mut first, mut second) = self.two()?;
        first.does("open seen")?;
        second.does("open seen")?;
        for round in 0..SEEN_ROUNDS {
            let (writer, reader) = if round.is_multiple_of(2) {
                (&mut first, &mut second)
            } else {
                (&mut second, &mut first)
            };
            writer.does(&format!("write {round}"))?;
            let read = reader.ask("read")?;
            if read != round.to_string() {
                return Err(format!("{round} was written, {read} is read"));
            }
        }
        Ok(format!("{SEEN_ROUNDS} writes, each seen"))
    }
}

/// A second process, with what it says. It is killed when this is dropped.
struct SecondProcess {
    process: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl SecondProcess {
    fn start(itself: Itself<'_>, folder: &Path) -> io::Result<SecondProcess> {
        let mut command = itself.command("locks", folder);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (Some(orders), Some(out)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (tell, answers) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            // Ends with the process, or when no process listens any more.
            for line in lines {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(SecondProcess { process, orders, answers })
    }

    fn tell(&mut self, order: &str) -> Result<(), String> {
        writeln!(self.orders, "{order}").map_err(|error| error.to_string())
    }

    fn answer(&mut self) -> Result<String, String> {
        let answer = self.answers.recv_timeout(ANSWER_LIMIT);
        let answer = answer.map_err(|_| "a process gave no answer".to_owned())?;
        match answer.strip_prefix("error ") {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }

    /// The answer, if one comes in this time.
    fn answer_within(&mut self, time: Duration) -> Result<Option<String>, String> {
        match self.answers.recv_timeout(time) {
            Ok(answer) => Ok(Some(answer)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err("a process has ended".into()),
        }
    }

    fn ask(&mut self, order: &str) -> Result<String, String> {
        self.tell(order)?;
        self.answer()
    }

    fn answers(&mut self, wanted: &str) -> Result<(), String> {
        let answer = self.answer()?;
        if answer == wanted { Ok(()) } else { Err(format!("{answer} instead of {wanted}")) }
    }

    fn does(&mut self, order: &str) -> Result<(), String> {
        self.tell(order)?;
        self.answers("done")
    }

    fn takes(&mut self, lock: Lock) -> Result<bool, String> {
        Ok(self.ask(&format!("take {}", lock.name()))? == "yes")
    }

    fn pid(&self) -> io::Result<Pid> {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        id.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Comes back when it stands.
    fn pause(&mut self) -> io::Result<()> {
        let pid = self.pid()?;
        kill_process(pid, Signal::STOP)?;
        match waitpid(Some(pid), WaitOptions::UNTRACED)? {
            Some((_, status)) if status.stopped() => Ok(()),
            Some(_) | None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn wake(&mut self) -> io::Result<()> {
        Ok(kill_process(self.pid()?, Signal::CONT)?)
    }
}

impl Drop for SecondProcess {
    fn drop(&mut self) {
        // SIGKILL ends a paused process too.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
