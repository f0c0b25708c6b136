//! A report for people, on a terminal of 80 columns. Not here: what is in it (`report`).

use std::fmt::{self, Display, Formatter};

use super::honesty::Judgement;
use super::location::Device;
use super::locks::LockTest;
use super::predict::{CLIENTS, MESSAGE_BYTES, Prediction};
use super::report::{Block, Report};

/// Columns of a terminal that is not made wider.
const COLUMNS: usize = 80;
/// From here on, latencies say more about the processors than about the disk.
const PROCESSOR_WAIT_PERCENT: f64 = 10.0;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        let source = place.mount_source.as_deref().unwrap_or("unknown source");
        wrapped(
            f,
            "Folder  ",
            &format!("{} ({} on {source})", place.folder.display(), place.file_system),
        )?;
        match &place.device {
            Some(device) => wrapped(f, "Device  ", &described(device))?,
            None => writeln!(f, "Device  none found")?,
        }
        if let Some(bytes) = self.file_bytes {
            writeln!(f, "File    {}, written from its start to its end and again", size(bytes))?;
        }
        blocks(f, &self.blocks)?;
        for skipped in &self.skipped {
            wrapped(f, "", &format!("Not possible here: {} ({})", skipped.mode, skipped.reason))?;
        }
        if let Some(class) = self.latency_class {
            writeln!(f, "Such latencies are those of {class}.")?;
        }
        if let Some(percent) = self.processor_wait_percent.filter(|p| *p >= PROCESSOR_WAIT_PERCENT)
        {
            wrapped(
                f,
                "",
                &format!(
                    "CAREFUL: {percent:.0} % of that time was spent waiting for a processor, not for \
                     the disk. The machine is busy; repeat it when it is not."
                ),
            )?;
        }
        predictions(f, &self.predictions, self.prediction_mode)?;
        if let Some(sync) = &self.sync {
            judgement(f, sync)?;
        }
        if let Some(locks) = &self.locks {
            lock_tests(f, locks)?;
        }
        let verdict = if self.fit { "FIT" } else { "NOT FIT for a queue manager" };
        write!(f, "\n{verdict} ({:.1} s)", self.elapsed_s)
    }
}

fn described(device: &Device) -> String {
    let flag = |known: Option<bool>, yes: &str, no: &str| match known {
        Some(true) => format!(", {yes}"),
        Some(false) => format!(", {no}"),
        None => String::new(),
    };
    let cache = device.write_cache.as_deref().unwrap_or("cache unknown");
    let fua = flag(device.fua, "FUA", "no FUA");
    let turns = flag(device.rotational, "says it turns", "flash");
    let is_virtual = if device.is_virtual { ", virtual" } else { "" };
    format!("{}: {cache}{fua}{turns}{is_virtual}", device.name)
}

fn blocks(f: &mut Formatter<'_>, blocks: &[Block]) -> fmt::Result {
    if blocks.is_empty() {
        return Ok(());
    }
    // Medians and the rates of single seconds are in the JSON.
    writeln!(f, "\n{:29} |{:^39} |{:>7}", "", "write and sync, us", "")?;
    writeln!(
        f,
        "{:12}{:>8}{:>9} |{:>7}{:>8}{:>8}{:>8}{:>8} |{:>7}",
        "mode", "block", "writes", "min", "avg", "p99", "p99.9", "max", "MB/s"
    )?;
    for block in blocks {
        let latency = &block.latency;
        let (blocks, count) = (size(block.block_bytes), block.writes_count);
        write!(f, "{:12}{blocks:>8}{count:>9} |", block.mode)?;
        write!(f, "{:>7}", us(latency.min))?;
        for each in [latency.avg, latency.p99, latency.p999, latency.max] {
            write!(f, "{:>8}", us(each))?;
        }
        writeln!(f, " |{:>7}", megabytes(block.rate_avg_bytes_per_s))?;
    }
    Ok(())
}

fn predictions(
    f: &mut Formatter<'_>,
    predictions: &[Prediction],
    mode: Option<&str>,
) -> fmt::Result {
    let Some(mode) = mode.filter(|_| !predictions.is_empty()) else { return Ok(()) };
    debug_assert!(predictions.len() <= CLIENTS.len(), "one for each number of clients");
    writeln!(f, "\nCommits per second of this queue manager, messages of {MESSAGE_BYTES} bytes:")?;
    writeln!(
        f,
        "{:>9}{:>12}{:>22}{:>20}{:>14}",
        "clients", "batch", "write and sync, us", "the disk allows", "expected"
    )?;
    for prediction in predictions {
        writeln!(
            f,
            "{:>9}{:>12}{:>22}{:>20.0}{:>14.0}",
            prediction.clients,
            size(prediction.batch_bytes),
            us(prediction.latency_avg_us),
            prediction.disk_commits_per_s,
            prediction.expected_commits_per_s,
        )?;
    }
    writeln!(f, "(batches written as {mode}, which is how the log writes here)")
}

fn judgement(f: &mut Formatter<'_>, judgement: &Judgement) -> fmt::Result {
    writeln!(f, "\nDoes it keep its word about sync? {}.", judgement.verdict.text())?;
    for sentence in &judgement.evidence {
        wrapped(f, "  - ", sentence)?;
    }
    writeln!(f, "  Only a power cut proves it: towline disktest --power-cut-check write FILE")
}

fn lock_tests(f: &mut Formatter<'_>, tests: &[LockTest]) -> fmt::Result {
    writeln!(f, "\n{:26}{:7}{:6}for two instances on this file system", "locks", "", "")?;
    for test in tests {
        let result = if test.passed { "pass" } else { "FAIL" };
        let lock = test.lock.unwrap_or("-");
        wrapped(f, &format!("{:26}{lock:7}{result:6}", test.test), test.meaning)?;
        if !test.passed {
            wrapped(f, "    seen: ", &test.seen)?;
        }
    }
    let verdict = if tests.iter().all(|test| test.passed) { "fit" } else { "NOT FIT" };
    writeln!(f, "\nMulti-instance mode (towline run --standby): {verdict}.")?;
    wrapped(
        f,
        "",
        "Both processes ran on this machine: what fails is unfit, what passes must still be tried \
         from two machines.",
    )
}

/// Text after a beginning, in lines of at most [`COLUMNS`], the further ones indented.
fn wrapped(f: &mut Formatter<'_>, start: &str, text: &str) -> fmt::Result {
    let mut line = start.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            writeln!(f, "{line}")?;
            line = " ".repeat(start.chars().count());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(f, "{line}")
}

/// Bytes in the largest unit that leaves no fraction: `4 KiB`, `64 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    match fits {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// Microseconds in at most seven characters: one decimal below 1,000, `1.5 s` from ten seconds on.
fn us(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.1}"),
        us if us < 10_000_000.0 => format!("{us:.0}"),
        us => format!("{:.1} s", us / 1e6),
    }
}

fn megabytes(rate: u64) -> String {
    let megabytes = rate as f64 / 1e6;
    if megabytes < 100.0 { format!("{megabytes:.1}") } else { format!("{megabytes:.0}") }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn a_report_fits_a_terminal_of_80_columns() {
        let text = sample().to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{}: {line}", line.chars().count());
        }
        for part in [
            "xfs on /dev/nvme0n1p2",
            "direct-dsync",
            "NVMe",
            "62 % of that time",
            "expected",
            "honest",
            "2 x 100 gave 187",
            "NOT FIT",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn sizes_and_times_read_in_the_unit_that_fits() {
        assert_eq!(
            [size(4096), size(64 << 20), size(1000), size(3 << 30)],
            ["4 KiB", "64 MiB", "1000 B", "3 GiB"]
        );
        assert_eq!([us(52.44), us(12_345.6), us(61_000_000.0)], ["52.4", "12346", "61.0 s"]);
        assert_eq!([megabytes(99_940_000), megabytes(2_000_000_000)], ["99.9", "2000"]);
    }
}
