//! Where the control sockets of a data folder are.
//!
//! ```text
//! towline-control.sock                   of the one process of the folder
//! towline-control-<host>-<pid>.sock      of each process of a shared data folder; <host> is the
//!                                        CRC-32C of the host's name, 8 hexadecimal digits
//! ```
//! Two processes of a shared folder can be on two machines: only those of this machine answer. The
//! name of a host can have 64 bytes, and the whole path 107: that is why it is a checksum here. The
//! name itself is in the answer.

use std::io;
use std::path::{Path, PathBuf};

const OF_FOLDER: &str = "towline-control.sock";
const PREFIX: &str = "towline-control-";
const SUFFIX: &str = ".sock";
/// Digits of the largest process id (pid_max of Linux is at most 4,194,304).
const PID_DIGITS_MAX: usize = 7;

/// The control sockets that may answer in a data folder, existing or not: that of a folder with one
/// process first, then those of the processes of a shared folder, by name.
///
/// # Errors
/// The folder cannot be listed.
pub fn control_sockets(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = of_processes(data, PREFIX)?;
    found.sort();
    found.insert(0, of_folder(data));
    Ok(found)
}

/// The control socket of the one process of a folder.
pub(crate) fn of_folder(data: &Path) -> PathBuf {
    data.join(OF_FOLDER)
}

/// The control socket of one process of a shared folder, by its name, host:pid.
pub(crate) fn of_process(data: &Path, process: &str) -> PathBuf {
    let (host, pid) = split(process);
    data.join(format!("{}{pid}{SUFFIX}", prefix_of_host(host)))
}

/// The control sockets of the processes of a shared folder on the host of this one, host:pid.
pub(super) fn of_same_host(data: &Path, process: &str) -> io::Result<Vec<PathBuf>> {
    of_processes(data, &prefix_of_host(split(process).0))
}

/// Bytes of the longest name of a control socket.
pub(crate) fn name_bytes_max(is_shared: bool) -> usize {
    match is_shared {
        true => prefix_of_host("").len() + PID_DIGITS_MAX + SUFFIX.len(),
        false => OF_FOLDER.len(),
    }
}

fn split(process: &str) -> (&str, &str) {
    process.rsplit_once(':').unwrap_or((process, ""))
}

fn prefix_of_host(host: &str) -> String {
    format!("{PREFIX}{:08x}-", crc32c::crc32c(host.as_bytes()))
}

fn of_processes(data: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let is_one = |name: &str| name.starts_with(prefix) && name.ends_with(SUFFIX);
        if name.to_str().is_some_and(is_one) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_shared_folder_has_a_socket_of_its_own_and_all_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let names = ["left:7", "left:4194304", "right:7"];
        let paths = names.map(|name| of_process(data, name));
        for path in &paths {
            std::fs::write(path, "").unwrap();
            let name = path.file_name().unwrap().len();
            assert!(name <= name_bytes_max(true), "{}", path.display());
        }
        assert_eq!(paths[1].file_name().unwrap().len(), name_bytes_max(true));
        std::fs::write(data.join("towline.sock"), "").unwrap();
        let found = control_sockets(data).unwrap();
        assert_eq!((found.len(), &found[0]), (4, &of_folder(data)));
        let here = of_same_host(data, "left:9").unwrap();
        assert_eq!(here.len(), 2, "{here:?}");
        assert!(!here.contains(&paths[2]));
        assert_eq!(control_sockets(&data.join("none")).unwrap().len(), 1);
    }
}
