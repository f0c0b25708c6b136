//! The command line of the disk tester, as clap reads it.
//!
//! It does *not* check how the options fit together: [`super::plan`] does.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Which ways of writing are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiskMode {
    /// O_DIRECT and O_DSYNC: each write is on the disk when it returns, past the page cache.
    DirectDsync,
    /// Into the page cache, then fdatasync.
    BufferedSync,
    /// Both, one after the other.
    Both,
}

/// Measures a disk as a recovery log uses it: sequential writes, each with an fsync.
#[derive(Args, Clone, Debug)]
pub struct DiskArgs {
    /// Folder on the disk to test
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Total time, 1 to 3600 [default: 60, with --quick 2]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// Size of the file that is overwritten repeatedly, such as 64MiB [default: 64MiB, with
    /// --quick 8MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub size: Option<u64>,
    /// Sizes of a write, multiples of 4 KiB [default: 4KiB,16KiB,64KiB,256KiB, with --quick
    /// 4KiB,64KiB]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = bytes)]
    pub block: Vec<u64>,
    /// Way of writing
    #[arg(long, value_enum, default_value = "both")]
    pub mode: DiskMode,
    /// Write the result as JSON; - for standard output, instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw a chart of latencies and bytes per second
    #[arg(long, value_name = "FILE.svg")]
    pub chart: Option<PathBuf>,
    /// Test only file locks, as processes on a shared file system need them (can be combined with
    /// --lies)
    #[arg(long)]
    pub locks: bool,
    /// Check only whether the disk lies about fsync (can be combined with --locks)
    #[arg(long)]
    pub lies: bool,
    /// A quick look of two seconds
    #[arg(long)]
    pub quick: bool,
    /// Only a test by power cut. write: write numbered records, and print the number of each after
    /// its fsync, until the power is cut. verify: check them afterwards
    #[arg(long, num_args = 2, value_names = ["write|verify", "FILE"],
          conflicts_with_all = ["locks", "lies", "chart", "block", "seconds", "dir", "quick"])]
    pub power_cut_check: Option<Vec<OsString>>,
    /// The last number that power-cut-check write printed
    #[arg(long, value_name = "N", requires = "power_cut_check")]
    pub acked: Option<u64>,
    /// End power-cut-check write after N records [default: at the power cut]
    #[arg(long, value_name = "N", requires = "power_cut_check",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
}

/// What a second process of the disk tester does. Not for people.
#[derive(Clone, Debug, Subcommand)]
pub enum DiskPart {
    /// Removes something when standard input ends, which it does in whatever way the first process
    /// ends.
    Guard {
        /// What is removed: a file, or a folder with all in it
        path: PathBuf,
    },
    /// Takes locks as standard input says.
    Locks {
        /// Folder that all names are in
        folder: PathBuf,
    },
}

/// A number of bytes: `4096`, `4KiB`, `4k`, `64MiB`, `1GiB`. K, M, G and T are powers of 1024,
/// with and without `iB`, as they are for log files everywhere.
///
/// # Errors
/// The text of a wrong one.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text}: a size such as 4096, 16KiB or 64MiB was expected");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_all_their_spellings() {
        for (text, wanted) in
            [("4096", 4096), ("4k", 4096), ("16KiB", 16_384), ("64MiB", 64 << 20), ("1T", 1 << 40)]
        {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in ["", "k", "4x", "-1", "4 KiB", "99999999999999999999", "99999999999G", "é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
