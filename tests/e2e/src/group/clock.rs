//! What time it is for one instance alone: libfaketime, loaded before the daemon, shifts its wall
//! clock while it runs, or lets all its clocks run fast or slow from its start on.
//!
//! A shift leaves the monotonic clock alone. A rate does not, and for a few seconds only: the
//! standard library waits on a futex until an absolute moment, which the kernel's clock decides and
//! not the faked one, so a wait is off by as much as the two have drifted apart. Not here: which
//! processes have such clocks, and when they change.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Try, paths};

/// Names of the shared memory that the library makes for each process and a killed one leaves.
const LEFT: [&str; 2] = ["faketime_shm_", "sem.faketime_sem_"];

/// How the clocks of a process run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// The wall clock can be shifted while it runs.
    #[default]
    Even,
    /// All clocks run at so many percent of real time.
    Percent(u32),
}

/// The clocks of one instance.
#[derive(Debug)]
pub(super) struct FakeClock {
    library: PathBuf,
    /// Holds the shift.
    file: PathBuf,
}

impl FakeClock {
    /// Right clocks, which may be changed; `scratch` is for a file of this clock's.
    ///
    /// # Errors
    /// When the library is not installed.
    pub(super) fn right(scratch: &Path) -> Try<FakeClock> {
        let clock = FakeClock { library: paths::faketime()?, file: scratch.join("clock") };
        clock.shift(0)?;
        Ok(clock)
    }

    /// The wall clock is so many seconds ahead from now on, or behind.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn shift(&self, seconds: i64) -> Try {
        // Replaced whole: the library reads it each time a program asks for the time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{seconds:+}\n"))?;
        fs::rename(new, &self.file)?;
        Ok(())
    }

    /// What a process with this clock is started with.
    pub(super) fn environment(&self, pace: Pace) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut variables = vec![("LD_PRELOAD".to_owned(), text(&self.library))];
        match pace {
            Pace::Even => {
                variables.push(("FAKETIME_TIMESTAMP_FILE".into(), text(&self.file)));
                variables.push(("FAKETIME_DONT_FAKE_MONOTONIC".into(), "1".into()));
                variables.push(("FAKETIME_NO_CACHE".into(), "1".into()));
            }
            Pace::Percent(percent) => {
                let (whole, part) = (percent / 100, percent % 100);
                variables.push(("FAKETIME".into(), format!("+0 x{whole}.{part:02}")));
            }
        }
        variables
    }
}

/// Removes what the library leaves of a process that was killed: another one may get its number.
pub(crate) fn forget(pid: u32) {
    for name in LEFT {
        // Most processes have none.
        drop(fs::remove_file(format!("/dev/shm/{name}{pid}")));
    }
}
