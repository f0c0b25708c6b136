//! The options of the disk tester, checked against their bounds and each other.

use std::path::PathBuf;
use std::time::Duration;

use super::args::{DiskArgs, DiskMode};
use super::file::{BLOCK_BYTES_UNIT, Way};

/// Largest write: four times what the recovery log takes for a full batch.
const BLOCK_BYTES_MAX: u64 = 4 << 20;
/// Most sizes in one run: more would leave none of them time.
const BLOCKS_MAX: usize = 12;
/// The file holds at least the largest batch of the prediction a few times.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// More than any cache of a controller, and still made in minutes.
const FILE_BYTES_MAX: u64 = 64 << 30;
const SECONDS: u32 = 60;
const SECONDS_QUICK: u32 = 2;
const FILE_BYTES: u64 = 64 << 20;
const FILE_BYTES_QUICK: u64 = 8 << 20;
const BLOCKS: &[u64] = &[4 << 10, 16 << 10, 64 << 10, 256 << 10];
const BLOCKS_QUICK: &[u64] = &[4 << 10, 64 << 10];

/// What a run does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) folder: PathBuf,
    /// For everything together.
    pub(crate) time: Duration,
    pub(crate) file_bytes: u64,
    /// In the order of the command line, none twice.
    pub(crate) block_bytes: Vec<u64>,
    pub(crate) ways: &'static [Way],
    /// Whether blocks are measured and commits predicted.
    pub(crate) measures: bool,
    /// Whether signs of lies are looked for.
    pub(crate) judges: bool,
    pub(crate) tests_locks: bool,
    pub(crate) is_quick: bool,
}

impl Plan {
    /// # Errors
    /// What does not fit, for people.
    pub(crate) fn new(args: &DiskArgs) -> Result<Plan, String> {
        let quick = args.quick;
        let seconds = args.seconds.unwrap_or(if quick { SECONDS_QUICK } else { SECONDS });
        let file_bytes = args.size.unwrap_or(if quick { FILE_BYTES_QUICK } else { FILE_BYTES });
        if !(FILE_BYTES_MIN..=FILE_BYTES_MAX).contains(&file_bytes) {
            return Err(format!("--size {file_bytes}: 1 MiB to 64 GiB were expected"));
        }
        if !file_bytes.is_multiple_of(BLOCK_BYTES_UNIT) {
            return Err(format!("--size {file_bytes}: a multiple of 4 KiB was expected"));
        }
        let only = args.locks || args.lies;
        if only && args.chart.is_some() {
            return Err("--chart: there is nothing to draw with --locks or --lies".into());
        }
        Ok(Plan {
            folder: args.dir.clone(),
            time: Duration::from_secs(u64::from(seconds)),
            file_bytes,
            block_bytes: blocks(&args.block, quick, file_bytes)?,
            ways: match args.mode {
                DiskMode::DirectDsync => &[Way::DirectDsync],
                DiskMode::BufferedSync => &[Way::BufferedSync],
                DiskMode::Both => &[Way::DirectDsync, Way::BufferedSync],
            },
            measures: !only,
            judges: !only || args.lies,
            tests_locks: args.locks,
            is_quick: quick,
        })
    }
}

fn blocks(asked: &[u64], quick: bool, file_bytes: u64) -> Result<Vec<u64>, String> {
    let standard = if quick { BLOCKS_QUICK } else { BLOCKS };
    let mut blocks = Vec::new();
    for bytes in if asked.is_empty() { standard } else { asked } {
        if !bytes.is_multiple_of(BLOCK_BYTES_UNIT) || !(1..=BLOCK_BYTES_MAX).contains(bytes) {
            return Err(format!("--block {bytes}: a multiple of 4 KiB up to 4 MiB was expected"));
        }
        if *bytes > file_bytes {
            return Err(format!("--block {bytes}: larger than the file (--size {file_bytes})"));
        }
        if !blocks.contains(bytes) {
            blocks.push(*bytes);
        }
    }
    if blocks.len() > BLOCKS_MAX {
        return Err(format!("--block: at most {BLOCKS_MAX} sizes in one run"));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DiskArgs,
    }

    fn plan(words: &[&str]) -> Result<Plan, String> {
        let line = Line::try_parse_from([&["disktest"], words].concat());
        line.map_err(|error| error.to_string()).and_then(|line| Plan::new(&line.args))
    }

    #[test]
    fn nothing_need_be_said() {
        let plan = plan(&[]).unwrap();
        assert_eq!((plan.time, plan.file_bytes), (Duration::from_secs(60), 64 << 20));
        assert_eq!(plan.block_bytes, [4 << 10, 16 << 10, 64 << 10, 256 << 10]);
        assert!(plan.measures && plan.judges && !plan.tests_locks);
    }

    #[test]
    fn lies_and_locks_leave_the_measuring_out() {
        let lies = plan(&["--lies"]).unwrap();
        assert!(lies.judges && !lies.measures && !lies.tests_locks);
        let locks = plan(&["--locks"]).unwrap();
        assert!(locks.tests_locks && !locks.measures && !locks.judges);
        let both = plan(&["--locks", "--lies"]).unwrap();
        assert!(both.judges && both.tests_locks && !both.measures);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for words in [
            &["--size", "100k"] as &[&str],
            &["--size", "1048577"],
            &["--block", "5000"],
            &["--block", "0"],
            &["--block", "8MiB"],
            &["--size", "1MiB", "--block", "2MiB"],
            &["--block", "4k,8k,12k,16k,20k,24k,28k,32k,36k,40k,44k,48k,52k"],
            &["--seconds", "0"],
            &["--seconds", "3601"],
            &["--mode", "fast"],
            &["--acked", "5"],
            &["--lies", "--chart", "a.svg"],
            &["--power-cut-check", "write"],
        ] {
            assert!(plan(words).is_err(), "{words:?}");
        }
        assert_eq!(plan(&["--block", "4k,4096,8k"]).unwrap().block_bytes, [4096, 8192]);
    }
}
