//! Reports of changes of roles in the data folder of the instance that carried them out.
//!
//! ```text
//! reports/<when>-<kind>-<number>.json      when: YYYYMMDDTHHMMSSZ; number: 8 hexadecimal digits
//! reports/<when>-<kind>-<number>.html      the same as a page
//! ```
//!
//! Not here: what is in a report (`towline_admin::region_report`), and when one is made
//! (`group::region_orders`). Invariants: a report is whole and durable, or not there; at most
//! [`REGION_REPORTS_MAX`] are kept, the newest; only the user of the process reads them; no name
//! leads out of the folder.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use towline_admin::region_report::{RegionReport, page};
use towline_types::limits::{REGION_REPORT_BYTES_MAX, REGION_REPORTS_MAX};
use towline_types::{CivilTime, Time};

const FOLDER: &str = "reports";
const JSON: &str = ".json";
const PAGE: &str = ".html";
/// Bytes of a name: the longest kind leaves some.
const NAME_BYTES_MAX: usize = 64;

/// A name for a report of something that began at `at` (milliseconds since the Unix epoch).
#[must_use]
pub fn name_of(report: &RegionReport, number: [u8; 4]) -> String {
    let at = CivilTime::of(Time(report.began_at.saturating_mul(1_000)));
    let CivilTime { year, month, day, hour, minute, second, .. } = at;
    let number = u32::from_be_bytes(number);
    let kind = report.kind.name();
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{kind}-{number:08x}")
}

/// Keeps a report, instead of one of the same name; yields the path of its JSON.
///
/// # Errors
/// What the operating system says; a name that is none, or a report that is too long.
pub fn keep(data: &Path, report: &RegionReport) -> io::Result<PathBuf> {
    check_name(&report.name)?;
    let folder = data.join(FOLDER);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => File::open(data)?.sync_all()?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let text = serde_json::to_string_pretty(report).map_err(Error::other)? + "\n";
    if text.len() as u64 > REGION_REPORT_BYTES_MAX {
        let why = format!("a report has at most {REGION_REPORT_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    write(&folder, &format!("{}{PAGE}", report.name), &page(report))?;
    // The page first: a report that is listed has one.
    write(&folder, &format!("{}{JSON}", report.name), &text)?;
    File::open(&folder)?.sync_all()?;
    forget_old(&folder)?;
    Ok(folder.join(format!("{}{JSON}", report.name)))
}

/// Names of the reports in a data folder, the newest first.
///
/// # Errors
/// What the operating system says.
pub fn list(data: &Path) -> io::Result<Vec<String>> {
    names(&data.join(FOLDER))
}

/// The report of a name.
///
/// # Errors
/// What the operating system says; [`ErrorKind::InvalidInput`]: that is no name;
/// [`ErrorKind::InvalidData`]: it cannot be read.
pub fn read(data: &Path, name: &str) -> io::Result<RegionReport> {
    check_name(name)?;
    let path = data.join(FOLDER).join(format!("{name}{JSON}"));
    let mut text = String::new();
    File::open(&path)?.take(REGION_REPORT_BYTES_MAX).read_to_string(&mut text)?;
    let damaged =
        |error| Error::new(ErrorKind::InvalidData, format!("{}: {error}", path.display()));
    serde_json::from_str(&text).map_err(damaged)
}

fn check_name(name: &str) -> io::Result<()> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        return Err(Error::new(ErrorKind::InvalidInput, "that is no name of a report"));
    }
    Ok(())
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_str().and_then(|name| name.strip_suffix(JSON));
        names.extend(name.filter(|name| check_name(name).is_ok()).map(str::to_owned));
    }
    // They begin with the time.
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(names)
}

fn write(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))
}

fn forget_old(folder: &Path) -> io::Result<()> {
    for name in names(folder)?.iter().skip(REGION_REPORTS_MAX) {
        fs::remove_file(folder.join(format!("{name}{JSON}")))?;
        match fs::remove_file(folder.join(format!("{name}{PAGE}"))) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn report(at: u64) -> RegionReport {
        let mut report =
            RegionReport { began_at: at, by: "root".into(), ..RegionReport::default() };
        report.name = name_of(&report, [0, 0, 0, 7]);
        report
    }

    #[test]
    fn what_is_kept_comes_back_is_for_its_user_alone_and_can_be_replaced() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(list(data.path()).unwrap(), Vec::<String>::new());
        let mut kept = report(1_795_792_800_999);
        assert_eq!(kept.name, "20261127T152000Z-switch-00000007");
        let path = keep(data.path(), &kept).unwrap();
        kept.took_ms = 9;
        assert_eq!(keep(data.path(), &kept).unwrap(), path);
        assert_eq!(read(data.path(), &kept.name).unwrap(), kept);
        assert_eq!(list(data.path()).unwrap(), [kept.name.clone()]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let page = path.with_extension("html");
        assert_eq!((mode(&path), mode(&page)), (0o600, 0o600));
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert!(fs::read_to_string(page).unwrap().contains("<td>9 ms</td>"));
        assert!(fs::read_dir(path.parent().unwrap()).unwrap().count() == 2, "nothing is left over");
    }

    #[test]
    fn the_newest_are_kept_and_nothing_else_is_touched() {
        let data = tempfile::tempdir().unwrap();
        let most = REGION_REPORTS_MAX as u64;
        for second in 0..most + 3 {
            keep(data.path(), &report(second * 1_000)).unwrap();
        }
        let names = list(data.path()).unwrap();
        assert_eq!(names.len() as u64, most);
        assert_eq!(names[0], report((most + 2) * 1_000).name);
        assert!(!names.contains(&report(2_000).name) && names.contains(&report(3_000).name));
        let files = fs::read_dir(data.path().join(FOLDER)).unwrap().count();
        assert_eq!(files as u64, 2 * most);
    }

    #[test]
    fn no_name_leads_out_of_the_folder_and_a_report_that_is_too_long_is_refused() {
        let data = tempfile::tempdir().unwrap();
        for name in ["", "../x", "a/b", "a.json", &"x".repeat(65), "a\0"] {
            let report = RegionReport { name: name.into(), ..RegionReport::default() };
            let refused = keep(data.path(), &report).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{name}");
            assert_eq!(read(data.path(), name).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let mut long = report(5);
        long.reason = "x".repeat(40_000);
        assert_eq!(keep(data.path(), &long).unwrap_err().kind(), ErrorKind::InvalidInput);
        let whole = report(5);
        let path = keep(data.path(), &whole).unwrap();
        fs::write(&path, "{").unwrap();
        let refused = read(data.path(), &whole.name).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
    }
}
